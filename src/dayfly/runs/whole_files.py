"""Files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A file beside this one, to be written; at the end it takes its place.

    Whatever ends the writing early, a full disk or Ctrl-C, leaves the file as it was, and nothing
    beside it; what a kill leaves is written over the next time. It is not forced to the disk: after
    a loss of power it may be the former one.
    """
    beside = file.with_name(f".{file.name}.tmp")
    try:
        yield beside
        beside.replace(file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
