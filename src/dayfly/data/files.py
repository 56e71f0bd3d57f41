"""Files of data as they are published: compressed or not, read in pieces."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from dayfly.errors import RequestError, in_short

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file for reading; `.gz`, `.bz2` and `.xz` are decompressed.

    Raises:
        RequestError: it is not there, is damaged, or may not be read.
    """
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as file:
            yield cast("IO[bytes]", file)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise RequestError(
            f"{path} cannot be read: {in_short(error)}: put a whole one there"
        ) from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text in UTF-8, without their ends, each with its number from 1.

    Raises:
        RequestError: it cannot be read, or is no such text.
    """
    number = 0
    with reading(path) as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise RequestError(
                    f"{path}, line {number}: it is not UTF-8: convert it, as with iconv"
                ) from error


def is_number(text: str) -> bool:
    """Returns whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def found(root: Path, *names: str) -> Path | None:
    """The first of these files that a directory has, as it is or as `.gz`; None: it has none."""
    places = [root / f"{name}{end}" for name in names for end in ("", ".gz")]
    return next((one for one in places if one.is_file()), None)


def needed(root: Path, form: str, *names: str) -> Path:
    """As `found`. Raises RequestError if there is none."""
    path = found(root, *names)
    if path is None:
        raise RequestError(f"{root} has no {names[0]}, which {form} needs: put it there")
    return path
