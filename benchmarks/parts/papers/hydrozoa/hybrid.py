"""Hydrozoa's table 4: data, hybrid and model parallel on 16 K80s."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations, pairwise

import numpy as np

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, times
from benchmarks.parts.papers.formulas.hydrozoa import samples_per_usd
from benchmarks.parts.papers.hydrozoa.workers import (
    BATCH,
    LINK_BYTES_PER_S,
    LINK_LATENCY_S,
    MIB,
    WORKERS,
    k80,
    needed_mib,
)
from benchmarks.parts.papers.models import BACKWARD, Layer, layers_of, merged, together
from dayfly.planning.choose.formulas import synchronisation_s
from dayfly.wire.pipelines.orders import FORWARD, fill_drain
from dayfly.wire.pipelines.step import Boundary, Layout, PipelineStep, StageRank
from dayfly.wire.schedule import Schedule, Work
from dayfly.wire.virtual import Link, simulate

_K80_MIB = 12288


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


@cache
def hybrid_samples_per_s(name: str, replicas: int, shards: int, most_samples: int = BATCH) -> float:
    """A x B on K80s: a pipeline of each replica in virtual time, then a ring of each shard.

    As many micro-batches as memory takes, and no more than the paper has of any model.
    most_samples: of a worker that has all of the model.
    """
    parts = partition(name, replicas, shards)
    size, most = (1, most_samples) if shards == 1 else (_TABLE_4[name][2], _MOST_MICRO_BATCHES)
    room = min(
        (_K80_MIB - needed_mib(part, 0)) * MIB / (size * part.kept_bytes)
        for part in parts
        if part.kept_bytes
    )
    count = max(1, min(most, int(room)))
    flops_per_s = k80().flops_per_s

    def work_s(rank: int, work: Work) -> float:
        forward_s = size * parts[rank].flops / flops_per_s
        return forward_s if work.what == FORWARD else BACKWARD * forward_s

    link = Link(
        up_bytes_per_s=LINK_BYTES_PER_S,
        down_bytes_per_s=math.inf,  # what one sends is received as it comes
        latency_s=LINK_LATENCY_S,
        direct=True,
    )
    timed = simulate(_pipeline(parts, size, count), link, itemsize=1, work_s=work_s)
    ends = [
        max(one.done_s for one in rank) + _ring_s(part.parameter_bytes, replicas)
        for rank, part in zip(timed, parts, strict=True)
    ]
    return replicas * size * count / max(ends)


@cache
def partition(name: str, replicas: int, shards: int) -> tuple[Layer, ...]:
    """The cuts of the least time by appendix A.1 and the shards' rings (sections 3.3, 3.4).

    All cuts are tried up to four shards; beyond that, those of equal computation alone.
    """
    layers = layers_of(name)
    if shards > _MOST_CUT:
        return merged(layers, shards)
    rows = list(combinations(range(1, len(layers)), shards - 1))
    ends = np.array([(0, *cuts, len(layers)) for cuts in rows])
    flops, sizes = (
        np.diff(np.concatenate(([0.0], np.cumsum(each)))[ends], axis=1)
        for each in ([one.flops for one in layers], [one.parameter_bytes for one in layers])
    )
    micro = _TABLE_4[name][2]
    forward_s = micro * flops / k80().flops_per_s
    out = np.array([0.0, *(micro * one.output_bytes / LINK_BYTES_PER_S for one in layers)])
    boundary_s = out[ends[:, 1:-1]] if shards > 1 else np.zeros((len(rows), 1))
    between = boundary_s.max(axis=1)
    lag = np.maximum(forward_s.max(axis=1), between)
    lag += np.maximum(BACKWARD * forward_s.max(axis=1), between)
    # What is computed once is the same for all cuts.
    times_s = 2 * boundary_s.sum(axis=1) + (_MOST_MICRO_BATCHES - 1) * lag
    times_s += 2 * (replicas - 1) / replicas * sizes.max(axis=1) / LINK_BYTES_PER_S
    bounds = ends[int(times_s.argmin())]
    return tuple(together(layers[a:b]) for a, b in pairwise(bounds))


def _ring_s(size_bytes: float, workers: int) -> float:
    """Section 3.4, corrected."""
    return synchronisation_s(size_bytes, workers, LINK_BYTES_PER_S, beta_s=LINK_LATENCY_S)


def _pipeline(parts: Sequence[Layer], size: int, count: int) -> list[Schedule]:
    """Of each shard: fill and drain."""
    layout, numbers = Layout(len(parts), 1), range(count)
    sizes = [round(size * part.output_bytes) for part in parts]
    between = [
        {number: Boundary(activation_bytes=one, gradient_bytes=one) for number in numbers}
        for one in sizes
    ]
    return [
        PipelineStep(
            layout=layout,
            place=StageRank(stage, 0),
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
    rate = hybrid_samples_per_s(name, *strategy) / printed
    fits = [one for one in range(1, BATCH + 1) if hybrid_samples_per_s(name, 16, 1, one) <= rate]
    return max(fits, default=None)


def table_4() -> Figure:
    """Data, hybrid and model parallel on 16 K80s: throughput per dollar."""
    usd_per_hour = WORKERS[-1] * k80().usd_per_hour
    panels, facts = [], []
    for name, (title, strategy, _, printed) in _TABLE_4.items():
        shapes = [one for one in _SHAPES if one[1] <= len(layers_of(name))]
        rates = {f"{a}x{b}": hybrid_samples_per_s(name, a, b) for a, b in shapes}
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
            fewer = {**rates, "16x1": hybrid_samples_per_s(name, 16, 1, batch or 1)}
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
