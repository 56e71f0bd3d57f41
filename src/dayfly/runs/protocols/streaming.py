"""Streaming DiLoCo: outer gradients travel in fragments while the inner steps that follow compute.

F = 2 fragments, T = 1 step, k = 4:

    training thread    | step 0 | step 1 | step 2 | step 3 | step 4 | step 5 | ...
    fragment 0                    take '-> == sum == '-> apply         take '-> == sum ==
    fragment 1, rest                                 take '-> == sum == '-> apply
    the exchanges' threads                | frag-0 |          | frag-1 |

What is taken and applied after which step follows from the step's number (`specs.streaming`). A sum
that is late is waited for, one that is early waits. So bits do not depend on who is fast.

Replicas are never equal; the **outer model** is: outer parameters, and buffers where all of them
were moved to last.

    end of an epoch     all that is under way is applied; validation measures the outer model, which
                        is the run's model, too; each worker goes on with its own parameters
    wishes              of a round are known to all workers by the end of the next one at the latest
    run checkpoint      between rounds: the outer model and the outer optimizer's state, sums that
                        came and wait to be applied, once; and of each worker its own parameters and
                        buffers, inner optimizer's state and residual. Nothing is applied earlier
                        for its sake, so it changes no bits
    other numbers of workers   as of outer.py, own parameters and buffers with the inner state
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar

from dayfly.runs.protocols.base import WorkerContext
from dayfly.runs.protocols.handing_on import STREAMED, WAITING, waiting_in
from dayfly.runs.protocols.outer import OuterRounds
from dayfly.specs.outer import Outer
from dayfly.specs.streaming import Streaming
from dayfly.training.evaluation import HeldOut, Measures
from dayfly.training.logged import means
from dayfly.training.outer import OuterGradients
from dayfly.training.replica import Wishes
from dayfly.training.state import Tensors
from dayfly.training.streaming import StreamedGradients
from dayfly.wire.schedule import Name


@dataclass(slots=True, kw_only=True)
class _Flight:
    """An exchange that was taken, and is not applied.

    Args:
        number: of the exchange.
        first: the first step of its round.
        due: the step after which it is applied.
        finite: whether this worker's own losses of the round are, if it tells of the round.
        coming: its sum; None: that is there.
        told: whether what it tells of the round was taken.
    """

    number: int
    first: int
    due: int
    finite: bool = True
    coming: Future[None] | None = None
    told: bool = False


@dataclass(slots=True, kw_only=True)
class _Round:
    """What is reported of a round, once its losses are known.

    Args:
        began, at: when it began, by `time.monotonic()` and in Unix seconds.

    Attributes:
        waited_s: for sums, in seconds.
        ended: what its report says of its end, once it has one.
    """

    began: float
    at: float
    waited_s: float = 0.0
    ended: dict[str, Any] = field(default_factory=dict)


class StreamingRounds(OuterRounds):
    """Rounds of local steps, beside which fragments are exchanged."""

    looks_at_losses: ClassVar[bool] = True

    _outer: StreamedGradients

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        assert worker.task.outer is not None
        self._streaming = worker.task.outer.streaming or Streaming()
        self._flights: list[_Flight] = []
        self._rounds: dict[int, _Round] = {}
        self._wished = Wishes()
        self._stored: Sequence[frozenset[Name] | None] = ()
        self._pool = ThreadPoolExecutor(
            worker.engine.at_once, thread_name_prefix="dayfly-fragments"
        )

    def _summing(self, outer: Outer) -> Callable[..., OuterGradients]:
        return partial(StreamedGradients, streaming=outer.streaming or Streaming())

    @staticmethod
    def _names(sums: int) -> Sequence[str]:
        return [f"frag-{number}" for number in range(sums)]

    @property
    def complete(self) -> bool:
        return not self._flights

    def shared_state(self) -> tuple[Any, Tensors]:
        tree, tensors = super().shared_state()
        waiting = [[one.number, one.first, one.due] for one in self._flights]
        how = {STREAMED: asdict(self._streaming), WAITING: waiting}
        sums = self._outer.sums([one.number for one in self._flights])
        return {**tree, **how}, {**tensors, **self._outer.shared_model(), **sums}

    def _begin_from(self, own: Tensors, tree: Any, tensors: Tensors) -> None:
        self._flights = [
            _Flight(number=number, first=first, due=due, told=True)
            for number, first, due in waiting_in(tree, self._streaming)
        ]
        self._outer.begin_from(own, tensors, [one.number for one in self._flights])

    def take(self, step: int) -> Wishes:
        here = self.worker
        here.lifetime.step_begins()
        try:
            self._stored = here.catch_up.stored(step, self._sums)
            if not here.catch_up.behind:
                here.room()
            self._steps.begin_round()
            self._within = step
            self._rounds[step] = _Round(began=time.monotonic(), at=time.time())
            # Its copies would lie beside the gradients, which nobody has between rounds.
            here.written()
            for number in here.rounds.steps(step):
                self._step_alone(number)
                self._exchange(step, number)
            self._ends(step)
            granted, self._wished = self._wished, Wishes()
            if granted.checkpoint or granted.stop:
                self._settle()
                granted.stop, self._wished = granted.stop or self._wished.stop, Wishes()
        except BaseException as error:
            here.engine.give_up(error)
            raise
        self._within = None
        here.lifetime.step_ends()
        return granted

    def _exchange(self, first: int, step: int) -> None:
        """Apply what is due after a step of the round that began with `first`, and take what is."""
        here, steps = self.worker, self.worker.rounds.steps(first)
        self._apply(step, [one for one in self._flights if one.due <= step])
        for number in self._streaming.taken(step - first + 1, len(steps)):
            # Of a short round it may still be under way.
            self._apply(step, [one for one in self._flights if one.number == number])
            here.faults.at(step, "computed")
            share = self._steps.weight(first)
            self._outer.take_fragment(number, share)
            if number == self._outer.last:
                self._outer.take_rest(share, self._steps.numbers, here.wishes())
            self._begin(number, first, step)
        ends = here.epochs.ends_epoch(step)
        self._apply(step, [one for one in self._flights if ends or one.due <= step])

    def _begin(self, number: int, first: int, step: int) -> None:
        """Begin the exchange that was taken."""
        self._flights.append(
            _Flight(
                number=number,
                first=first,
                due=step + self._streaming.overlap,
                finite=self._steps.finite,
                coming=self._pool.submit(self._sum, number, first, self._stored[number]),
            )
        )

    def _sum(self, number: int, first: int, stored: frozenset[Name] | None) -> None:
        """Sum an exchange; in a thread of its own."""
        here, one = self.worker, self._sums[number]
        watch = partial(here.fault_points.of, first, one.operation)
        here.engine.all_reduce(one.like_P, first, one.operation, stored, one.packing, observe=watch)

    def _apply(self, step: int, due: Sequence[_Flight]) -> None:
        """Apply exchanges, in the order in which they were taken, after a step."""
        here = self.worker
        for one in due:
            self._arrive(one)
            here.faults.at(step, "reduced")
            with here.spans.during("apply"):
                self._outer.apply(one.number, self._streaming.steps(one.first, one.due))
            self._flights.remove(one)
            self._tell(one)
            here.faults.at(step, "applied")

    def _settle(self) -> None:
        """Wait for all sums that are under way; they are applied when they are due."""
        for one in self._flights:
            self._arrive(one)
        for one in self._flights:
            self._tell(one)

    def _arrive(self, one: _Flight) -> None:
        """Wait until an exchange's sum is there."""
        if one.coming is None:
            return
        began = time.monotonic()
        with self.worker.slices.lent():
            one.coming.result()
        one.coming = None
        assert self._within is not None, "nothing is waited for between rounds"
        self._rounds[self._within].waited_s += time.monotonic() - began

    def _tell(self, one: _Flight) -> None:
        """Take what an exchange tells of its round, if it does and nobody did."""
        here = self.worker
        if one.told or one.number != self._outer.last:
            return
        one.told = True
        numbers, wishes = self._outer.told
        self._wished = Wishes(
            self._wished.checkpoint or wishes.checkpoint, self._wished.stop or wishes.stop
        )
        losses, steps = self._steps.losses(one.first, numbers), here.rounds.steps(one.first)
        for number, loss, logged in zip(steps, losses, self._steps.logged, strict=True):
            here.progress.add(number, loss, len(here.epochs.batch(number)), logged)
        self._ends(one.first)
        its = self._rounds.pop(one.first)
        here.reporter.add(
            "round",
            step=one.first,
            steps=len(steps),
            losses=losses,
            computed=True,
            began=its.at,
            average_s=its.waited_s,
            logged=[means(row) for row in self._steps.logged if row],
            **its.ended,
        )
        if here.progress.not_finite is not None:
            for other in self._flights:  # all workers sum in one order
                self._arrive(other)
        here.finite(steps, one.finite)

    def _ends(self, first: int) -> None:
        """Note the end of a round for its report, unless that is sent or has it."""
        its = self._rounds.get(first)
        if its is not None and not its.ended:
            its.ended = {
                "round_s": time.monotonic() - its.began,
                "spans": self.worker.spans.take(its.began),
            }

    def validate(self, step: int, held_out: HeldOut | None = None) -> Measures:
        with self._outer.in_place():
            return super().validate(step, held_out)

    def close(self) -> None:
        super().close()
        self._pool.shutdown(wait=True, cancel_futures=True)
