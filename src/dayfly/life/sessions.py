"""What one coordinator process owns on this machine, and how it is cleaned up after a kill -9.

A session is a directory `<base>/dayfly-<uid>/<id>/`:

    lock       held by flock as long as the coordinator lives; the kernel lets go, whatever happens
    record     JSON, one object a line: cgroups, and directories elsewhere, each before it is made
    …          whatever other parts put there, such as the messages of a file channel

A cgroup is removed if its name holds the session's id, a directory elsewhere if `owned` says that
it belongs to the owner in the record; anything else stays.

Opening a session first sweeps: a sibling whose lock can be taken has lost its coordinator. Making,
sweeping and removing happen under one lock beside the sessions (`.lock`), so a directory without a
held lock is never one that is just being made.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from dayfly import owned
from dayfly.closing import Closing
from dayfly.errors import RequestError
from dayfly.life.platforms import cgroups, processes

_ID_PATTERN = re.compile(r"[0-9a-f]{12}")
_LOCK_TIMEOUT_S = 60.0


class Session(Closing):
    """Made by `Session.open`.

    Args:
        root: a directory of its own, mode 0700, in memory if possible.
    """

    def __init__(self, root: Path, lock_fd: int, *, marked: bool) -> None:
        self.root = root
        self.id = root.name
        self._lock_fd = lock_fd
        self._marked = marked
        self._owner_pid = os.getpid()
        _open_sessions.add(self)

    @classmethod
    def open(cls, base: Path | None = None, session_id: str | None = None) -> Self:
        """Sweep what killed coordinators left behind, then start a session.

        Args:
            base: None means /dev/shm if it can be written to, else the directory for temporary
                files.
            session_id: by which processes are marked already; None: a new one.

        Raises:
            RequestError: `<base>/dayfly-<uid>` is not a directory of ours, or cannot be made.
        """
        home = _home(base if base is not None else _default_base())
        with _home_lock(home):
            for sibling in home.iterdir():
                if _ID_PATTERN.fullmatch(sibling.name):
                    _sweep(sibling)
            root = home / (session_id or cls.new_id())
            root.mkdir(mode=0o700)
            lock_fd = _try_lock(root / "lock")
            assert lock_fd is not None, f"{root} is new, and {home} is locked by us"
            return cls(root, lock_fd, marked=session_id is not None)

    @staticmethod
    def new_id() -> str:
        """Returns an id that no other session has."""
        return secrets.token_hex(6)

    @property
    def base(self) -> Path:
        """Where it is, as `open` takes it."""
        return self.root.parent.parent

    def mark(self, name: str) -> dict[str, str]:
        """Returns the variable that marks a process, and what it starts, as the session's own.

        They end with the session.

        Args:
            name: of what is started, in words for people.
        """
        self._marked = True
        return {processes.MARK_VARIABLE: f"{self.id}.{name}"}

    def record_cgroup(self, path: Path) -> None:
        """Remember a cgroup that is about to be made; its name must hold the session's id."""
        if self.id not in path.name:
            raise ValueError(f"cgroup {path}: its name must contain the session id {self.id}")
        self._record(cgroup=str(path))

    def record_directory(self, path: Path, owner: str) -> None:
        """Remember a directory elsewhere that `owned.claim` is about to make for `owner`.

        It is removed with the session.
        """
        self._record(directory=str(path.parent.resolve() / path.name), owner=owner)

    def scratch(self, name: str) -> Path:
        """Makes a directory that goes with the session, for what is too large for memory.

        Args:
            name: how the directory's own name begins; it lies where temporary files do.
        """
        made = Path(tempfile.gettempdir()).resolve() / f"{name}-{secrets.token_hex(6)}"
        self.record_directory(made, self.id)
        owned.claim(made, self.id)
        return made

    def _record(self, **fields: str) -> None:
        with (self.root / "record").open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")

    def close(self) -> None:
        """End what is left of the session's processes and cgroups; remove the directory.

        May be called twice, and does nothing in a forked child.
        """
        if self._lock_fd < 0 or os.getpid() != self._owner_pid:
            return
        with _home_lock(self.root.parent):
            _remove(self.root, marked=self._marked)
            os.close(self._lock_fd)
            self._lock_fd = -1
        _open_sessions.discard(self)

    def _let_go(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _default_base() -> Path:
    shm = Path("/dev/shm")
    writable = shm.is_dir() and os.access(shm, os.W_OK | os.X_OK)
    return shm if writable else Path(tempfile.gettempdir())


def _home(base: Path) -> Path:
    """Returns the directory of this user's sessions, `<base>/dayfly-<uid>`; makes it if needed.

    Others can write to the base, so what is there already must be a directory of this user alone.
    """
    home = base / f"dayfly-{os.geteuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        status = home.lstat()
    except OSError as error:
        raise RequestError(f"sessions cannot be kept in {home}: {error}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise RequestError(f"{home} is not a directory (a symbolic link?): remove it")
    if status.st_uid != os.geteuid():
        raise RequestError(f"{home} belongs to user {status.st_uid}: have it removed")
    if status.st_mode & 0o077:
        raise RequestError(f"{home} is open to other users: chmod 700 it, or remove it")
    return home


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock; None if somebody else does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextmanager
def _home_lock(home: Path) -> Iterator[None]:
    give_up_at = time.monotonic() + _LOCK_TIMEOUT_S
    while (fd := _try_lock(home / ".lock")) is None:
        if time.monotonic() > give_up_at:
            raise RequestError(
                f"{home / '.lock'} was not free within {_LOCK_TIMEOUT_S:.0f} s: "
                "another dayfly process is stuck while it starts or ends"
            )
        time.sleep(0.005)
    try:
        yield
    finally:
        os.close(fd)


def _sweep(root: Path) -> None:
    if not stat.S_ISDIR(root.lstat().st_mode):
        return
    lock_fd = _try_lock(root / "lock")
    if lock_fd is None:
        return
    try:
        _remove(root)
    finally:
        os.close(lock_fd)


def _remove(root: Path, *, marked: bool = True) -> None:
    """Removes all that a session had, its directory last, so that a killed sweep is repeated.

    Args:
        root: the session's directory.
        marked: whether processes may have its mark.
    """
    if marked:
        processes.kill_marked(root.name)
    stuck = False
    for made in _recorded(root / "record"):
        match made:
            case {"cgroup": str(text)} if root.name in Path(text).name:
                stuck |= not cgroups.remove(Path(text))
            case {"directory": str(text), "owner": str(owner)}:
                # A link that leads there by now was not there when the directory was made.
                if (parent := Path(text).parent).resolve() == parent:
                    owned.remove(Path(text), owner)
    if not stuck:
        shutil.rmtree(root, ignore_errors=True)


def _recorded(record: Path) -> Iterator[Any]:
    """What is in a record; not its last line if that was cut short, as its writer was killed."""
    with suppress(FileNotFoundError):
        for line in record.read_bytes().split(b"\n"):
            with suppress(ValueError):
                yield json.loads(line)


#: Sessions of this process.
_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    # A plain fork of the coordinator (multiprocessing) must not keep the lock.
    for session in list(_open_sessions):
        session._let_go()


os.register_at_fork(after_in_child=_let_go_after_fork)
