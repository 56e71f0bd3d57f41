"""Members of a group in threads of this process, over one channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from dayfly.wire.channels.base import Channel
from dayfly.wire.process_group.group import DayflyGroup
from dayfly.wire.process_group.member import Member

Result = TypeVar("Result")

#: Longer than anything here takes.
LONG_S = 60.0


@contextmanager
def members(
    channel: Channel, size: int = 2, *, name: str = "0", timeout_s: float = LONG_S
) -> Iterator[list[DayflyGroup]]:
    """All members of a group of ranks 0 to size - 1; ended at the end."""
    groups = [
        DayflyGroup(Member(channel, name, range(size), rank, timeout_s=timeout_s))
        for rank in range(size)
    ]
    try:
        yield groups
    finally:
        with ThreadPoolExecutor(size) as threads:
            list(threads.map(lambda group: group.shutdown(), groups))


def each(groups: list[DayflyGroup], do: Callable[[DayflyGroup], Result]) -> list[Result]:
    """Have every member do it at once; their results. Raises the first error."""
    with ThreadPoolExecutor(len(groups)) as threads:
        return list(threads.map(do, groups))
