"""Hydrozoa's table 4: data, hybrid and model parallel on 16 K80s."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise

import numpy as np

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, times
from benchmarks.parts.papers.formulas.hydrozoa import samples_per_usd
from benchmarks.parts.papers.gpus import Gpu, derived, model_forward
from benchmarks.parts.papers.hydrozoa.workers import (
    BATCH,
    LINK_BYTES_PER_S,
    LINK_LATENCY_S,
    MIB,
    WORKERS,
    k80,
    needed_mib,
)
from benchmarks.parts.papers.models import BACKWARD, Layer, equal_parts, layers_of, together
from dayfly.planning.choose.formulas import synchronisation_s
from dayfly.wire.pipelines.orders import FORWARD, fill_drain
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, StageRank
from dayfly.wire.schedule import Schedule, Work
from dayfly.wire.virtual import Link, simulate

_SHAPES = ((16, 1), (8, 2), (4, 4), (2, 8), (1, 16))


#: Table 4: title, strategy, samples of a micro-batch, and its speed over data parallel (Azure ML).
_TABLE_4 = {
    "resnet34": ("ResNet-34", (16, 1), 4, 1.03),
    "resnet152": ("ResNet-152", (4, 4), 4, 1.03),
    "vgg19": ("VGG19", (8, 2), 2, 1.98),
    "bert_base": ("BERT-12", (4, 4), 4, 2.05),
}


_MOST_CUT = 4


#: The most micro-batches that table 4 has, and the most samples that a worker has alone.
_MOST_MICRO_BATCHES = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Micro-batches of a pipeline. size: samples of one. most: of them, and of the samples of a
    worker that has all of the model."""

    size: int
    most: int = _MOST_MICRO_BATCHES
    most_samples: int = BATCH

    @classmethod
    def of_table_4(cls, name: str, most_samples: int = BATCH) -> Batches:
        """As many as memory takes, and no more than the paper has of any model."""
        return cls(size=_TABLE_4[name][2], most_samples=most_samples)


@cache
def fitted_k80() -> Gpu:
    """The K80 of figure 4: the paper's own ratio."""
    return replace(derived("K80"), flops_per_s=k80().flops_per_s)


@cache
def hybrid_samples_per_s(
    name: str,
    replicas: int,
    shards: int,
    batches: Batches,
    gpu: Gpu | None = None,
    link_bytes_per_s: float = LINK_BYTES_PER_S,
) -> float:
    """A x B on GPUs: a pipeline of each replica in virtual time, then a ring of each shard.

    gpu: None: the K80 of figure 4. link_bytes_per_s: between two workers, each way.
    """
    gpu = gpu or fitted_k80()
    bounds = partition(name, replicas, shards, batches.size, gpu, link_bytes_per_s)
    layers, each = layers_of(name), model_forward(gpu, name)
    parts = [together(layers[a:b]) for a, b in pairwise(bounds)]
    size, most = (1, batches.most_samples) if shards == 1 else (batches.size, batches.most)
    room = min(
        (gpu.memory_mib - needed_mib(part, 0)) * MIB / (size * part.kept_bytes)
        for part in parts
        if part.kept_bytes
    )
    count = max(1, min(most, int(room)))
    # A worker that has all of the model computes its samples at once.
    at_once, passes = (size * count, 1) if shards == 1 else (size, count)
    forward_s = [sum(one(at_once) for one in each[a:b]) for a, b in pairwise(bounds)]

    def work_s(rank: int, work: Work) -> float:
        return forward_s[rank] if work.what == FORWARD else BACKWARD * forward_s[rank]

    link = Link(
        up_bytes_per_s=link_bytes_per_s,
        down_bytes_per_s=math.inf,  # what one sends is received as it comes
        latency_s=LINK_LATENCY_S,
        direct=True,
    )
    timed = simulate(_pipeline(parts, at_once, passes), link, itemsize=1, work_s=work_s)
    ends = [
        max(one.done_s for one in rank) + _ring_s(part.parameter_bytes, replicas, link_bytes_per_s)
        for rank, part in zip(timed, parts, strict=True)
    ]
    return replicas * size * count / max(ends)


@cache
def partition(
    name: str, replicas: int, shards: int, size: int, gpu: Gpu, link_bytes_per_s: float
) -> tuple[int, ...]:
    """The cuts of the least time by appendix A.1 and the shards' rings (sections 3.3, 3.4).

    Returns where each shard begins, and the number of layers. All cuts are tried up to four shards;
    beyond that, those of equal computation alone. size: samples of a micro-batch.
    """
    layers = layers_of(name)
    if shards > _MOST_CUT:
        return equal_parts(layers, shards)
    rows = list(combinations(range(1, len(layers)), shards - 1))
    ends = np.array([(0, *cuts, len(layers)) for cuts in rows])
    forward_s, sizes = (
        np.diff(np.concatenate(([0.0], np.cumsum(each)))[ends], axis=1)
        for each in (
            [one(size) for one in model_forward(gpu, name)],
            [one.parameter_bytes for one in layers],
        )
    )
    out = np.array([0.0, *(size * one.output_bytes / link_bytes_per_s for one in layers)])
    boundary_s = out[ends[:, 1:-1]] if shards > 1 else np.zeros((len(rows), 1))
    between = boundary_s.max(axis=1)
    lag = np.maximum(forward_s.max(axis=1), between)
    lag += np.maximum(BACKWARD * forward_s.max(axis=1), between)
    # What is computed once is the same for all cuts.
    times_s = 2 * boundary_s.sum(axis=1) + (_MOST_MICRO_BATCHES - 1) * lag
    times_s += 2 * (replicas - 1) / replicas * sizes.max(axis=1) / link_bytes_per_s
    return tuple(map(int, ends[int(times_s.argmin())]))


def _ring_s(size_bytes: float, workers: int, link_bytes_per_s: float) -> float:
    """Section 3.4, corrected."""
    return synchronisation_s(size_bytes, workers, link_bytes_per_s, beta_s=LINK_LATENCY_S)


def _pipeline(parts: Sequence[Layer], size: int, count: int) -> list[Schedule]:
    """Of each shard: fill and drain."""
    layout, numbers = Layout(len(parts), 1), range(count)
    sizes = [round(size * part.output_bytes) for part in parts]
    between = [
        {number: StageBoundary(activation_bytes=one, gradient_bytes=one) for number in numbers}
        for one in sizes
    ]
    return [
        PipelineStep(
            layout=layout,
            stage_rank=StageRank(stage, 0),
            order=fill_drain(stage, len(parts), numbers),
            before=between[stage - 1] if stage else {},
            behind=between[stage] if stage < len(parts) - 1 else {},
            chunk_bytes=max(sizes),
        ).schedule()
        for stage in range(len(parts))
    ]


def implied_batch(name: str) -> int | None:
    """Samples a worker of data parallel with which the paper's strategy is as much faster as it
    says, the most of them; None if there are none."""
    _, strategy, _, printed = _TABLE_4[name]
    rate = hybrid_samples_per_s(name, *strategy, Batches.of_table_4(name)) / printed
    fits = [
        one
        for one in range(1, BATCH + 1)
        if hybrid_samples_per_s(name, 16, 1, Batches.of_table_4(name, one)) <= rate
    ]
    return max(fits, default=None)


def table_4() -> Figure:
    """Data, hybrid and model parallel on 16 K80s: throughput per dollar."""
    usd_per_hour = WORKERS[-1] * k80().usd_per_hour
    panels, facts = [], []
    for name, (title, strategy, _, printed) in _TABLE_4.items():
        shapes = [one for one in _SHAPES if one[1] <= len(layers_of(name))]
        batches = Batches.of_table_4(name)
        rates = {f"{a}x{b}": hybrid_samples_per_s(name, a, b, batches) for a, b in shapes}
        panels.append(
            Panel(
                title=title,
                x="strategy: replicas x shards",
                y="samples a dollar",
                series=(
                    Series(
                        name="ours",
                        xs=tuple(rates),
                        ys=tuple(samples_per_usd(one, usd_per_hour) for one in rates.values()),
                        kind="bars",
                    ),
                ),
            )
        )
        best, data = max(rates, key=lambda one: rates[one]), rates["16x1"]
        theirs = "x".join(map(str, strategy))
        batch = implied_batch(name)
        why = ""
        if best != theirs:
            less = replace(batches, most_samples=batch or 1)
            fewer = {**rates, "16x1": hybrid_samples_per_s(name, 16, 1, less)}
            why = (
                f"with {batch} samples a worker of data parallel, not as many as 12 GB hold, "
                f"{times(fewer[theirs] / fewer['16x1'])}, and "
                f"{max(fewer, key=lambda one: fewer[one])} is best"
            )
        facts.append(
            Fact(
                what=f"{title}: best strategy",
                theirs=theirs,
                ours=best,
                agrees=best == theirs,
                why=why,
            )
        )
        if strategy[1] > 1:
            facts.append(
                Fact(
                    what=f"{title}: {theirs} over data parallel (the paper: over Azure ML)",
                    theirs=f"{printed:g} x",
                    ours=times(rates[theirs] / data),
                    agrees=abs(rates[theirs] / data / printed - 1) < 0.15,
                    why=why,
                )
            )
            facts.append(
                Fact(
                    what=f"{title}: samples a worker of data parallel with which it is so (fitted)",
                    theirs="not printed",
                    ours="none" if batch is None else f"{batch}",
                    agrees=None,
                )
            )
    return Figure(
        name="hydrozoa-table-4",
        what="Hydrozoa, table 4: data, hybrid and model parallel on 16 K80s",
        panels=tuple(panels),
        facts=tuple(facts),
    )
