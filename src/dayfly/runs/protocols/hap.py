"""Hybrid asynchronous parallel (FasDL section IV-B): some workers sum, the others do not wait.

K aggregators take steps in lock step; the others are one step behind. g_t is a worker's gradient in
step t, S_t the sum of all of them, w_t the weights that S_0 to S_(t-1) were applied to:

    aggregator   | g_0 of w_0 | put | sum S_0 | apply S_0 | g_1 of w_1 | put | sum S_1 | apply S_1 |
    another      | g_0 of w_0 | put | g_1 of w_0 | put | take S_0, apply | g_2 of w_1 | put | ...

Another worker takes S_(t-1) once it has put g_t. The aggregators are through with it by then, if
they are not the slower ones, so it waits for nobody. All workers apply the same sums in the same
order. What is summed when stands in the step's number and nowhere else, so the bits do not depend
on who is fast.

Workers **meet** after step t if it ends an epoch, or if S_(t-1) carries a wish: all have S_t then.
For all know S_(t-1) by the end of step t, and nobody knows more. At a meeting within an epoch the
lag is kept: all copy the weights w_t before S_t is applied, and the others compute step t+1 from
that copy, as they would have done without a meeting. So a checkpoint changes no bits. It holds the
replica with S_t applied, and the copy. At the end of an epoch all go on with equal weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dayfly.runs.protocols.base import WorkerContext
from dayfly.runs.protocols.bsp import Bsp
from dayfly.training.logged import by_name
from dayfly.training.replica import Wishes
from dayfly.training.state import Tensors, model_tensors
from dayfly.wire.collectives.k_reduce import contributing, reading
from dayfly.wire.engine import Engine

#: How the names of the lagging weights begin in a checkpoint.
_LAG = "lag."


@dataclass(slots=True, kw_only=True)
class _Taken:
    """A step that this worker has contributed to, and whose sum it has not applied.

    Args:
        step: its number.
        computed: whether the own gradient was computed.
        finite: whether the own loss was finite.
        began, at: when it began, by `time.monotonic()` and in Unix seconds.

    Attributes:
        ended: what its report says of its end, once it has one.
    """

    step: int
    computed: bool
    finite: bool
    began: float
    at: float
    ended: dict[str, Any] = field(default_factory=dict)


class Hap(Bsp):
    """Steps of aggregators, or of a worker that lags one step behind them."""

    looks_at_losses: ClassVar[bool] = True

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        (self._phase,) = self.phases  # a job with several optimizers is refused
        lags, how = worker.task.lags, worker.task.aggregators
        assert how is not None, "settings refuse hap without aggregators"
        self._sums: Engine | None = worker.by(reading(how)) if lags else None
        self._taken: list[_Taken] = []
        self._wished = Wishes()  # of sums that were applied since all met
        self._lag: Tensors | None = None

    def _make_engine(self) -> Engine | None:
        task = self.worker.task
        if not task.lags or task.aggregators is None:
            return None
        return self.worker.by(contributing(task.aggregators))

    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        lag = {n.removeprefix(_LAG): t for n, t in tensors.items() if n.startswith(_LAG)}
        device = self.worker.replica.device
        self._lag = {name: tensor.to(device) for name, tensor in lag.items()} or None
        return super().load_state(step, tree, tensors)

    def state(self) -> tuple[Tensors, Tensors]:
        shared, own = super().state()
        return {**shared, **{f"{_LAG}{name}": t for name, t in (self._lag or {}).items()}}, own

    def take(self, step: int) -> Wishes:
        here = self.worker
        here.lifetime.step_begins()
        began, at = time.monotonic(), time.time()
        self.own_finite = True
        lag, self._lag = self._lag, None
        with self._weights(lag if self._sums is not None else None):
            computed = self._sum(step, self._phase)
        self._taken.append(
            _Taken(
                step=step,
                computed=computed,
                finite=self.own_finite,
                began=began,
                at=at,
            )
        )
        if self._sums is not None:
            while len(self._taken) > 1:
                self._apply(step)
        ends = here.epochs.ends_epoch(step)
        meets = ends or self._wished.checkpoint or self._wished.stop
        if meets and not ends:
            tensors = model_tensors(here.replica.model)
            self._lag = {name: tensor.clone() for name, tensor in tensors.items()}
        if meets or self._sums is None:
            self._apply(step)
        for one in self._taken:  # it is told with its sum, a step later
            one.ended = {"step_s": time.monotonic() - began, "spans": here.spans.take(began)}
        here.lifetime.step_ends()
        if not meets:
            return Wishes()
        granted, self._wished = self._wished, Wishes()
        return granted

    def _apply(self, step: int) -> None:
        """Takes the sum of the earliest step that still lacks it, and applies it.

        Args:
            step: that is being taken.
        """
        here, taken = self.worker, self._taken.pop(0)
        if self._sums is not None:
            with here.slices.lent():
                for one in self._phase.buckets.sums:
                    at = taken.step, one.operation
                    self._sums.all_reduce(one.like_P, *at, packing=one.packing)
        here.faults.at(step, "reduced")
        with here.spans.during("apply"):
            loss, wishes = self._phase.steps.apply()
        here.faults.at(step, "applied")
        self._wished = Wishes(
            self._wished.checkpoint or wishes.checkpoint, self._wished.stop or wishes.stop
        )
        logged = by_name(here.task.weighting.logged, self._phase.steps.logged)
        here.progress.add(taken.step, loss, len(here.epochs.batch(taken.step)), logged)
        self.tell_step(
            taken.step,
            loss,
            computed=taken.computed,
            began=taken.began,
            at=taken.at,
            logged=logged,
            **taken.ended,
        )
        here.finite(range(taken.step, taken.step + 1), taken.finite)

    @contextmanager
    def _weights(self, lag: Tensors | None) -> Iterator[None]:
        """The model has the lagging weights and buffers inside; None: its own."""
        self._swap(lag)
        try:
            yield
        finally:
            self._swap(lag)

    def _swap(self, lag: Tensors | None) -> None:
        if lag is None:
            return
        model = self.worker.replica.model
        for named in (model.named_parameters(), model.named_buffers()):
            for name, tensor in named:
                lag[name], tensor.data = tensor.data, lag[name]

    def close(self) -> None:
        super().close()
        if self._sums is not None:
            self._sums.close()
