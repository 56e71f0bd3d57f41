"""The life of a function on the local platform, from its fork to its exit.

    zygote            function                                  coordinator
      | fork, fork ->   |  hello: pid, its own pidfd, start        |
      |                 | ----------------------------------------> |
      |                 |  lifeline, session, log, limits          |
      |                 |  begun: the handler is called now        |
      |                 | ----------------------------------------> |
      |                 |  invoked: each function that it invokes  |
      |                 | ----------------------------------------> |
      |                 |  resident: its memory, if it returned    |
      |                 | ----------------------------------------> |
      |                 |  result, or raised: its error            |
      |                 | ----------------------------------------> |
      |                 |  exit                                     | reaps it

The hello comes first, so that the coordinator can end and reap it whatever happens afterwards.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, NoReturn

import torch

from dayfly import lifeline
from dayfly.life import allocator
from dayfly.life.environment import THREADS
from dayfly.life.failure import Failure, is_the_users
from dayfly.life.platforms import control, footprint, gpus, network
from dayfly.life.platforms.base import Context, Handler
from dayfly.life.platforms.footprint import Resident

#: Frames of these files are ours, not the user's.
_FROZEN = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_OWN_FILES = (__file__, importlib.__file__, *_FROZEN)

_zygote_pid: int | None = None


def current_zygote_pid() -> int:
    """The pid of the zygote that this function was forked from; for failure tests.

    Raises RuntimeError outside of a function of the local platform.
    """
    if _zygote_pid is None:
        raise RuntimeError("this process is not a function of the local platform")
    return _zygote_pid


def live(control_fd: int, request_fd: int, log_fd: int, lifeline_fd: int, zygote: int) -> NoReturn:
    """Be a function: never returns. The descriptors are taken over, the lifeline's is rearmed."""
    global _zygote_pid
    exit_code = 1
    try:
        started_at = time.monotonic()
        _zygote_pid = zygote
        connection = socket.socket(fileno=control_fd)
        pidfd = os.pidfd_open(os.getpid())
        hello = {
            "kind": "hello",
            "pid": os.getpid(),
            "started_at": started_at,
            "anonymous_bytes": footprint.anonymous_bytes(),
        }
        control.send(connection, hello, [pidfd])
        os.close(pidfd)
        lifeline.arm(lifeline_fd)
        os.close(lifeline_fd)
        request = _read_request(request_fd)
        _move_in(log_fd)
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None  # what is imported may have looked already, by another TMPDIR
        sys.path[:] = request["path"]
        importlib.invalidate_caches()  # the zygote may have looked there before
        exit_code = _run(request, started_at, connection)
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(exit_code)


def _read_request(request_fd: int) -> dict[str, Any]:
    # pread: the offset is shared with the coordinator, which may have to send it a second time.
    body = bytearray()
    while part := os.pread(request_fd, 2**20, len(body)):
        body += part
    os.close(request_fd)
    request: dict[str, Any] = json.loads(body)
    return request


def _move_in(log_fd: int) -> None:
    os.setsid()
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    for stream in (sys.stdout, sys.stderr):
        # By lines: what a function printed before it was killed must be in the log.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The place of a crash goes to the log, and the signal still ends the process; with SIGUSR1 that
    # of a function that seems stuck, which goes on.
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.stderr)


def _run(request: Mapping[str, Any], started_at: float, connection: socket.socket) -> int:
    """Call the handler and report; returns the exit code."""
    spec = request["spec"]
    try:
        for procs in request["cgroups"]:
            with open(procs, "w") as file:
                file.write("0")
        if request["on_cpu"] is not None:
            os.sched_setaffinity(0, {request["on_cpu"]})
        if spec["data_bytes"] is not None:
            footprint.limit_data_of_this_process(spec["data_bytes"])
        if spec["memory_mib"] is not None:
            allocator.give_back()
        torch.set_num_threads(THREADS)
        if request["netns"] is not None:
            network.enter(request["netns"])
        if request["gpu"] is not None:
            gpus.become(request["gpu"], spec["gpu_share"])
        # What a platform's cold start takes longer than ours; its lifetime begins afterwards.
        time.sleep(spec["cold_start_s"])
        started_at += spec["cold_start_s"]
        lifetime_s = spec["lifetime_s"]
        context = Context(
            function=request["function"],
            attempt=request["attempt"],
            started_at=started_at,
            deadline=None if lifetime_s is None else started_at + lifetime_s,
            memory_mib=spec["memory_mib"],
            gpu_share=spec["gpu_share"],
        )
        handler = _resolve(request["handler"])
        control.send(connection, {"kind": "begun", "at": time.monotonic()})
        _invoke(request, connection)
        result = handler(request["payload"], context)
        what = f"the result of {request['handler']}"
        body = control.encode(result, what, spec["payload_bytes"])
        if (resident := Resident.of("self")) is not None:
            control.send(connection, {"kind": "resident", **asdict(resident)})
        control.send_encoded(connection, b'{"kind": "result", "result": ' + body + b"}")
        return 0
    except SystemExit as exit:
        return _exit_code(exit)
    except BaseException as error:
        # First of all: the report needs memory, too.
        footprint.lift_data_limit()
        report = _report(
            error, limited=spec["memory_mib"] is not None, has_gpu=request["gpu"] is not None
        )
        control.send(connection, report)
        print(report["failure"]["traceback"], file=sys.stderr)
        return 1


def _invoke(request: Mapping[str, Any], connection: socket.socket) -> None:
    """Call for the functions that this one is to invoke, whose invocations wait at the platform."""
    functions, at_once = request["invokes"], request["invoke_at_once"]
    for first in range(0, len(functions), at_once):
        time.sleep(request["invoke_call_s"])
        for function in functions[first : first + at_once]:
            control.send(connection, {"kind": "invoked", "function": function})


def _resolve(handler: str) -> Handler:
    module_name, _, attribute = handler.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in attribute.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{handler} is not callable")
    return found  # type: ignore[no-any-return]  # what a module holds has no static type


def _exit_code(exit: SystemExit) -> int:
    """As the interpreter does it."""
    if exit.code is None:
        return 0
    if isinstance(exit.code, int):
        return exit.code & 0xFF
    print(exit.code, file=sys.stderr)
    return 1


def _report(error: BaseException, *, limited: bool, has_gpu: bool) -> dict[str, Any]:
    kind = "raised"
    if gpus.is_gpu_memory_error(error):
        kind = "gpu memory" if has_gpu else "raised"
    elif limited and footprint.is_memory_error(error):
        kind = "memory"
    return {"kind": kind, "failure": Failure.of(error, _users_part(error.__traceback__)).dump()}


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame of the user's code on.

    If there is none, it is without our frames at its beginning, and None if there is nothing else.
    Ours are also those of handlers that call what is the user's, and say so as pytest has it.
    """
    own = trace
    while own is not None and not is_the_users(own.tb_frame.f_code.co_filename):
        own = own.tb_next
    if own is not None:
        return own
    while trace is not None and (
        trace.tb_frame.f_code.co_filename in _OWN_FILES
        or "__tracebackhide__" in trace.tb_frame.f_locals
    ):
        trace = trace.tb_next
    if trace is not None and trace.tb_frame.f_code.co_filename == control.__file__:
        return None
    return trace


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:  # a full disk; a stream that the user closed
            del error
