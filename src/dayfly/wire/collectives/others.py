"""What a collective other than an all-reduce is; `collectives.OTHERS` has them by name."""

from __future__ import annotations

from typing import Protocol

from dayfly.wire.schedule import Schedule


class MakeOther(Protocol):
    """What `rank` does with a flat buffer of `length` elements, the same on all ranks.

    chunk: elements that are worth a message. They are for steps that are not replayed: none takes
    what is stored already. Raises ValueError for ranks outside the world.
    """

    def __call__(
        self, rank: int, world_size: int, length: int, *, chunk: int = ...
    ) -> Schedule: ...
