"""Durable objects by name: the job, its data and its checkpoints, which outlive every message.

Where a channel carries messages for seconds, a store keeps objects for the run and after it.
Names are relative, of letters, digits, `.`, `_`, `-` and `/`; they never leave the store's root.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from dayfly.errors import DayflyError, wrong_url

_UNFINISHED = re.compile(r".+\.[0-9a-f]{32}\.tmp")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")


class StoreError(DayflyError):
    """An object is missing or cannot be written; the message names it and its place."""


class FileStore:
    """Objects as files under one directory. Writes are atomic and reach the disk (fsync).

    The first write makes the directory. Once that is there it is not made anew: if somebody removes
    it every write fails, and so it does where another one, with another inode, is in its place.

    Args:
        root: the directory.
        home: a directory above it that is not made anew either; None: the root itself.
    """

    def __init__(self, root: Path, home: Home | None = None) -> None:
        self.root = root
        self.home = Home(root) if home is None else home

    @property
    def url(self) -> str:
        """What `open_store` takes to open the same store elsewhere."""
        return f"file://{self.root}"

    def path(self, name: str) -> Path:
        """Where an object is. Raises ValueError for a name that is none."""
        if not _NAME.fullmatch(name) or len(name) > 255:
            raise ValueError(f"{name!r} is no name of an object")
        return self.root / name

    def below(self, folder: str) -> FileStore:
        """The store of the objects below a folder."""
        return FileStore(self.path(folder), self.home)

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Store an object, in place of an earlier one of the name."""
        self.put_stream(name, lambda file: file.write(data))

    def put_stream(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        """As `put`, for an object that `write` writes piece by piece."""
        final = self.path(name)
        os.replace(self._write(name, write), final)
        # The new name, too, is to survive a loss of power.
        directory = os.open(final.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def put_new(self, name: str, data: bytes) -> bool:
        """Store an object unless the name is taken; whether it was stored."""
        temporary = self._write(name, lambda file: file.write(data))
        try:
            os.link(temporary, self.path(name))
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def get(self, name: str) -> bytes:
        """A whole object. Raises StoreError if it is not there."""
        try:
            return self.path(name).read_bytes()
        except OSError as error:
            raise self._cannot_read(name, error) from error

    def read_into(self, name: str, *places: tuple[int, memoryview]) -> None:
        """Read parts of an object: from each offset on, filling the memory beside it.

        Raises StoreError if the object is shorter.
        """
        try:
            with open(self.path(name), "rb", buffering=0) as file:
                for offset, into in places:
                    done = 0
                    while done < into.nbytes:
                        rest = into[done:] if done else into
                        read = os.preadv(file.fileno(), [rest], offset + done)
                        if read == 0:
                            at = offset + done
                            raise StoreError(f"{name} in {self.root} ends before byte {at}")
                        done += read
        except OSError as error:
            raise self._cannot_read(name, error) from error

    def exists(self, name: str) -> bool:
        """Whether the object is there."""
        return self.path(name).exists()

    def size_bytes(self, name: str) -> int:
        """How long an object is. Raises StoreError if it is not there."""
        try:
            return self.path(name).stat().st_size
        except OSError as error:
            raise self._cannot_read(name, error) from error

    def delete(self, name: str) -> None:
        """Remove an object, or all objects below a folder; a missing one is passed over."""
        path = self.path(name)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def discard_unfinished(self) -> None:
        """Remove what killed writers left of objects, at the root and in its folders.

        To be called while nobody writes.
        """
        for pattern in ("*.tmp", "*/*.tmp"):
            for path in self.root.glob(pattern):
                if _UNFINISHED.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """Names of the objects and folders right below a folder, sorted."""
        path = self.path(folder)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    def _cannot_read(self, name: str, error: OSError) -> StoreError:
        if isinstance(error, FileNotFoundError):
            return StoreError(f"{name} is not in {self.root}")
        return StoreError(f"{name} in {self.root} cannot be read: {error.strerror or error}")

    def _write(self, name: str, write: Callable[[BinaryIO], object]) -> Path:
        final = self.path(name)
        temporary = final.with_name(f"{final.name}.{uuid.uuid4().hex}.tmp")
        try:
            self.home.make(final.parent)
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self.home.check()
            raise cannot_write(final, error) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


class Home:
    """A directory that stays the same one, as long as this object lives."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = self._now()

    def check(self) -> None:
        """Raises StoreError if the directory was there and is not any more."""
        now = self._now()
        if self._known is None:
            self._known = now
        elif now != self._known:
            what = "was removed" if now is None else "was replaced by another"
            raise StoreError(f"directory {str(self._directory)!r} {what} while it was in use")

    def make(self, folder: Path, mode: int = 0o777) -> None:
        """Makes a folder in the directory, with those above it. Raises StoreError as `check`."""
        self.check()
        if self._known is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._known = self._now()
        here = self._directory
        for part in folder.relative_to(here).parts:
            here = here / part
            here.mkdir(mode, exist_ok=True)

    def _now(self) -> tuple[int, int] | None:
        """What the kernel knows the directory by; None: it is not there."""
        try:
            status = self._directory.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino


def cannot_write(path: Path, error: OSError) -> StoreError:
    """What to raise for a file that cannot be written, with a remedy if the disk is full."""
    text = f"cannot write {path}: {error.strerror or error}"
    if error.errno in (None, errno.ENOSPC, errno.EDQUOT):  # None: of numpy, on a full disk
        text += f": make room in {path.parent}"
    return StoreError(text)


def open_store(url: str) -> FileStore:
    """The store at a URL: `file:///path`. Raises RequestError for one that is not known."""
    scheme, separator, path = url.partition("://")
    if scheme != "file" or not separator or not path.startswith("/"):
        raise wrong_url("store", url, "only file:///absolute/path is known")
    return FileStore(Path(path))
