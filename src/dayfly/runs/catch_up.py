"""How a worker that started again gets level with its peers: by the sums in the message log."""

from __future__ import annotations

import torch

from dayfly.life.reports import Reporter
from dayfly.wire.engine import Engine
from dayfly.wire.schedule import Name


class CatchUp:
    """Whether an attempt is behind its peers. `step`: the step at which it starts.

    replays: whether there is a log; else all workers start together, so none is behind.
    """

    def __init__(self, engine: Engine, reporter: Reporter, step: int, *, replays: bool) -> None:
        self._engine = engine
        self._reporter = reporter
        self.behind = replays and engine.keeps_sums
        if not self.behind:
            self._tell(step)

    def stored(self, like_P: torch.Tensor, step: int, operation: str) -> frozenset[Name] | None:
        """The sums of an all-reduce that are in the log while behind; None once it is level.

        like_P: a buffer of its size. The first all-reduce that is not whole in the log is the one
        at which the predecessor died.
        """
        if not self.behind:
            return None
        stored = self._engine.stored_sums(like_P, step, operation)
        if len(stored) < len(self._engine.sums(like_P)):
            self.behind = False
            self._tell(step)
        return stored

    def _tell(self, step: int) -> None:
        self._reporter.add("caught up", urgent=True, step=step)
