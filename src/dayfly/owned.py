"""Directories that dayfly made and may remove: a marker in each names the owner.

    <directory>/.dayfly    the name of a run, or the id of a session

`remove` removes a directory only if it has its owner's marker and belongs to this user, or is
empty. The marker goes last, so that a removal which was killed can be finished by another.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARKER = ".dayfly"


def claim(directory: Path, owner: str) -> None:
    """Makes a directory that `remove` removes, and its parents; one of the same owner stays.

    Args:
        directory: gets the mode 0700. An empty one of this user is taken over.
        owner: what the marker says.

    Raises:
        FileExistsError: something is there that is not the owner's.
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700, parents=True)
    with opened(directory) as fd:
        if fd is not None and _is_mine(fd):
            if _marker(fd) == owner:
                return
            if not os.listdir(fd):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(MARKER, flags, 0o600, dir_fd=fd), "w") as file:
                    file.write(owner)
                return
    text = f"it is there and dayfly did not make it for {owner}: name another place, or remove it"
    raise FileExistsError(errno.EEXIST, text, str(directory))


def remove(directory: Path, owner: str) -> bool:
    """Removes a directory that `claim` made for this owner, with all that is in it.

    Symbolic links are removed, and never followed; nor may the directory itself be one.

    Returns:
        True if nothing is there any more, or never was. False if it stays, as it is not provably
        the owner's, or could not be removed.
    """
    with opened(directory) as fd:
        if fd is None or not _is_mine(fd) or _marker(fd) not in (owner, None):
            return not os.path.lexists(directory)
        if _marker(fd) == owner:
            _empty(fd)
    with suppress(OSError):
        directory.rmdir()  # without a marker only if it is empty
    return not os.path.lexists(directory)


def belongs(directory: Path, owner: str) -> bool:
    """Whether `remove` would remove a directory that is not empty."""
    with opened(directory) as fd:
        return fd is not None and _is_mine(fd) and _marker(fd) == owner


@contextmanager
def opened(directory: Path) -> Iterator[int | None]:
    """A descriptor of the directory; None if there is none, or a link."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _is_mine(fd: int) -> bool:
    return os.fstat(fd).st_uid == os.geteuid()


def _marker(fd: int) -> str | None:
    """What the marker says; None without one. A link or a long file is none."""
    try:
        marker = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
    except OSError:
        return None
    with open(marker, "rb") as file:
        is_file = stat.S_ISREG(os.fstat(marker).st_mode)
        return file.read(1000).decode(errors="replace") if is_file else None


def _empty(fd: int) -> None:
    """Removes what is in a directory, the marker last."""
    for name in os.listdir(fd):
        if name != MARKER:
            remove_entry(name, fd)
    if os.listdir(fd) == [MARKER]:
        os.unlink(MARKER, dir_fd=fd)


def remove_entry(name: str, fd: int) -> None:
    """Removes a file or tree of a directory that is open as `fd`, as far as possible."""
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=fd)
        else:
            os.unlink(name, dir_fd=fd)
