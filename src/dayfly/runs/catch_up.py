"""How a worker that started again gets level with its peers: by the sums in the message log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dayfly.life.reports import Reporter
from dayfly.wire.engine import Engine
from dayfly.wire.schedule import Name


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """An all-reduce whose result may be in the log. like_P: a buffer of the size that is summed."""

    engine: Engine
    operation: str
    like_P: torch.Tensor

    def reads_buffer(self, stored: frozenset[Name] | None) -> bool:
        """Whether the own contribution is needed, given what is stored."""
        return self.engine.schedule(self.like_P, stored).reads_buffer

    def take(self, step: int, stored: frozenset[Name] | None) -> None:
        """Sum the buffer over the ranks, in place; see `Engine.all_reduce`."""
        self.engine.all_reduce(self.like_P, step, self.operation, stored)


class CatchUp:
    """Whether an attempt is behind its peers. `step`: the step at which it starts.

    behind: whether it may be; not if there is no log, as all workers start together then.
    """

    def __init__(self, reporter: Reporter, step: int, *, behind: bool) -> None:
        self._reporter = reporter
        self.behind = behind
        if not behind:
            self._tell(step)

    def stored(self, step: int, sums: Sequence[Sum]) -> list[frozenset[Name] | None]:
        """Of all-reduces that are under way together, the sums in the log; None once it is level.

        The step in which any of them is not whole in the log is the one in which the predecessor
        died.
        """
        if not self.behind:
            return [None] * len(sums)
        stored = [one.engine.stored_sums(one.like_P, step, one.operation) for one in sums]
        whole = [len(one.engine.sums(one.like_P)) for one in sums]
        if [len(some) for some in stored] != whole:
            self.behind = False
            self._tell(step)
        return list(stored)

    def _tell(self, step: int) -> None:
        self._reporter.add("caught up", urgent=True, step=step)
