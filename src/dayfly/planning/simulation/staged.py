r"""A step of a pipeline with replicas, for any number of them: passes, transfers, sums of stages.

    stage 0   |f0|f1|            |b0|b1|sum of its replicas |apply|
                 \  \            /  /
    stage 1      |f0|f1|b0|b1|                                      a row: all replicas, arrays (R,)

A transfer takes the sender's uplink, then the receiver's downlink; chunks let both be busy at once.
A stage starts the download of an input when it is there and fewer than `ahead` wait to be computed
(`wire.pipelines.step`). Where all stages have as many replicas, these do not wait for each other
before the sums. Else each waits for whoever has its micro-batch in the stage beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dayfly.planning.simulation.rounds import Rounds, Spans, Taken, Window, Work, of_windows, summed
from dayfly.planning.simulation.scenario import Floats, Ints
from dayfly.wire.collectives.cost import Phase
from dayfly.wire.collectives.link import DirectionModel, LinkModel
from dayfly.wire.pipelines.flow import Flow, Passing
from dayfly.wire.pipelines.orders import FORWARD, MakeOrder, in_waves
from dayfly.wire.pipelines.step import Layout, StageRank
from dayfly.wire.schedule import MOST_CHUNKS
from dayfly.wire.schedule import Work as Pass

_AHEAD = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Passed:
    """A pass of a lane's replicas, (R,): from, to, and when its output went up, if it did."""

    start_R: Floats
    end_R: Floats
    up_R: Floats | None = None
    gone_R: Floats | None = None
    down_R: Floats | None = None
    came_R: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Replicas of a stage that do the same passes, each with one replica of its neighbours.

    Where all stages have as many replicas, a lane is a stage; else it is a worker.

    Attributes:
        ranks: its workers.
        samples_RM: of each micro-batch of each of them.
        order: their passes.
        before, behind: of a micro-batch, the lane of the stage before and behind that has it, too.
    """

    stage: int
    ranks: slice
    samples_RM: Ints
    order: Sequence[Pass]
    before: Mapping[int, int]
    behind: Mapping[int, int]


def lanes_of(layout: Layout, flow: Flow, make: MakeOrder, batch: int) -> list[Lane]:
    """Returns the lanes of a step with a batch of so many samples, in the order of their ranks."""
    stages = layout.stages
    if layout.even:
        parts = np.zeros((layout.replicas_of(0), flow.most(0)), np.int64)
        for replica in range(len(parts)):
            for one in flow.passing(batch, StageRank(0, replica)).micros:
                parts[replica, one.number] = one.samples
        numbers = range(parts.shape[1])
        return [
            Lane(
                stage=stage,
                ranks=slice(layout.rank(stage, 0), layout.rank(stage, 0) + len(parts)),
                samples_RM=parts,
                order=make(stage, stages, numbers),
                before=dict.fromkeys(numbers, stage - 1) if stage else {},
                behind=dict.fromkeys(numbers, stage + 1) if stage + 1 < stages else {},
            )
            for stage in range(stages)
        ]
    found = []
    for rank in range(layout.world_size):
        own = layout.stage_rank(rank)
        passing = flow.passing(batch, own)
        samples_M = np.zeros(flow.total, np.int64)
        for one in passing.micros:
            samples_M[one.number] = one.samples

        def routes(
            stage: int, replicas: Sequence[int], passing: Passing = passing
        ) -> dict[int, int]:
            pairs = zip(passing.micros, replicas, strict=False)
            return {one.number: layout.rank(stage, replica) for one, replica in pairs}

        found.append(
            Lane(
                stage=own.stage,
                ranks=slice(rank, rank + 1),
                samples_RM=samples_M[None],
                order=in_waves(make, own.stage, stages, passing.waves),
                before=routes(own.stage - 1, passing.before),
                behind=routes(own.stage + 1, passing.behind),
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What the stages of a pipeline are.

    Attributes:
        works, links: of each.
        lanes: of all stages, in the order of their ranks.
        outputs, gradients: bytes of a sample over each boundary, and back.
    """

    works: Sequence[Work]
    links: Sequence[LinkModel]
    lanes: Sequence[Lane]
    outputs: Sequence[float]
    gradients: Sequence[float]
    chunk_bytes: float

    def passes(
        self, began_N: Floats, slow_N: Floats, data_s: Sequence[float]
    ) -> dict[tuple[int, Pass], _Passed]:
        """Compute all passes, each when its worker is free and its input there, by (lane, pass).

        Args:
            data_s: seconds for a sample to be read at the first stage, and the fixed part of it.
        """
        left = [list(lane.order) for lane in self.lanes]
        done: dict[tuple[int, Pass], _Passed] = {}
        by_lane: list[list[_Passed]] = [[] for _ in left]
        compute_free, up_free, down_free = (
            [began_N[lane.ranks].copy() for lane in self.lanes] for _ in range(3)
        )
        while any(left):
            for at, (lane, row) in enumerate(zip(self.lanes, left, strict=True)):
                stage = lane.stage
                while row:
                    one = row[0]
                    before = self._before(at, one)
                    if before is not None and before not in done:
                        break
                    row.pop(0)
                    made = by_lane[at]
                    start_R = compute_free[at]
                    earlier = made[-1 - _AHEAD] if len(made) > _AHEAD else None
                    down_R = came_R = None
                    if before is not None and (sent := done[before]).up_R is not None:
                        sender = self.lanes[before[0]].stage
                        nbytes_R = self._bytes(min(stage, sender), lane, one)
                        down_R, came_R, free_R = self._came(
                            sent, sender, stage, nbytes_R, down_free[at], earlier
                        )
                        down_free[at] = free_R
                        start_R = np.maximum(start_R, came_R)
                    elif before is not None:
                        start_R = np.maximum(start_R, done[before].end_R)
                    if earlier is not None and earlier.gone_R is not None:
                        start_R = np.maximum(start_R, earlier.gone_R)
                    seconds_R = self._seconds(lane, one)
                    if stage == 0 and one.what == FORWARD:
                        samples_R = lane.samples_RM[:, one.micro_batch]
                        fixed_s = data_s[0] if not made else 0.0
                        seconds_R = seconds_R + fixed_s + data_s[1] * samples_R
                    end_R = start_R + slow_N[lane.ranks] * seconds_R
                    compute_free[at] = end_R
                    up_R = gone_R = None
                    if (after := self._after(lane, one)) is not None:
                        nbytes_R = self._bytes(min(stage, after), lane, one)
                        if nbytes_R.any():
                            up_R = np.maximum(up_free[at], end_R)
                            gone_R = up_R + self._lane_s(self.links[stage].up, nbytes_R)
                            up_free[at] = gone_R
                    passed = _Passed(start_R, end_R, up_R, gone_R, down_R, came_R)
                    done[at, one] = passed
                    made.append(passed)
        return done

    def _before(self, at: int, one: Pass) -> tuple[int, Pass] | None:
        """Whose output a pass of a lane needs."""
        lane = self.lanes[at]
        if one.what == FORWARD:
            return (lane.before[one.micro_batch], one) if lane.before else None
        if not lane.behind:
            return at, Pass(FORWARD, one.micro_batch)
        return lane.behind[one.micro_batch], one

    def _after(self, lane: Lane, one: Pass) -> int | None:
        """The stage to which a pass sends its output."""
        if one.what == FORWARD:
            return lane.stage + 1 if lane.behind else None
        return lane.stage - 1 if lane.before else None

    def _seconds(self, lane: Lane, one: Pass) -> Floats:
        work, samples_R = self.works[lane.stage], lane.samples_RM[:, one.micro_batch]
        time = work.forward if one.what == FORWARD else work.backward
        return np.where(samples_R > 0, time.fixed + time.each * samples_R, 0.0)

    def _bytes(self, boundary: int, lane: Lane, one: Pass) -> Floats:
        each = (self.outputs if one.what == FORWARD else self.gradients)[boundary]
        return each * lane.samples_RM[:, one.micro_batch].astype(np.float64)

    def _chunks(self, nbytes: float) -> int:
        return int(max(1, min(MOST_CHUNKS, nbytes // max(1.0, self.chunk_bytes))))

    def _lane_s(self, line: DirectionModel, nbytes_R: Floats) -> Floats:
        """How long each replica's message occupies a line; replicas are of two sizes at most."""
        # Of each boundary the replicas on one side, about.
        workers = self.lanes[-1].ranks.stop
        at_once = max(1, workers * (len(self.works) - 1) // len(self.works))
        sizes, which_R = np.unique(nbytes_R, return_inverse=True)
        found = []
        for size in sizes:
            count = self._chunks(float(size))
            each = float(size) / count
            found.append(line.row_s(line.occupied_s(each, at_once), each, count))
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
        stages, slow_N = self._stages, slow_NK[:, 0]
        passed = stages.passes(began_N, slow_N, self._data_s)
        computed_N, took_N, ended_N = began_N.copy(), np.zeros_like(began_N), began_N.copy()
        busy_N, tail_s = np.zeros_like(began_N), -np.inf
        for (at, of), one in passed.items():
            lane = stages.lanes[at]
            took_R = one.end_R - one.start_R
            busy_N[lane.ranks] += took_R
            if of == lane.order[-1]:
                computed_N[lane.ranks], took_N[lane.ranks] = one.end_R, took_R
            if not lane.behind and of.what == FORWARD:  # until the loss is known
                tail_s = max(tail_s, float(one.end_R.max()))
        tail_s += self._tail_s
        windows: list[Sequence[Window]] = []
        for stage, work in enumerate(stages.works):
            of_stage = [lane.ranks for lane in stages.lanes if lane.stage == stage]
            ranks = slice(of_stage[0].start, of_stage[-1].stop)
            whole_R = computed_N[ranks] + self._beside_s
            done_s = -np.inf
            row: list[Window] = []
            if any(self._phases[stage]):
                took_R = took_N[ranks]
                ready = [computed_N[ranks] - took_R * (1 - b.whole_at) for b in work.buckets]
                ready[-1] = whole_R
                ready = [ready_R - credit_N[ranks] for ready_R in ready]
                done_s, row = summed(ready, self._phases[stage])
            sums_R = np.maximum(np.maximum(whole_R, done_s), tail_s) + self._over_s
            ended_N[ranks] = sums_R + work.apply_s
            windows.append(row)
        return Taken(began_N, computed_N, busy_N, ended_N, slow_NK, windows, passed)

    def spans(self, taken: Taken, rank: int) -> tuple[Spans, list[list[Any]]]:
        at, lane = next(
            (at, lane)
            for at, lane in enumerate(self._stages.lanes)
            if lane.ranks.start <= rank < lane.ranks.stop
        )
        stage, replica = lane.stage, rank - lane.ranks.start
        work = self._stages.works[stage]
        told: Spans = {}
        passes: list[list[Any]] = []
        for (where, one), passed in taken.passes.items():
            if where != at:
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
