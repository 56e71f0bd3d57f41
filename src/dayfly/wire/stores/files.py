"""Objects as files below a directory of this machine.

    root/checkpoint/latest.json                       an object
    root/checkpoint/latest.json.0a1b...32.tmp         one that is being written
    root/checkpoint/.lock                             held while objects are compared and replaced

A put writes beside the object, brings that to the disk (fsync), and gives it the name: by `rename`
if it replaces, by `link` if it must be new. `put_if` compares under a lock of the folder (flock),
which the kernel lets go of with the process that held it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dayfly.errors import refuse_control_characters, wrong_url
from dayfly.wire.outages import Traffic
from dayfly.wire.stores.base import (
    UNFINISHED,
    Buffer,
    ObjectInfo,
    Pieces,
    Store,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreUnreachable,
    Version,
    check_name,
    check_names,
    ends_early,
    missing,
    size_of,
)

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
#: Without a number: numpy's error on a full disk.
_FULL = (None, errno.ENOSPC, errno.EDQUOT)
_LOCK = ".lock"


class FileStore(Store):
    """Objects as files under one directory. Writes are atomic and reach the disk (fsync).

    The first write makes the directory. Once that is there it is not made anew: if somebody removes
    it every write fails, and so it does where another one, with another inode, is in its place.

    Args:
        root: the directory.
        home: a directory above it that is not made anew either; None: the root itself.
        private: whether folders are made for this user alone.
        traffic: where it counts; None: counters of its own.
    """

    def __init__(
        self,
        root: Path,
        home: StoreDirectory | None = None,
        *,
        private: bool = False,
        traffic: Traffic | None = None,
    ) -> None:
        self.root = root
        self.url = f"file://{root}"
        self.traffic = Traffic() if traffic is None else traffic
        self._home = StoreDirectory(root) if home is None else home
        self._mode = 0o700 if private else 0o777

    def __str__(self) -> str:
        return str(self.root)

    def path(self, name: str) -> Path:
        """Returns the file of an object. Raises ValueError for a name that is none."""
        return self.root / check_name(name)

    def below(self, prefix: str, *, private: bool = False) -> FileStore:
        private = private or self._mode == 0o700
        return FileStore(self.path(prefix), self._home, private=private, traffic=self.traffic)

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        final = self.path(name)
        temporary, version = self._write(final, data)
        with self._writing(final, temporary):
            os.replace(temporary, final)
            _sync(final.parent)
        self.traffic.count(up=size_of(data))
        return version

    def put_new(self, name: str, data: Buffer) -> Version | None:
        final = self.path(name)
        temporary, version = self._write(final, data)
        with self._writing(final, temporary):
            try:
                os.link(temporary, final)
            except FileExistsError:
                self.traffic.count(up=0)
                return None
            _sync(final.parent)
        self.traffic.count(up=size_of(data))
        return version

    def put_if(self, name: str, data: Buffer, version: Version) -> Version | None:
        """As of `Store`.

        Callers on this machine take turns by a lock of the folder, which `put` and `delete` do not
        take.
        """
        final = self.path(name)
        if self._status(name) is None:  # and no folder is made for it
            self.traffic.count(up=0)
            return None
        temporary, _ = self._write(final, data)
        with self._writing(final, temporary), _locked(final.parent):
            before = self._status(name)
            if before is None or _version(before) != version:
                self.traffic.count(up=0)
                return None
            # A later version has a later time, though clocks go back and inodes come again.
            now_ns = max(time.time_ns(), before.st_mtime_ns + 1)
            os.utime(temporary, ns=(now_ns, now_ns))
            written = _version(temporary.stat())
            os.replace(temporary, final)
            _sync(final.parent)
        self.traffic.count(up=size_of(data))
        return written

    def get_versioned(self, name: str) -> tuple[bytes, Version]:
        with self._reading(name), open(self.path(name), "rb", buffering=0) as file:
            data = file.readall()
            version = _version(os.fstat(file.fileno()))
        self.traffic.count(down=len(data))
        return data, version

    def read_into(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        with self._reading(name), open(self.path(name), "rb", buffering=0) as file:
            for offset, into in ranges:
                done = 0
                while done < into.nbytes:
                    rest = into[done:] if done else into
                    read = os.preadv(file.fileno(), [rest], offset + done)
                    if read == 0:
                        raise ends_early(name, self, offset + done)
                    done += read
        self.traffic.count(down=sum(into.nbytes for _, into in ranges))

    def stat(self, name: str) -> ObjectInfo | None:
        status = self._status(name)
        self.traffic.count()
        return None if status is None else ObjectInfo(name, status.st_size, _version(status))

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        folder = self._folder(prefix)
        self.traffic.count()
        return self._below(folder, f"{prefix}/" if prefix else "", after)

    def folders(self, prefix: str = "") -> Iterator[str]:
        folder, below = self._folder(prefix), f"{prefix}/" if prefix else ""
        self.traffic.count()
        for key, entry in self._entries(folder):
            name = f"{below}{key}"
            if key.endswith("/") and next(self._below(Path(entry), name, ""), None) is not None:
                yield name[:-1]

    def delete(self, names: Iterable[str]) -> None:
        for name in check_names(names):
            try:
                self.path(name).unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                raise cannot_write(self.path(name), error, "remove") from error
        self.traffic.count()

    def clear(self, prefix: str = "") -> None:
        folder = self._folder(prefix)
        if folder == self._home.directory:
            super().clear(prefix)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def discard_unfinished(self) -> None:
        for pattern in ("*.tmp", "*/*.tmp"):
            for path in self.root.glob(pattern):
                if UNFINISHED.fullmatch(path.name):
                    path.unlink(missing_ok=True)
                    if path.parent != self.root:
                        with suppress(OSError):  # there is more in it
                            path.parent.rmdir()

    def _folder(self, prefix: str) -> Path:
        return self.path(prefix) if prefix else self.root

    def _entries(self, folder: Path) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """What is right in a folder, sorted as whole names are: a folder's ends with a slash."""
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _cannot_read(str(folder), error) from error
        named = [
            (f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name, entry)
            for entry in found
            if entry.name[0] not in ".-" and not UNFINISHED.fullmatch(entry.name)
        ]
        return sorted(named, key=lambda pair: pair[0])

    def _below(self, folder: Path, below: str, after: str) -> Iterator[ObjectInfo]:
        """The objects in a folder of the name `below`, without those up to `after`."""
        for key, entry in self._entries(folder):
            name = f"{below}{key}"
            if key.endswith("/"):
                if name > after or after.startswith(name):
                    yield from self._below(Path(entry), name, after)
            elif name > after:
                try:
                    status = entry.stat()
                except FileNotFoundError:  # it was removed meanwhile
                    continue
                yield ObjectInfo(name, status.st_size, _version(status))

    def _status(self, name: str) -> os.stat_result | None:
        path = self.path(name)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _cannot_read(f"{name} in {self}", error) from error
        return None if path.is_dir() else status

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise missing(name, self) from error
        except OSError as error:
            raise _cannot_read(f"{name} in {self}", error) from error

    def _write(self, final: Path, data: Buffer | Pieces) -> tuple[Path, Version]:
        """Writes a file beside the object's, which the caller gives the name or removes."""
        temporary = final.with_name(f"{final.name}.{uuid.uuid4().hex}.tmp")
        now_ns = time.time_ns()
        try:
            self._home.make(final.parent, self._mode)
            with open(temporary, "xb") as file:
                for piece in data.make() if isinstance(data, Pieces) else (data,):
                    file.write(piece)
                if file.tell() != size_of(data):
                    raise ValueError(f"{final.name}: {file.tell()} bytes came, not {size_of(data)}")
                file.flush()
                # The kernel's own time is that of its last tick, which several writes may share.
                os.utime(file.fileno(), ns=(now_ns, now_ns))
                os.fsync(file.fileno())
                version = _version(os.fstat(file.fileno()))
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._home.check()
            raise cannot_write(final, error) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary, version

    @contextmanager
    def _writing(self, final: Path, temporary: Path) -> Iterator[None]:
        """What is left of the temporary file goes in the end; errors are the object's."""
        try:
            yield
        except OSError as error:
            raise cannot_write(final, error) from error
        finally:
            temporary.unlink(missing_ok=True)


class StoreDirectory:
    """A directory that stays the same one, as long as this object lives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known = self._now()

    def check(self) -> None:
        """Raises StoreUnreachable if the directory was there and is not any more."""
        known = self._known  # before looking: another thread may make it meanwhile
        now = self._now()
        if known is None:
            self._known = now or self._known
        elif now != known:
            what = "was removed" if now is None else "was replaced by another"
            raise StoreUnreachable(
                f"directory {str(self.directory)!r} {what} while it was in use: put it back"
            )

    def make(self, folder: Path, mode: int = 0o777) -> None:
        """Makes a folder in the directory, with those above it. Raises as `check` does."""
        self.check()
        if self._known is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._known = self._now()
        here = self.directory
        for part in folder.relative_to(here).parts:
            here = here / part
            here.mkdir(mode, exist_ok=True)

    def _now(self) -> tuple[int, int] | None:
        """What the kernel knows the directory by; None: it is not there."""
        try:
            status = self.directory.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _cannot_read(f"directory {str(self.directory)!r}", error) from error
        return status.st_dev, status.st_ino


def open_files(url: str) -> FileStore:
    """Returns the store at `file:///path`. Raises RequestError for another URL."""
    path = url.removeprefix("file://")
    if path == url or not path.startswith("/"):
        raise wrong_url("store", url, "give an absolute path, as in file:///path")
    refuse_control_characters("store", url)
    return FileStore(Path(path))


def cannot_write(path: Path, error: OSError, what: str = "write") -> StoreError:
    """Returns the error for a file that cannot be written, with a remedy if there is one."""
    text = f"cannot {what} {path}: {error.strerror or error}"
    if error.errno in _FULL:
        return StoreFull(f"{text}: make room in {path.parent}")
    if error.errno in _DENIED:
        return StoreDenied(f"{text}: let this user write in {path.parent}, or name another place")
    return StoreError(text)


def _cannot_read(what: str, error: OSError) -> StoreError:
    text = f"{what} cannot be read: {error.strerror or error}"
    if error.errno in _DENIED:
        return StoreDenied(f"{text}: let this user read it")
    return StoreError(text)


def _version(status: os.stat_result) -> Version:
    return Version(f"{status.st_mtime_ns:x}.{status.st_ino:x}.{status.st_size:x}")


def _sync(folder: Path) -> None:
    """Brings the names in a folder to the disk: they, too, are to survive a loss of power."""
    directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, against all threads and processes of this machine."""
    path = folder / _LOCK
    while True:
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                there = path.stat().st_ino
            except FileNotFoundError:
                there = 0
            if there == os.fstat(file.fileno()).st_ino:
                yield
                return
            # Whoever cleared the folder meanwhile removed the file that was locked.
