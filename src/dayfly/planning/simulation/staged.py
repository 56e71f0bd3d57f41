r"""A step of a pipeline with replicas, for any number of them: passes, transfers, sums of stages.

    stage 0   |f0|f1|            |b0|b1|sum of its replicas |apply|
                 \  \            /  /
    stage 1      |f0|f1|b0|b1|                                      a row: all replicas, arrays (R,)

A transfer takes the sender's uplink, then the receiver's downlink; chunks let both be busy at once.
A stage starts the download of an input when it is there and fewer than `ahead` wait to be computed
(`wire.pipelines.step`). Replicas do not wait for each other before the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dayfly.planning.simulation.rounds import Rounds, Spans, Taken, Window, Work, of_windows, summed
from dayfly.planning.simulation.scenario import Floats, Ints
from dayfly.wire.collectives.cost import DirectionModel, LinkModel, Phase
from dayfly.wire.pipelines.orders import BACKWARD, FORWARD, MakeOrder
from dayfly.wire.schedule import MOST_CHUNKS
from dayfly.wire.schedule import Work as Pass

_AHEAD = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Passed:
    """A pass of all replicas, (R,): from, to, and when its output went up; none: nothing did."""

    start_R: Floats
    end_R: Floats
    up_R: Floats | None = None
    gone_R: Floats | None = None
    down_R: Floats | None = None
    came_R: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What the stages of a pipeline are.

    Attributes:
        works, links: of each.
        samples_RM: of each micro-batch of each replica.
        outputs, gradients: bytes of a sample over each boundary, and back.
    """

    works: Sequence[Work]
    links: Sequence[LinkModel]
    samples_RM: Ints
    outputs: Sequence[float]
    gradients: Sequence[float]
    order: MakeOrder
    chunk_bytes: float

    @property
    def replicas(self) -> int:
        """Of each stage."""
        return len(self.samples_RM)

    def passes(
        self, began_SR: Floats, slow_SR: Floats, data_s: Sequence[float], order: MakeOrder
    ) -> dict[tuple[int, Pass], _Passed]:
        """Compute all passes, each when its stage is free and its input there.

        Args:
            data_s: seconds for a sample to be read at the first stage, and the fixed part of it.
        """
        count, numbers = len(self.works), range(self.samples_RM.shape[1])
        left = [list(order(stage, count, numbers)) for stage in range(count)]
        done: dict[tuple[int, Pass], _Passed] = {}
        by_stage: list[list[_Passed]] = [[] for _ in left]
        compute_free = [began_SR[stage].copy() for stage in range(count)]
        up_free = [began_SR[stage].copy() for stage in range(count)]
        down_free = [began_SR[stage].copy() for stage in range(count)]
        while any(left):
            for stage, row in enumerate(left):
                while row:
                    one = row[0]
                    before = self._before(stage, one)
                    if before is not None and before not in done:
                        break
                    row.pop(0)
                    made = by_stage[stage]
                    start_R = compute_free[stage]
                    earlier = made[-1 - _AHEAD] if len(made) > _AHEAD else None
                    down_R = came_R = None
                    if before is not None and (sent := done[before]).up_R is not None:
                        nbytes_R = self._bytes(min(stage, before[0]), one)
                        down_R, came_R, free_R = self._came(
                            sent, before[0], stage, nbytes_R, down_free[stage], earlier
                        )
                        down_free[stage] = free_R
                        start_R = np.maximum(start_R, came_R)
                    elif before is not None:
                        start_R = np.maximum(start_R, done[before].end_R)
                    if earlier is not None and earlier.gone_R is not None:
                        start_R = np.maximum(start_R, earlier.gone_R)
                    seconds_R = self._seconds(stage, one)
                    if stage == 0 and one.what == FORWARD:
                        samples_R = self.samples_RM[:, one.micro_batch]
                        fixed_s = data_s[0] if one.micro_batch == 0 else 0.0
                        seconds_R = seconds_R + fixed_s + data_s[1] * samples_R
                    end_R = start_R + slow_SR[stage] * seconds_R
                    compute_free[stage] = end_R
                    up_R = gone_R = None
                    if (after := self._after(stage, one)) is not None:
                        nbytes_R = self._bytes(min(stage, after), one)
                        if nbytes_R.any():
                            up_R = np.maximum(up_free[stage], end_R)
                            gone_R = up_R + self._lane_s(self.links[stage].up, nbytes_R)
                            up_free[stage] = gone_R
                    passed = _Passed(start_R, end_R, up_R, gone_R, down_R, came_R)
                    done[stage, one] = passed
                    made.append(passed)
        return done

    def _before(self, stage: int, one: Pass) -> tuple[int, Pass] | None:
        """Whose output a pass needs."""
        if one.what == FORWARD:
            return (stage - 1, one) if stage else None
        if stage == len(self.works) - 1:
            return stage, Pass(FORWARD, one.micro_batch)
        return stage + 1, one

    def _after(self, stage: int, one: Pass) -> int | None:
        """The stage to which a pass sends its output."""
        if one.what == FORWARD:
            return stage + 1 if stage + 1 < len(self.works) else None
        return stage - 1 if stage else None

    def _seconds(self, stage: int, one: Pass) -> Floats:
        work, samples_R = self.works[stage], self.samples_RM[:, one.micro_batch]
        time = work.forward if one.what == FORWARD else work.backward
        return np.where(samples_R > 0, time.fixed + time.each * samples_R, 0.0)

    def _bytes(self, boundary: int, one: Pass) -> Floats:
        each = (self.outputs if one.what == FORWARD else self.gradients)[boundary]
        return each * self.samples_RM[:, one.micro_batch].astype(np.float64)

    def _chunks(self, nbytes: float) -> int:
        return int(max(1, min(MOST_CHUNKS, nbytes // max(1.0, self.chunk_bytes))))

    def _lane_s(self, line: DirectionModel, nbytes_R: Floats) -> Floats:
        """How long each replica's message occupies a line; replicas are of two sizes at most."""
        at_once = self.replicas * max(1, len(self.works) - 1)
        sizes, which_R = np.unique(nbytes_R, return_inverse=True)
        found = []
        for size in sizes:
            count = self._chunks(float(size))
            found.append(line.row_s(float(size) / count, count, at_once))
        return np.array(found)[which_R]

    def _came(
        self,
        sent: _Passed,
        sender: int,
        reader: int,
        nbytes_R: Floats,
        free_R: Floats,
        earlier: _Passed | None,
    ) -> tuple[Floats, Floats, Floats]:
        """From when an input is read, when it is there, and when the downlink is free again."""
        assert sent.up_R is not None
        assert sent.gone_R is not None
        up, down = self.links[sender].up, self.links[reader].down
        count = self._chunks(float(nbytes_R.max()))
        down_s = self._lane_s(down, nbytes_R)
        first_R = sent.up_R + (sent.gone_R - sent.up_R) / count + up.latency_s
        start_R = np.maximum(free_R, first_R)
        if earlier is not None:
            start_R = np.maximum(start_R, earlier.end_R)
        last_R = sent.gone_R + up.latency_s + down_s / count
        stop_R = np.maximum(start_R + down_s, last_R)
        return start_R, stop_R + down.latency_s, stop_R


class Staged(Rounds):
    """A step of a pipeline.

    Args:
        phases: of each stage, of each of its buckets.
        tail_s: the small sum over all ranks.
        beside_s, over_s: as of synchronous steps.
    """

    steps = 1

    def __init__(
        self,
        stages: Stages,
        phases: Sequence[Sequence[Sequence[Phase]]],
        data_s: Sequence[float],
        tail_s: float,
        beside_s: float,
        over_s: float = 0.0,
    ) -> None:
        self._stages = stages
        self._phases = phases
        self._data_s = data_s
        self._tail_s = tail_s
        self._beside_s = beside_s
        self._over_s = over_s

    def take(self, began_N: Floats, slow_NK: Floats, credit_N: Floats) -> Taken:
        stages = self._stages
        shape = len(stages.works), stages.replicas
        slow_SR = slow_NK[:, 0].reshape(shape)
        passed = stages.passes(began_N.reshape(shape), slow_SR, self._data_s, stages.order)
        last = stages.samples_RM.shape[1] - 1
        tail_s = float(passed[shape[0] - 1, Pass(FORWARD, last)].end_R.max()) + self._tail_s
        computed_SR, ended_SR = np.empty(shape), np.empty(shape)
        busy_SR = np.zeros(shape)
        for (stage, _), one in passed.items():
            busy_SR[stage] += one.end_R - one.start_R
        windows: list[Sequence[Window]] = []
        for stage, work in enumerate(stages.works):
            one = passed[stage, Pass(BACKWARD, last)]
            whole_R = one.end_R + self._beside_s
            took_R = one.end_R - one.start_R
            done_s = -np.inf
            row: list[Window] = []
            if any(self._phases[stage]):
                credit_R = credit_N.reshape(shape)[stage]
                ready = [one.end_R - took_R * (1 - b.whole_at) for b in work.buckets]
                ready[-1] = whole_R
                ready = [ready_R - credit_R for ready_R in ready]
                done_s, row = summed(ready, self._phases[stage])
            sums_R = np.maximum(np.maximum(whole_R, done_s), tail_s) + self._over_s
            computed_SR[stage] = one.end_R
            ended_SR[stage] = sums_R + work.apply_s
            windows.append(row)
        computed_N, busy_N, ended_N = (
            one_SR.reshape(-1) for one_SR in (computed_SR, busy_SR, ended_SR)
        )
        return Taken(began_N, computed_N, busy_N, ended_N, slow_NK, windows, passed)

    def spans(self, taken: Taken, rank: int) -> tuple[Spans, list[list[Any]]]:
        stage, replica = divmod(rank, self._stages.replicas)
        work = self._stages.works[stage]
        told: Spans = {}
        passes: list[list[Any]] = []
        for (where, one), passed in taken.passes.items():
            if where != stage:
                continue
            start_s, end_s = float(passed.start_R[replica]), float(passed.end_R[replica])
            told.setdefault(one.what, []).append((start_s, end_s))
            passes.append([one.what[0], one.micro_batch, start_s, end_s])
            for kind, from_R, to_R in (
                ("upload", passed.up_R, passed.gone_R),
                ("download", passed.down_R, passed.came_R),
            ):
                if from_R is not None and to_R is not None:
                    told.setdefault(kind, []).append((float(from_R[replica]), float(to_R[replica])))
        summed_s = float(taken.ended_N[rank]) - work.apply_s
        sums = of_windows(taken.windows[stage], float(taken.computed_N[rank]), summed_s)
        for kind, pairs in sums.items():
            told[kind] = told.get(kind, []) + pairs
        told["apply"] = [(summed_s, summed_s + work.apply_s)]
        return told, passes
