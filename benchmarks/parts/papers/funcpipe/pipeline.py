"""FuncPipe's choice of stages and functions (section 3.4), and its step in virtual time.

The paper solves a quadratic program. With layers merged into a few groups there are so few ways
that all can be tried: every cut into up to four stages with every memory size of each stage, and
into up to eight stages of one size; every degree of data parallelism.

    t_iter = t_f + max_i (t_b^i + t_s^i)                  equation 7; 8 to 11 for its terms
    c_iter = t_iter sum_i d m_i                           equations 5 and 6, with P = 1
    mu a_i + s_i (4 - 2 y_1) + s_0 <= m_i                 equation 3b

gamma = 2 and delta = 2 + d, those of the pipelined scatter-reduce. What is chosen is then timed by
the product's schedules in virtual time (`step_s`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from benchmarks.parts.papers.funcpipe.setting import BASE_MIB, MIB, MICRO_BATCH, Setting
from benchmarks.parts.papers.models import BACKWARD, Layer, together
from benchmarks.parts.papers.sums import sum_s
from dayfly.wire.pipelines.orders import FORWARD, fill_drain
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, StageRank
from dayfly.wire.schedule import Work
from dayfly.wire.virtual import Link, simulate

#: Section 5.1: alpha_2 for alpha_1 = 1; memory in MB, and P = 1 (see docs/errata.md).
WEIGHTS = (0.0, 2.0**16, 2.0**19, 2.0**22)
#: Least efficiency of the recommended configuration (section 5.1).
_WORTH = 0.8
_FREE_STAGES, _MOST_STAGES = 4, 8
_REPLICAS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Stages, each a part of the model with its memory; replicas of each; micro-batches of one."""

    stages: tuple[Layer, ...]
    memory_mib: tuple[int, ...]
    replicas: int
    micro_batches: int

    @property
    def functions(self) -> int:
        """Of all stages."""
        return len(self.stages) * self.replicas

    @property
    def total_mib(self) -> int:
        """Of all functions."""
        return self.replicas * sum(self.memory_mib)

    def usd_for_1_s(self, at: Setting) -> float:
        """Of all functions."""
        return self.replicas * sum(at.usd_for_1_s(size) for size in self.memory_mib)


def step_s(choice: Choice, at: Setting, *, collective: str = "pipelined") -> float:
    """Seconds of a step: the schedules of one pipeline in virtual time, then each stage's sum."""
    return max(done + summed for done, summed in parts_s(choice, at, collective=collective))


def parts_s(
    choice: Choice, at: Setting, *, collective: str = "pipelined", functions: int | None = None
) -> tuple[tuple[float, float], ...]:
    """Of each stage: when its last pass and message are done, and how long its sum takes.

    Replicas do the same at the same time, so one of them is looked at. functions: that run at once,
    if others do, too.
    """
    rate, stages = at.rate(functions or choice.functions), len(choice.stages)
    layout, numbers = Layout(stages, 1), range(choice.micro_batches)
    sizes = [round(MICRO_BATCH * one.output_bytes) for one in choice.stages]
    between = [
        {number: StageBoundary(activation_bytes=size, gradient_bytes=size) for number in numbers}
        for size in sizes
    ]
    schedules = [
        PipelineStep(
            layout=layout,
            stage_rank=StageRank(stage, 0),
            order=fill_drain(stage, stages, numbers),
            before=between[stage - 1] if stage else {},
            behind=between[stage] if stage < stages - 1 else {},
            chunk_bytes=max(sizes),
        ).schedule()
        for stage in range(stages)
    ]

    def work_s(rank: int, work: Work) -> float:
        forward_s = _forward_s(choice.stages[rank], choice.memory_mib[rank], at)
        return forward_s if work.what == FORWARD else BACKWARD * forward_s

    link = Link(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=at.latency_s)
    timed = simulate(schedules, link, itemsize=1, work_s=work_s)
    done = [max(one.done_s for one in rank) for rank in timed]
    summed = [
        sum_s(collective, choice.replicas, stage.parameter_bytes, rate, at.latency_s)
        for stage in choice.stages
    ]
    return tuple(zip(done, summed, strict=True))


def stage_s(choice: Choice, stage: int, at: Setting) -> float:
    """Seconds in which a stage computes, in a step."""
    forward_s = _forward_s(choice.stages[stage], choice.memory_mib[stage], at)
    return choice.micro_batches * (1 + BACKWARD) * forward_s


def choose(
    layers: Sequence[Layer],
    batch: int,
    at: Setting,
    *,
    weights: Sequence[float] = WEIGHTS,
    shape: tuple[int, int] | None = None,
    most_mib: float = math.inf,
) -> list[Choice]:
    """The best choice for each weight of time, alpha_2; several weights may share one.

    shape: so many stages with so many replicas, and no others. most_mib: of all functions. Raises
    ValueError if nothing fits.
    """
    best: list[tuple[float, float, Choice] | None] = [None] * len(weights)
    for replicas, parts in _ways(layers, batch):
        if shape is not None and shape != (len(parts), replicas):
            continue
        for grid in _grids(parts, replicas, batch, at):
            times, totals = _times(parts, replicas, batch, at, grid)
            for number, weight in enumerate(weights):
                value = np.where(totals <= most_mib, times * (totals + weight), np.inf)
                place = int(value.argmin())
                # Ties of weight 0 go to the faster.
                found = (float(value[place]), float(times[place]))
                held = best[number]
                if found[0] < math.inf and (held is None or found < held[:2]):
                    memory = tuple(at.memory_mib[one[place]] for one in grid)
                    choice = Choice(
                        stages=parts,
                        memory_mib=memory,
                        replicas=replicas,
                        micro_batches=batch // MICRO_BATCH // replicas,
                    )
                    best[number] = (*found, choice)
    chosen = [one[2] for one in best if one is not None]
    if not chosen:
        raise ValueError(f"no function is large enough for a batch of {batch}")
    return chosen


def recommended(choices: Sequence[Choice], at: Setting) -> Choice:
    """The fastest whose speed is worth its cost beside the cheapest, the first (section 5.1)."""
    times = [step_s(one, at) for one in choices]
    costs = [time * one.usd_for_1_s(at) for time, one in zip(times, choices, strict=True)]
    cheapest = choices[0]

    def worth(time: float, cost: float) -> float:
        more = cost / costs[0] - 1
        return (times[0] / time - 1) / more if more > 0 else float("inf")

    fit = [
        (time, number)
        for number, (time, cost) in enumerate(zip(times, costs, strict=True))
        if worth(time, cost) >= _WORTH
    ]
    return choices[min(fit)[1]] if fit else cheapest


def _ways(layers: Sequence[Layer], batch: int) -> Iterator[tuple[int, tuple[Layer, ...]]]:
    """Replicas, and stages."""
    micro_batches = batch // MICRO_BATCH
    for replicas in (one for one in _REPLICAS if micro_batches % one == 0):
        for stages in range(1, min(_MOST_STAGES, len(layers)) + 1):
            for cuts in combinations(range(1, len(layers)), stages - 1):
                ends = (*cuts, len(layers))
                begins = (0, *cuts)
                yield (
                    replicas,
                    tuple(together(layers[a:b]) for a, b in zip(begins, ends, strict=True)),
                )


def _grids(
    parts: Sequence[Layer], replicas: int, batch: int, at: Setting
) -> Iterator[list[np.ndarray]]:
    """For each stage, places in `at.memory_mib`: all combinations that fit."""
    local = batch / replicas
    needed = [
        (local * one.activation_bytes + one.parameter_bytes * (2 if replicas == 1 else 4)) / MIB
        + BASE_MIB
        for one in parts
    ]
    fits = [[j for j, size in enumerate(at.memory_mib) if size >= least] for least in needed]
    if not all(fits):
        return
    if len(parts) <= _FREE_STAGES:
        yield [axis.ravel() for axis in np.meshgrid(*map(np.array, fits), indexing="ij")]
    else:
        common = np.array(fits[int(np.argmin([len(one) for one in fits]))])
        yield [common] * len(parts)


def _times(
    parts: Sequence[Layer], replicas: int, batch: int, at: Setting, grid: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Equation 7 for all combinations of a grid, and their MiB together."""
    rate, lag = at.rate(replicas * len(parts)), batch / MICRO_BATCH / replicas - 1
    forward = [
        np.array([_forward_s(one, size, at) for size in at.memory_mib])[axis]
        for one, axis in zip(parts, grid, strict=True)
    ]
    hop = [MICRO_BATCH * one.output_bytes / rate + at.latency_s for one in parts[:-1]]
    t_f = sum(forward) + 2 * sum(hop) + lag * np.maximum.reduce([*forward, *_like(hop, forward)])
    ends = []
    for i, one in enumerate(parts):
        backward = [BACKWARD * stage for stage in forward[i:]]
        slowest = np.maximum.reduce([*backward, *_like(hop[i:], forward)])
        t_b = sum(backward) + 2 * sum(hop[i:]) + lag * slowest
        t_s = 2 * one.parameter_bytes / rate + (2 + replicas) * at.latency_s
        ends.append(t_b + (t_s if replicas > 1 else 0.0))
    sizes = np.array(at.memory_mib, dtype=float)
    totals = replicas * sum(sizes[axis] for axis in grid)
    return t_f + np.maximum.reduce(ends), totals


def _like(numbers: Sequence[float], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.full_like(arrays[0], number) for number in numbers]


def _forward_s(stage: Layer, memory_mib: float, at: Setting) -> float:
    """Of a micro-batch."""
    return MICRO_BATCH * stage.flops / at.flops(memory_mib)
