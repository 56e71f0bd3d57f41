"""The process that functions are forked from: it has torch imported, and computes nothing.

Run by the coordinator as `python -m dayfly.life.platforms.zygote CONFIGURATION`, a JSON object:

    socket_fd, lifeline_fd    inherited descriptors
    path                      sys.path
    preload                   modules to import besides torch

It must stay single-threaded and must never run a tensor operation: children of a process that ever
ran a parallel one hang in their first. The coordinator started it with threads, instruction sets
and allocator set in the environment (`life.environment`), because the libraries read that as they
are loaded.

On the socket it says `ready` once, with its base memory; then it takes one byte a request, with
three descriptors beside it: the function's control socket, its request, its log. One descriptor
alone is a log of its own, as platforms follow each other. The end of the socket is its own end.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from dayfly import garbage, lifeline
from dayfly.life.platforms import control
from dayfly.uncompiled import leave_compiler_unloaded

#: `local_function.live`: control socket, request, log, lifeline, the zygote's pid.
Live = Callable[[int, int, int, int, int], NoReturn]

_FDS_PER_REQUEST = 3


def main(configuration: str) -> None:
    """Import, say ready, serve until the coordinator closes the socket."""
    given = json.loads(configuration)
    # Functions make their own of ours: one descriptor is enough.
    lifeline_fd = lifeline.arm(given["lifeline_fd"])
    os.close(given["lifeline_fd"])
    _default_signals()
    sys.path[:] = given["path"]
    # What exists by then is never garbage in a function: its collector shall not touch, and so
    # copy, its pages.
    with garbage.importing():
        # torch comes with it; here and not above, so that the lifeline holds during the import.
        from dayfly.life.platforms import footprint, local_function

        for module in given["preload"]:
            importlib.import_module(module)
        leave_compiler_unloaded()
        gc.collect()
    _warn_of_threads()
    sys.stdout.flush()
    server = socket.socket(fileno=given["socket_fd"])
    control.send(server, {"kind": "ready", "base_bytes": footprint.resident_bytes()})
    while True:
        request, fds, _, _ = socket.recv_fds(server, 1, _FDS_PER_REQUEST)
        if not request:
            return
        if len(fds) == _FDS_PER_REQUEST:
            try:
                _fork(server, fds, lifeline_fd, local_function.live)
            except OSError:  # the coordinator sees the end of the control socket, and the log
                traceback.print_exc()
        elif len(fds) == 1:
            _log_to(fds[0])
        for fd in fds:
            os.close(fd)


def _log_to(fd: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(fd, stream.fileno())
    _warn_of_threads()


def _warn_of_threads() -> None:
    if threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > 1:
        print("zygote: the preloaded modules started threads; functions may hang", file=sys.stderr)


def _default_signals() -> None:
    # The coordinator may ignore or block some, and both are inherited.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _fork(server: socket.socket, fds: list[int], lifeline_fd: int, live: Live) -> None:
    """Fork twice: the process in between ends at once, so the coordinator inherits the function."""
    zygote_pid = os.getpid()
    between = os.fork()
    if between > 0:
        os.waitpid(between, 0)
        return
    try:
        if os.fork() == 0:
            server.close()
            for fd in fds:
                os.set_inheritable(fd, False)
            control_fd, request_fd, log_fd = fds
            live(control_fd, request_fd, log_fd, lifeline_fd, zygote_pid)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
