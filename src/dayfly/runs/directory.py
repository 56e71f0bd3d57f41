"""A run's directory: how it is made, and the lock of who runs what is in it.

One that dayfly makes is its user's alone (mode 0700). One that is there already, and empty, keeps
its mode, and what is written into it follows the umask.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path

from dayfly import owned
from dayfly.errors import RequestError, refuse_control_characters
from dayfly.wire.stores.base import StoreError

#: The file that makes a directory a run's: `dayfly.runs.record` says what it holds.
RECORD = "run.json"
#: Of a run by a plan: what really runs, see `runs.planned`.
PLAN = "plan.json"
#: Held by the process that runs what is in the directory.
LOCK = "lock"
#: Says that a directory was empty when dayfly began to prepare a run in it.
MARKER = owned.MARKER
_PREPARING = "a run that is being prepared"
#: What dayfly may have written before the directory is a run's.
_BEFORE_IT_RUNS = (
    *(MARKER, LOCK, "logs", "job", "data", "checkpoint", "events", "faults", "files", "private"),
    *("rendezvous", PLAN, "history.json", "bill.json", RECORD, "*.json.*.tmp"),
    *("weights.safetensors", ".weights.safetensors.tmp"),
)
#: What dayfly writes there beside, while the run goes on and afterwards.
_LATER = (
    *("best.safetensors", "ema.safetensors", "kept", ".*.tmp", "control", "decisions"),
    *("files.json", "evaluations", "report.html", "report-priced.html"),
    *("log.csv", "log.jsonl", "tensorboard", "wandb"),
)


def new_run_id(name: str) -> str:
    """A name that no other run has: what is run, when, and four random digits."""
    word = "".join(letter if letter.isalnum() else "-" for letter in name.lower())[:24].strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return f"{word or 'job'}-{stamp}-{secrets.token_hex(2)}"


@contextmanager
def fresh_directory(directory: Path) -> Iterator[None]:
    """Makes a run's directory and holds its lock; what is no run in the end leaves nothing.

    Until the directory is a run's, a marker in it says that all in it is dayfly's: if the process
    is killed, the next one begins there anew.

        mkdir | marker | lock | what a killed one left goes | job, data, checkpoint | run.json
        ----------------------- nothing had begun -----------------------------------|--- a run

    Raises RequestError if there is something else in it, or another process has it.
    """
    refuse_control_characters("run directory", str(directory))
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        _make_directory(directory, made)
        with locked(directory):
            _refuse_if_taken(directory)  # by another one, before the lock was ours
            _unmake(directory, [], keep=(LOCK, MARKER))
            try:
                yield
            except RequestError:
                _unmake(directory, made)
                raise
            is_a_run_now(directory)
    except RequestError:
        raise
    except BaseException:  # a signal may come at any line, also before the lock is ours
        if _says(directory / MARKER) == _PREPARING:
            with suppress(RequestError, OSError), locked(directory):
                if not (directory / RECORD).exists():
                    _unmake(directory, made)
        _remove_empty(made)
        raise


def is_a_run_now(directory: Path) -> None:
    """Removes the marker, once the directory has its record."""
    (directory / MARKER).unlink(missing_ok=True)


def no_run(directory: Path) -> RequestError:
    """What to raise for a directory without a record of a run."""
    text = f"{str(directory)!r} holds no run: "
    if _says(directory / MARKER) == _PREPARING:
        return RequestError(
            f"{text}the command that was to begin it ended before anything had begun: give that "
            "command again"
        )
    return RequestError(f"{text}it has no {RECORD}")


def _unmake(directory: Path, made: Sequence[Path], keep: Collection[str] = ()) -> None:
    """Removes what was written into a directory, and those of the directories `made`.

    A file that somebody else put there meanwhile stays, and so does the directory with it. keep:
    names of files that stay, too.
    """
    with owned.opened(directory.resolve()) as fd:
        if fd is not None:
            # The marker goes last: if this is killed, the next one goes on with it.
            for name in sorted(os.listdir(fd), key=MARKER.__eq__):
                if is_ours(name) and name not in keep:
                    owned.remove_entry(name, fd)
    _remove_empty(made)


def _remove_empty(made: Sequence[Path]) -> None:
    for path in made:
        with suppress(OSError):
            path.rmdir()


def is_ours(name: str, *, of_a_run: bool = False) -> bool:
    """Whether dayfly writes files of this name into a run's directory.

    Args:
        name: of an entry of the directory.
        of_a_run: at any time of a run's; otherwise before its record is there.
    """
    patterns = _BEFORE_IT_RUNS + (_LATER if of_a_run else ())
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _make_directory(directory: Path, made: Sequence[Path]) -> None:
    """Makes a directory with its marker; one that gets none, as on a full disk, leaves nothing.

    made: the directory and those of its parents that are not there yet.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        _refuse_if_taken(directory)
        if _says(directory / MARKER) != _PREPARING:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(directory / MARKER, flags, 0o600), "w") as file:
                    file.write(_PREPARING)
            except OSError:
                _unmake(directory, made)
                raise
    except OSError as error:
        raise _unfit(directory, error) from error


def _refuse_if_taken(directory: Path) -> None:
    """Raise RequestError if there is anything in a directory but what a killed command left."""
    names = set(os.listdir(directory))
    left = _says(directory / MARKER) if MARKER in names else ""
    if left == _PREPARING:
        taken = RECORD in names or not all(map(is_ours, names))
    else:  # it was killed while it wrote the marker, or before that
        taken = bool(left) or not names <= {MARKER}
    if taken:
        raise RequestError(
            f"run directory {str(directory)!r} is not empty: name another one, or continue the run "
            f"in it with --resume {directory}"
        )


def _says(marker: Path) -> str:
    """What a marker says; nothing if it cannot be read."""
    try:
        with open(os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
            return file.read(len(_PREPARING) + 1)
    except (OSError, UnicodeDecodeError):
        return ""


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


#: How often the lock is asked for, and for how long, in seconds, `holder` may have it meanwhile.
_TRIES, _LOOK_S = 5, 0.02


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the run for this process. Raises RequestError if another one runs it, or it cannot be.

    The kernel lets go of the lock with the process, however that ends.
    """
    with _opened_lock(directory) as file:
        for _ in range(_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_LOOK_S)
        else:
            file.seek(0)
            holder = file.read().decode(errors="replace").strip()
            raise RequestError(f"run {str(directory)!r} is being run by process {holder}") from None
        try:
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        except OSError as error:
            raise _unfit(directory, error) from error
        yield


def holder(directory: Path) -> str | None:
    """The process that runs what is in a directory; None: no process does."""
    try:
        with (directory / LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        pass
    return None


def _opened_lock(directory: Path) -> FileIO:
    try:
        return FileIO(directory / LOCK, "a+")
    except OSError as error:
        raise _unfit(directory, error) from error
