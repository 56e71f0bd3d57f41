"""Forks workers from a process that has imported torch once: a worker starts in milliseconds.

`python -m tests.process_group.server FD`: requests come over the socket FD, one at a time. When it
closes, whatever the server has forked is killed.
"""

from __future__ import annotations

import array
import ctypes
import faulthandler
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import warnings
from pathlib import Path

#: Programs that workers run, with all that these import.
WORKLOADS = (
    "asynchronous",
    "beyond",
    "checkpoints",
    "collectives",
    "ddp",
    "dying",
    "functional",
    "groups",
    "messages",
    "objects",
    "pipelines",
    "sharded",
    "wrong",
)
PRELOADED = (
    "torch",
    "torch._dynamo.eval_frame",  # whole, also where a stand-in has the compiler's place
    "torch.distributed._functional_collectives",
    "torch.distributed._state_dict_utils",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook",
    "torch.distributed.algorithms.join",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "dayfly.wire.engine",
    "tests.process_group.worker",
    *(f"tests.process_group.workloads.{module}" for module in WORKLOADS),
)
_REQUEST_BYTES = 4096
_SET_PARENT_DEATH_SIGNAL = 1


def main(fd: int) -> None:
    """Serve until the other end closes."""
    # torch calls half of its collectives deprecated; its users do not stop using them.
    warnings.simplefilter("ignore", FutureWarning)
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is there now need not be looked through, and so copied, as workers end
    workers: set[int] = set()
    with socket.socket(fileno=fd) as server:
        server.sendall(b"ready")
        while True:
            message, fds, _, _ = socket.recv_fds(server, _REQUEST_BYTES, 1)
            if not message:
                break
            match pickle.loads(message):
                case ("start", log):
                    pid = os.fork()
                    if pid == 0:
                        server.close()
                        _work(fds[0], log)
                    os.close(fds[0])
                    workers.add(pid)
                    server.sendall(pickle.dumps(pid))
                case ("end", pid, grace_s):
                    workers.remove(pid)
                    server.sendall(pickle.dumps(_exit_code(pid, grace_s)))
    for pid in workers:
        _exit_code(pid, 0)


def _exit_code(pid: int, grace_s: float) -> int:
    """How a worker ended within its grace, or was killed after it; minus the signal if by one."""
    watch = os.pidfd_open(pid)
    try:
        if not select.select([watch], [], [], grace_s)[0]:
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(watch)


def _work(fd: int, log: str) -> None:
    """The child: a worker until its connection closes, then an ordinary end of an interpreter.

    Of one that has used no backend of ours the end is not looked at, and takes half a second.
    """
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable()
    used = importlib.import_module("tests.process_group.worker").serve(fd)
    if used == {"gloo"}:
        os._exit(0)
    sys.exit(0)


def request(server: socket.socket, what: tuple[object, ...], fd: int | None = None) -> int:
    """Ask a server for something, handing over a file descriptor; its answer."""
    fds = array.array("i", [] if fd is None else [fd])
    socket.send_fds(server, [pickle.dumps(what)], fds)
    answer = server.recv(_REQUEST_BYTES)
    if not answer:
        raise EOFError("the server of workers has ended: its log says why")
    found: int = pickle.loads(answer)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
