"""A process that has everything imported, from which Python programs are forked in milliseconds.

    test ---- request over a socket ---> server: imports done, nothing computed
      |                                    | forks
      |                                  a process that forks and exits
      |                                    | forks
      +---- adopts, as a subreaper ----> program: as if `python ARGUMENTS` had just been started

A request is one JSON object with the descriptors beside it, the answer the program's pid. When the
socket's other end closes, the server ends; programs go on. Before a program begins, it forks a
server of its own, so that what it starts is warm, too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from dayfly.uncompiled import leave_compiler_unloaded

#: What commands, coordinators, functions and tests' workers import sooner or later.
PRELOADED = (
    "torch",
    "torch.distributed.algorithms.join",
    "torch.distributed.optim",
    "torch.nn.parallel.distributed",
    "numpy.ma",
    "numpy.random",
    "pydantic.fields",
    "pydantic.functional_validators",
    "pydantic.json_schema",
    "pydantic.type_adapter",
    "dayfly.cli.app",
    "dayfly.cli.outcome",
    "dayfly.cli.warm",
    "dayfly.life.platforms.local",
    "dayfly.runs.api",
    "dayfly.runs.launch",
    "dayfly.runs.worker",
    "dayfly.runs.scripts.backend",
    "dayfly.runs.scripts.parallel",
    "dayfly.training.compression.powersgd",
    "dayfly.training.compression.significance",
    "dayfly.wire.engine",
    "dayfly.wire.channels.files",
)
#: What processes of tests import as they collect, and functions of their jobs once more. For a
#: server of several such processes: a test that runs alone would wait for it in vain.
SHARED = ("optuna", "torchmetrics")
#: A variable that makes the kernel's copy of the server's environment so long that a program's fits
#: there: /proc/PID/environ is where a process looks for the mark of another.
ROOM = "TESTS_WARM_ROOM"
ROOM_BYTES = 2**15
MOST_BYTES = 2**17
MOST_FDS = 64
_ZYGOTE = "dayfly.life.platforms.zygote"


@dataclass(frozen=True)
class Request:
    """A program to fork.

    arguments: behind the interpreter: flags, then a script, or -m or -c, then the program's own.
    fds: numbers that the descriptors beside the request shall have. ignored: signals that are.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    fds: Sequence[int]
    ignored: Sequence[int]
    umask: int
    new_session: bool

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Interpreter:
    """What a fresh one would have: its sys.path but for the first, and variables read at load."""

    path: Sequence[str]
    loaded: Mapping[str, str]


def main(fd: int, path: Sequence[str], more: Sequence[str]) -> NoReturn:
    """Serve. path: sys.path of an interpreter, without the first. more: modules to import, too."""
    from tests.warm.popen import at_load

    interpreter = Interpreter(path, at_load(os.environ))  # before imports add to it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the socket's other end closes then
    for module in (*PRELOADED, *more):
        importlib.import_module(module)
    leave_compiler_unloaded()  # or each program with an optimizer would load it for itself
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("the preloaded modules started threads: programs may hang")
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=fd), interpreter)


def serve(server: socket.socket, interpreter: Interpreter) -> NoReturn:
    """Fork programs until the socket closes."""
    with contextlib.suppress(OSError):  # who asked has ended
        server.send(b"ready")
    while True:
        message, fds, _, _ = socket.recv_fds(server, MOST_BYTES, MOST_FDS)
        if not message:
            os._exit(0)
        adopted, adopt = os.pipe()
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            # What arrives before the program begins waits for it: see `_take_signals`.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            pid = os.fork()
            if pid:
                os.write(tell, str(pid).encode())
                os._exit(0)
            os.close(adopt)
            os.read(adopted, 1)  # until the process between has ended
            server.close()
            _become(Request(**json.loads(message)), fds, interpreter)
        os.waitpid(between, 0)
        pid_of_program = os.read(told, 32)
        for fd in (adopted, adopt, told, tell, *fds):
            os.close(fd)
        with contextlib.suppress(OSError):
            server.send(pid_of_program)


def _become(request: Request, fds: Sequence[int], interpreter: Interpreter) -> NoReturn:
    """Turn this process into the program, and run it."""
    _take_descriptors(fds, request.fds)
    if request.new_session:
        os.setsid()
    os.chdir(request.cwd)
    os.umask(request.umask)
    flags, program, arguments = split(request.arguments)
    _take_environment(request.environment)
    _open_streams(unbuffered="-u" in flags)
    first = _first_of_path(program, arguments) if "-P" not in flags else []
    found = request.environment.get("PYTHONPATH", "")
    sys.path[:] = [*first, *(found.split(os.pathsep) if found else []), *interpreter.path]
    importlib.invalidate_caches()
    sys.orig_argv[:] = [sys.executable, *request.arguments]
    import torch

    if "OMP_NUM_THREADS" not in request.environment:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    if (program, *arguments[:1]) != ("-m", _ZYGOTE):
        _fork_server(interpreter)
    _run(program, arguments, request.ignored)


def split(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Flags of the interpreter, then -m, -c or a script, and what is behind that."""
    flags = []
    for i, word in enumerate(arguments):
        if word in ("-m", "-c") or not word.startswith("-"):
            return flags, word, list(arguments[i + 1 :])
        flags.append(word)
    raise ValueError("an interpreter without a program")


def _first_of_path(program: str, arguments: Sequence[str]) -> list[str]:
    here = {"-m": os.getcwd(), "-c": ""}
    return [here[program] if program in here else str(Path(program).resolve().parent)]


def _run(program: str, arguments: list[str], ignored: Sequence[int]) -> NoReturn:
    """Run the program to its end as an interpreter does, but for taking modules apart.

    That would copy the pages of all that was imported, and take half a second.
    """
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    code: object = 0
    interrupted = False
    try:
        _take_signals(ignored)
        if program == "-m":
            sys.argv[:] = ["-m", *arguments[1:]]
            runpy._run_module_as_main(arguments[0])  # type: ignore[attr-defined]
        elif program == "-c":
            sys.argv[:] = ["-c", *arguments[1:]]
            exec(arguments[0], vars(main))
        else:
            sys.argv[:] = [program, *arguments]
            main.__file__ = program
            exec(compile(Path(program).read_bytes(), program, "exec"), vars(main))
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        trace = error.__traceback__
        sys.excepthook(type(error), error, trace and trace.tb_next)
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, by the program or a reader
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if isinstance(code, str):
        os.write(2, f"{code}\n".encode())
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _fork_server(interpreter: Interpreter) -> None:
    """A server for what the program itself starts: forked while there is one thread."""
    from tests.warm import popen

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        # Nothing of the program's stays open here, or who reads from it waits for us.
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        keep = theirs.detach()
        os.dup2(0, 1)
        os.dup2(0, 2)
        _close_all_but({0, 1, 2, keep})
        _take_signals([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        serve(socket.socket(fileno=keep), interpreter)
    theirs.close()
    popen.install(popen.Server(ours, interpreter.loaded))


def _take_descriptors(fds: Sequence[int], numbers: Sequence[int]) -> None:
    beyond = max([*fds, *numbers]) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, beyond) for fd in fds]
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number)
    _close_all_but(set(numbers))


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _take_signals(ignored: Sequence[int]) -> None:
    """As an interpreter has them that was started by one which ignores some."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number in ignored or number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        elif number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        else:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _take_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # what is imported may have looked already, by another TMPDIR
    # Fields of /proc/PID/stat behind the name: env_start and env_end are 50 and 51 of all.
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[50 - 3]), int(fields[51 - 3])
    block = b"".join(f"{name}={value}\0".encode() for name, value in environment.items())
    if len(block) > end - start:
        raise ValueError(f"an environment of {len(block)} bytes: at most {end - start}")
    ctypes.memmove(start, block.ljust(end - start, b"\0"), end - start)


def _open_streams(unbuffered: bool) -> None:
    """New ones: those of the server may be of another kind, a file or a terminal."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        mode = "rb" if fd == 0 else "wb"
        # Open as long as the program.
        raw = open(fd, mode, buffering=0 if unbuffered and fd else -1, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            raw,
            encoding=getattr(sys, name).encoding,
            errors=getattr(sys, name).errors,
            line_buffering=fd == 2 or os.isatty(fd),
            write_through=unbuffered and fd > 0,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
