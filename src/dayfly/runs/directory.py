"""A run's directory: how it is made, and the lock of who runs what is in it.

One that dayfly makes is its user's alone (mode 0700). One that is there already, and empty, keeps
its mode, and what is written into it follows the umask.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path

from dayfly import owned
from dayfly.errors import RequestError, refuse_control_characters
from dayfly.wire.store import StoreError

#: The file that makes a directory a run's: `dayfly.runs.record` says what it holds.
RECORD = "run.json"
#: What dayfly may have written before the directory is a run's.
_BEFORE_IT_RUNS = (
    *("lock", "logs", "job", "data", "checkpoint", "events", "faults", "files", "private"),
    *("rendezvous", "plan.json", RECORD, f"{RECORD}.*.tmp", "plan.json.*.tmp"),
)


def new_run_id(name: str) -> str:
    """A name that no other run has: what is run, when, and four random digits."""
    word = "".join(letter if letter.isalnum() else "-" for letter in name.lower())[:24].strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return f"{word or 'job'}-{stamp}-{secrets.token_hex(2)}"


@contextmanager
def fresh_directory(directory: Path) -> Iterator[None]:
    """Make a run's directory; what is refused, or stopped before it is a run, leaves nothing.

    Raises RequestError if there is something in it.
    """
    refuse_control_characters("run directory", str(directory))
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    _make_directory(directory)
    try:
        yield
    except BaseException as error:
        if isinstance(error, RequestError) or not (directory / RECORD).exists():
            _unmake(directory, made)
        raise


def _unmake(directory: Path, made: Sequence[Path]) -> None:
    """Removes what was written into a directory, and those of the directories `made`.

    A file that somebody else put there meanwhile stays, and so does the directory with it.
    """
    with owned.opened(directory.resolve()) as fd:
        if fd is not None:
            for name in os.listdir(fd):
                if any(fnmatchcase(name, pattern) for pattern in _BEFORE_IT_RUNS):
                    owned.remove_entry(name, fd)
    for path in made:
        with suppress(OSError):
            path.rmdir()


def _make_directory(directory: Path) -> None:
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        taken = any(directory.iterdir())
    except OSError as error:
        raise _unfit(directory, error) from error
    if taken:
        raise RequestError(
            f"run directory {str(directory)!r} is not empty: name another one, or continue the run "
            f"in it with --resume {directory}"
        )


@contextmanager
def being_prepared(directory: Path) -> Iterator[None]:
    """Write into a run's directory before anything is started.

    Raises RequestError if that cannot be, such as on a full disk.
    """
    try:
        yield
    except StoreError as error:
        raise RequestError(f"run directory {str(directory)!r}: {error}") from error
    except OSError as error:
        named = error.filename
        if not isinstance(named, (str, Path)) or directory not in Path(named).parents:
            raise
        raise _unfit(directory, error) from error


def _unfit(directory: Path, error: OSError) -> RequestError:
    return RequestError(
        f"run directory {str(directory)!r}: {error.strerror}: make it one that can be written, "
        "with room on its disk, or name another one"
    )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the run for this process. Raises RequestError if another one runs it, or it cannot be.

    The kernel lets go of the lock with the process, however that ends.
    """
    with _opened_lock(directory) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().decode().strip()
            raise RequestError(f"run {str(directory)!r} is being run by process {holder}") from None
        try:
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        except OSError as error:
            raise _unfit(directory, error) from error
        yield


def _opened_lock(directory: Path) -> FileIO:
    try:
        return FileIO(directory / "lock", "a+")
    except OSError as error:
        raise _unfit(directory, error) from error
