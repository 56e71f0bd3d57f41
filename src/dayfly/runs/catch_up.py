"""How a worker that started again gets level with its peers: by the sums in the message log."""

from __future__ import annotations

from collections.abc import Mapping

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

    def stored(
        self, step: int, buffers: Mapping[str, torch.Tensor]
    ) -> list[frozenset[Name] | None]:
        """Of all-reduces that are under way together, the sums in the log; None once it is level.

        buffers: by operation, of the size that is summed. The step in which any of them is not
        whole in the log is the one in which the predecessor died.
        """
        if not self.behind:
            return [None] * len(buffers)
        stored = [self._engine.stored_sums(like, step, name) for name, like in buffers.items()]
        whole = [len(self._engine.sums(like)) for like in buffers.values()]
        if [len(some) for some in stored] != whole:
            self.behind = False
            self._tell(step)
        return list(stored)

    def _tell(self, step: int) -> None:
        self._reporter.add("caught up", urgent=True, step=step)
