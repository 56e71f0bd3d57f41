"""Steps of hybrid asynchronous workers (FasDL section IV-B): see `runs.protocols.hap`.

    aggregator 0   |forward|backward|parts|   sum of t    |apply|       lock step
    aggregator 1   |forward|backward|parts|   sum of t    |apply|
    another        |forward|backward  |parts|sum of t-1|apply|          by itself

The sums of a step begin when all have put their parts. Another worker takes the sum of the step
before, and waits for it if it is not there. It takes none in an epoch's first step, and in the last
one the step's own sum, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dayfly.planning.simulation.passes import Passes
from dayfly.planning.simulation.rounds import Rounds, Spans, Taken, Window, of_windows, summed
from dayfly.planning.simulation.scenario import Floats
from dayfly.planning.timing import Steps
from dayfly.wire.collectives.cost import Cost, Phase

#: Steps after which a run is at its pace, and those that are gone through to find it.
_SETTLED, _STEPS = 4, 6


@dataclass(frozen=True, slots=True, eq=False)
class RoleSums:
    """What the sums of a step take, of each bucket.

    Attributes:
        own: phases in which an aggregator puts its parts.
        summed: those that follow, until all aggregators have the sum.
        parts: phases in which another worker puts its parts.
        taking_s: seconds in which an aggregator takes the other sums of the last bucket.
        read_s: seconds in which another worker takes the sums of all buckets.
    """

    own: Sequence[Sequence[Phase]]
    summed: Sequence[Sequence[Phase]]
    parts: Sequence[Sequence[Phase]]
    taking_s: float
    read_s: float

    @classmethod
    def of(cls, costs: Sequence[tuple[Cost, Cost, Cost]]) -> Self:
        """Of `hybrid_costs`, of each bucket."""
        # What begins an all-reduce is a phase before the four of `hybrid_costs` and the sum itself.
        return cls(
            own=[one.phases[:-4] for one, _, _ in costs],
            summed=[one.phases[-4:] for one, _, _ in costs],
            parts=[one.phases for _, one, _ in costs],
            taking_s=costs[-1][0].phases[-1].length_s,
            read_s=sum(one.seconds for _, _, one in costs),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Hybrid(Rounds):
    """A step of both roles.

    Attributes:
        passes: of each worker.
        sums: of both roles.
        aggregators: the first so many workers.
        begins, ends: whether the step is its epoch's first, and its last.
        over_s: what a step takes longer than all that says, or less.
        closing_s: the same of an epoch, beside its steps.
    """

    steps: ClassVar[int] = 1  # type: ignore[misc]
    passes: Passes
    sums: RoleSums
    aggregators: int
    begins: bool = False
    ends: bool = False
    over_s: float = 0.0
    closing_s: float = 0.0

    def as_predicted(self, usual: Hybrid, predicted: Steps) -> Hybrid:
        """Returns it with what makes an undisturbed epoch as long as was predicted.

        Args:
            usual: the same over links that nothing slows down.
            predicted: of these.
        """
        epoch = replace(usual, begins=False, ends=False)
        ends_N = epoch.take_all(_STEPS)
        pace_s = float(ends_N[-2][0] - ends_N[_SETTLED - 2][0]) / (_STEPS - _SETTLED)
        over_s = predicted.step_s - pace_s
        whole_s = float(replace(epoch, over_s=over_s).take_all(_STEPS)[-1].max())
        closing_s = _STEPS * predicted.step_s + predicted.ending_s - whole_s
        return replace(self, over_s=over_s, closing_s=closing_s)

    def take_all(self, count: int) -> list[Floats]:
        """Returns when each worker ends each step of an epoch of so many, (N,) each."""
        at_N, even = np.zeros(len(self.passes.data_N)), np.ones((len(self.passes.data_N), 1))
        found = []
        for step in range(count):
            one = replace(self, begins=step == 0, ends=step == count - 1)
            at_N = one.take(at_N, even, np.zeros_like(at_N)).ended_N
            found.append(at_N)
        return found

    def take(self, began_N: Floats, slow_NK: Floats, credit_N: Floats) -> Taken:
        slow_N, k, sums = slow_NK[:, 0], self.aggregators, self.sums
        busy_N = slow_N * self.passes.whole_N
        computed_N = began_N + busy_N
        ready = self.passes.ready(computed_N, slow_N)
        put = [at_N - credit_N for at_N in self._put(ready)]
        done_s, windows = summed(put, sums.summed)
        apply_N, over_s = self.passes.apply_N, self.over_s
        own_N = np.maximum(computed_N + self.passes.beside_N, put[-1])
        ended_N = np.maximum(own_N, done_s) + apply_N + over_s
        if self.begins:
            other_N = own_N + over_s
        else:
            # The aggregators began this step when they had taken and applied the sums before it.
            there_s = float((began_N[:k] - apply_N[:k]).max()) - over_s - sums.taking_s
            other_N = np.maximum(own_N, there_s) + sums.read_s + apply_N + over_s
        if self.ends:
            there_s = done_s - sums.taking_s
            other_N = np.maximum(other_N, there_s) + sums.read_s + apply_N + self.closing_s
            ended_N = ended_N + self.closing_s
        ended_N[k:] = other_N[k:]
        return Taken(began_N, computed_N, busy_N, ended_N, slow_NK, (windows,))

    def _put(self, ready: Sequence[Floats]) -> list[Floats]:
        """When each worker has put its parts of each bucket: their bytes go one after another."""
        aggregates_N = np.arange(len(ready[0])) < self.aggregators
        free_N, found = ready[0], []
        for ready_N, own, parts in zip(ready, self.sums.own, self.sums.parts, strict=True):
            length_N, late_N = (
                np.where(aggregates_N, sum(getattr(one, name) for one in own), other)
                for name, other in (
                    ("length_s", sum(one.length_s for one in parts)),
                    ("late_s", sum(one.late_s for one in parts)),
                )
            )
            begins_N = np.maximum(free_N, ready_N)
            found.append(begins_N + length_N)
            free_N = begins_N + length_N - late_N
        return found

    def spans(self, taken: Taken, rank: int) -> tuple[Spans, list[list[Any]]]:
        began_s, computed_s = float(taken.began_N[rank]), float(taken.computed_N[rank])
        ended_s, apply_s = float(taken.ended_N[rank]), float(self.passes.apply_N[rank])
        data_s = float(taken.slow_NK[rank, 0] * self.passes.data_N[rank])
        told: Spans = {"data": [(began_s, began_s + data_s)]} if data_s else {}
        told["compute"] = [(began_s + data_s, computed_s)]
        windows = taken.windows[0]
        if rank >= self.aggregators:
            windows = self._others(computed_s, ended_s - apply_s)
        told |= of_windows(windows, computed_s, ended_s - apply_s)
        told["apply"] = [(ended_s - apply_s, ended_s)]
        return told, []

    def _others(self, computed_s: float, until_s: float) -> Sequence[Window]:
        """How another worker's lines are busy: its parts go up, and at the end sums come."""
        up_s = sum(one.up_s for row in self.sums.parts for one in row)
        read_s = min(self.sums.read_s, max(0.0, until_s - computed_s))
        up, down = Phase(up_s, up_s=up_s), Phase(read_s, down_s=read_s)
        return (Window(computed_s, up), Window(until_s - read_s, down))
