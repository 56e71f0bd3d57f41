"""subprocess.Popen of Python programs, by a fork of a server that has torch imported.

What a test starts with `subprocess` is forked from a server (server.py) if it is a script of this
interpreter, a module of dayfly, of benchmarks, of the tests or of torch, or the command `dayfly`;
what it starts with `multiprocessing`, if it is a process of the context `spawn` or the server of
`forkserver`. So are the processes in which pytest-xdist runs the tests. All else is started as
ever, also what is given with -c, mostly to see what is imported. So is what begins under `cold()`,
which `@pytest.mark.cold` holds for a whole test: where the interpreter's start or exact memory are
the point.

Variables that libraries read while they are loaded must be equal in server and program; those that
say how many threads, which instruction sets or which allocator may be missing, as nothing depends
on it in a program that does not set them.
"""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dayfly
from dayfly.life.environment import AT_LOAD, library_settings
from dayfly.life.platforms.processes import Subreaper
from tests.warm.server import MOST_BYTES, ROOM, ROOM_BYTES, Request, split

_ROOT = Path(__file__).parents[2]
#: As it is now: tests put other programs in its place.
_PYTHON = sys.executable
_DAYFLY = Path(_PYTHON).with_name("dayfly")
_START_S = 120.0
_ANSWER_S = 30.0

#: Torch asks for its own variables whenever it needs them.
_AT_LOAD = tuple(name for name in AT_LOAD if name not in ("PYTORCH_", "TORCH_"))
_FREE = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_MAY_MISS = (
    "ATEN_",
    "GLIBC_",
    "MKL_",
    "NUMEXPR_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "VECLIB_",
)
#: Others, as linters and servers, have no use for what is imported.
_MODULES = ("benchmarks.", "dayfly.", "tests.", "torch.")
_KNOWN_FLAGS = {"-P", "-u", "-B"}
#: Beginnings of the code that multiprocessing gives with -c.
_PROCESSES = ("from multiprocessing.spawn import", "from multiprocessing.forkserver import")
#: All of the code that pytest-xdist gives with -c, by execnet.
_TESTS = "import sys;exec(eval(sys.stdin.readline()))"

_execute_cold = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_spawn_cold = multiprocessing.util.spawnv_passfds  # type: ignore[attr-defined]
_signature = inspect.signature(_execute_cold)
_lock = threading.Lock()


class Server:
    """The requester's end of a server; one process's own, which its forks do not use.

    loaded: the variables that were read at load there.
    """

    def __init__(
        self,
        connection: socket.socket,
        loaded: Mapping[str, str],
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.owner = os.getpid()
        self._connection = connection
        self._connection.settimeout(_START_S)
        self._loaded = loaded
        self._process = process
        self._ready = False

    @classmethod
    def start(cls, loaded: Mapping[str, str], more: Sequence[str] = ()) -> Server:
        """A new one, with these variables at load; it imports beside what its owner does.

        more: modules that it imports beside those that it always does.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        dropped = {*at_load(os.environ), "PYTHONPATH"}
        environment = {name: value for name, value in os.environ.items() if name not in dropped}
        house = str(Path(dayfly.__file__).parents[1])  # this process's, of which there may be more
        code = (
            f"import sys; path = list(sys.path); sys.path[:0] = [{str(_ROOT)!r}, {house!r}]; "
            f"from tests.warm import server; server.main({theirs.fileno()}, path, {tuple(more)!r})"
        )
        with theirs, cold():
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                cwd=_ROOT,
                env={**environment, **loaded, ROOM: "x" * ROOM_BYTES},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return cls(ours, loaded, process)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether libraries would have read in a program's environment what the server's did."""
        theirs = at_load(environment)
        missing = self._loaded.keys() - theirs.keys()
        return all(name.startswith(_MAY_MISS) for name in missing) and all(
            self._loaded.get(name) == value for name, value in theirs.items()
        )

    def fork(self, request: Request, fds: Sequence[int]) -> int:
        """The pid of the program, which is a child of this process."""
        if not self._ready:
            self._answer()
            self._connection.settimeout(_ANSWER_S)
            self._ready = True
        Subreaper.hold()
        try:
            socket.send_fds(self._connection, [request.dump()], fds)
            return int(self._answer())
        finally:
            Subreaper.release()

    def _answer(self) -> bytes:
        answer = self._connection.recv(MOST_BYTES)
        if not answer:
            raise EOFError("the server of warm programs has ended: its output says why")
        return answer


def at_load(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are read before a program's first line."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_AT_LOAD) and name not in _FREE
    }


#: How many servers a process may start: as many different sets of variables at load.
_MOST_SERVERS = 2
_servers: list[Server] = []
#: What servers import beside what they always do.
_more: Sequence[str] = ()
_cold = threading.local()


@contextlib.contextmanager
def cold() -> Iterator[None]:
    """Programs that this thread starts meanwhile are started as ever."""
    before = getattr(_cold, "depth", 0)
    _cold.depth = before + 1
    try:
        yield
    finally:
        _cold.depth = before


def install(*servers: Server, more: Sequence[str] = ()) -> None:
    """Programs of this process are forked where they can be.

    Args:
        servers: that are there already; none: those of before, if any.
        more: modules that servers which are started from now on import, too.
    """
    global _more
    if servers:
        _servers[:] = servers
    _more = more
    subprocess.Popen._execute_child = _execute  # type: ignore[attr-defined]
    multiprocessing.util.spawnv_passfds = _spawn  # type: ignore[attr-defined]


def _execute(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
    """In place of Popen's method, with its parameters, some of which depend on Python's version."""
    given = _signature.bind(process, *args, **kwargs).arguments
    words = _words(given)
    environment = dict(os.environ if given["env"] is None else given["env"])
    ends = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
    fds = [standard if end == -1 else end for standard, end in enumerate(ends)]
    cwd = os.path.abspath(given["cwd"] or os.getcwd())
    passed, session = given["pass_fds"], bool(given["start_new_session"])
    pid = words and _forked(words, environment, fds, passed, cwd=cwd, new_session=session)
    if not pid:
        _execute_cold(process, *args, **kwargs)
        return
    process.pid = pid
    process._child_created = True  # type: ignore[attr-defined]
    names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    process._close_pipe_fds(*(given[name] for name in names))  # type: ignore[attr-defined]


def _spawn(path: str | bytes, args: Sequence[str | bytes], passfds: Sequence[int]) -> int:
    """In place of multiprocessing's function: the pid of a process of `spawn`, or of a server."""
    first, *words = map(os.fsdecode, args)
    if not getattr(_cold, "depth", 0) and first == _PYTHON and _of_multiprocessing(words):
        pid = _forked(words, dict(os.environ), (0, 1, 2), passfds, cwd=os.getcwd())
        if pid is not None:
            return pid
    found: int = _spawn_cold(path, args, passfds)
    return found


def _forked(
    words: Sequence[str],
    environment: Mapping[str, str],
    standard: Sequence[int],
    passed: Sequence[int],
    *,
    cwd: str,
    new_session: bool = False,
) -> int | None:
    """The pid of a program that a server has forked; None if there is no server for it."""
    with _lock:
        server = _server(environment)
        if server is None:
            return None
        request = Request(
            arguments=words,
            environment=environment,
            cwd=cwd,
            fds=[0, 1, 2, *passed],
            ignored=[s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN],
            umask=_umask(),
            new_session=new_session,
        )
        return server.fork(request, [*standard, *passed])


def _of_multiprocessing(words: Sequence[str]) -> bool:
    """Whether words behind the interpreter begin what multiprocessing starts."""
    try:
        flags, program, behind = split(words)
    except ValueError:
        return False
    return set(flags) <= _KNOWN_FLAGS and program == "-c" and behind[0].startswith(_PROCESSES)


def _words(given: Mapping[str, Any]) -> list[str] | None:
    """What is behind the interpreter; None of a program that is to be started as ever."""
    if getattr(_cold, "depth", 0) or isinstance(given["args"], (str, bytes, os.PathLike)):
        return None
    first, *words = map(os.fsdecode, given["args"])
    unusual = [given[name] for name in ("executable", "preexec_fn", "shell", "gid", "gids", "uid")]
    if first == str(_DAYFLY):
        words = [first, *words]
    elif first != _PYTHON:
        return None
    if not words or any(unusual) or given["umask"] != -1 or given.get("process_group", -1) != -1:
        return None
    try:
        flags, program, behind = split(words)
    except ValueError:
        return None
    known = set(flags) <= _KNOWN_FLAGS and (program != "-c" or behind == [_TESTS])
    known = known and (program != "-m" or behind[0].startswith(_MODULES))
    return words if known and os.path.isdir(given["cwd"] or ".") else None


def _server(environment: Mapping[str, str]) -> Server | None:
    """A server that fits; a new one, if none does and there may be another."""
    own = [server for server in _servers if server.owner == os.getpid()]
    for server in own:
        if server.fits(environment):
            return server
    if len(own) < len(_servers) or len(own) == _MOST_SERVERS:
        return None
    fresh = Server.start(at_load({**library_settings({}), **environment}), _more)
    _servers.append(fresh)
    return fresh


def _umask() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    raise OSError("no Umask in /proc/self/status")
