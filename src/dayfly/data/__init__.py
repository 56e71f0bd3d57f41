"""Data as it comes: a reader for each form of files, all behind `Job(data=...)`.

    dayfly.Job(data="flowers.csv", ...)                            if the file leaves no question
    dayfly.Job(data=dayfly.data.csv("flowers.csv", target="kind"), ...)

`dayfly data show PATH` says what is in a file, and how to put it into a job.
"""

from __future__ import annotations

from typing import Any

from dayfly.data.base import READERS, DataSource, source_of

__all__ = ["READERS", "DataSource", "source_of"]


def __getattr__(name: str) -> Any:
    """Returns the reader of a form of files by its name, such as `dayfly.data.csv`."""
    if name.startswith("_") or name not in READERS:
        raise AttributeError(f"dayfly.data has no {name!r}: it has {', '.join(READERS)}")
    return READERS[name]


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *READERS])
