"""Hydrozoa's figures 4 to 6, and table 4: functions, containers and GPUs; data and hybrid parallel.

Messages between containers and machines go directly, those of functions through S3. Prices and
vCPUs are the catalogue's. What the paper does not print, and is assumed here:

    vCPU        FLOPs a second as of a Lambda function, in the catalogue
    K80         so many FLOPs a second that one of them trains ResNet-34 1.8 times as fast as 16
                containers without: the paper's own ratio; every other ratio then follows
    links       1 Gb/s each way between containers, and between machines; 1 ms
    Lambda      sums at one aggregator (all-reduce), as its text has communication grow with workers
    batch       256 samples a worker, as its table 4 has for ResNet-34
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise

import numpy as np

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, times
from benchmarks.parts.papers.models import BACKWARD, Layer, layers_of, merged, together
from benchmarks.parts.papers.rows import given, platform, prices, store
from benchmarks.parts.papers.sums import sum_s
from dayfly.plan.formulas.hydrozoa import samples_per_usd, synchronisation_s
from dayfly.wire.pipelines.layout import Layout, Place
from dayfly.wire.pipelines.orders import FORWARD, fill_drain
from dayfly.wire.pipelines.step import Boundary, PipelineStep
from dayfly.wire.schedule import Schedule, Work
from dayfly.wire.virtual import Link, simulate

_MIB = 2**20
_BASE_MIB = 300
_LINK_BYTES_PER_S, _LINK_LATENCY_S = 125e6, 0.001
_BATCH = 256
_WORKERS = (1, 2, 4, 8, 16)
#: Section 5.2: one K80 over 16 containers, ResNet-34.
_K80_OVER_16 = 1.8
#: Of which model, and as which of the ratios, that stands below.
_FITTED = ("resnet34", 2)
_K80_MIB = 12288
_LAMBDA_MIB, _CONTAINER_VCPUS = 10240, 4
#: Section 5.2: what Lambda's workers of 10 GB cost, an hour.
_PRINTED_LAMBDA_USD = 0.60


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A kind of worker. usd_per_hour: of one. stored: its messages go through S3."""

    name: str
    flops_per_s: float
    usd_per_hour: float
    stored: bool = False
    collective: str = "ring"


def model(name: str) -> Layer:
    """All of a model."""
    return together(layers_of(name))


def _vcpu_flops() -> float:
    return given(platform("aws-lambda").vcpu_flops_per_s, "FLOPs of aws-lambda")


def functions(collective: str = "all-reduce") -> Way:
    """Hydrozoa-Lambda: functions of 10 GB, through S3."""
    row = platform("aws-lambda")
    vcpus = given(row.vcpus(_LAMBDA_MIB), "vCPUs of aws-lambda")
    return Way(
        name="H-L",
        flops_per_s=vcpus * _vcpu_flops(),
        usd_per_hour=3600 * prices("aws-lambda").usd_for_1_s(_LAMBDA_MIB, vcpus),
        stored=True,
        collective=collective,
    )


def containers(name: str) -> Way:
    """Hydrozoa-CPU: containers of 4 vCPUs, with as many GB as the model needs."""
    needed = _needed_mib(model(name), _BATCH)
    size = platform("azure-containers").next_size_mib(needed)
    usd = 3600 * prices("azure-containers").usd_for_1_s(size, _CONTAINER_VCPUS)
    return Way(name="H-C", flops_per_s=_CONTAINER_VCPUS * _vcpu_flops(), usd_per_hour=usd)


@cache
def k80() -> Way:
    """Hydrozoa-GPU: containers of a K80, 4 vCPUs and 6 GB."""
    name, workers = "resnet34", _WORKERS[-1]
    rate = _K80_OVER_16 * samples_per_s(containers(name), name, workers)
    return Way(
        name="H-G",
        flops_per_s=rate * (1 + BACKWARD) * model(name).flops,
        usd_per_hour=3600 * prices("azure-containers-k80").usd_for_1_s(6 * 1024, 4),
    )


def machines(name: str, row: str) -> Way:
    """The same GPU in a machine."""
    return replace(k80(), name=name, usd_per_hour=3600 * prices(row).usd_for_1_s(0, 0))


def samples_per_s(way: Way, name: str, workers: int) -> float:
    """Data parallel: compute, then sum; nothing overlaps."""
    whole = model(name)
    compute_s = _BATCH * (1 + BACKWARD) * whole.flops / way.flops_per_s
    if way.stored:
        rate = given(platform("aws-lambda").uplink_bytes_per_s, "rate of aws-lambda")
        latency_s = given(store("s3").latency_s, "latency of s3")
    else:
        rate, latency_s = _LINK_BYTES_PER_S, _LINK_LATENCY_S
    summed_s = sum_s(
        way.collective,
        workers,
        whole.parameter_bytes,
        rate,
        latency_s,
        direct=not way.stored,
    )
    return workers * _BATCH / (compute_s + summed_s)


def _needed_mib(whole: Layer, samples: float) -> float:
    return _BASE_MIB + (samples * whole.kept_bytes + 2 * whole.parameter_bytes) / _MIB


def _ablation(name: str, title: str, number: int, theirs: Sequence[float]) -> Figure:
    """Figures 4 and 5. theirs: the paper's ratios, as `facts` has them."""
    ways = (functions(), functions("scatter-reduce"), containers(name), k80())
    labels = ("H-L", "H-L, scatter-reduce", "H-C", "H-G, one K80")
    rates = {
        label: [samples_per_s(way, name, n if way is not ways[-1] else 1) for n in _WORKERS]
        for label, way in zip(labels, ways, strict=True)
    }
    per_usd = {
        label: [
            samples_per_usd(rate, way.usd_per_hour * (n if way is not ways[-1] else 1))
            for rate, n in zip(rates[label], _WORKERS, strict=True)
        ]
        for label, way in zip(labels, ways, strict=True)
    }
    panels = tuple(
        Panel(
            title=f"{title}: {what}",
            x="workers",
            y=unit,
            log_x=True,
            log_y=log,
            series=tuple(
                Series(name=label, xs=_WORKERS, ys=tuple(values), dashed="scatter" in label)
                for label, values in found.items()
            ),
        )
        for what, unit, log, found in (
            ("throughput", "samples a second", True, rates),
            ("throughput per dollar", "samples a dollar", True, per_usd),
        )
    )

    def over(found: dict[str, list[float]], one: str, other: str) -> float:
        return found[one][-1] / found[other][-1]

    gpu = "H-G, one K80"
    pairs = (
        ("16 workers: throughput of H-C over H-L", over(rates, "H-C", "H-L")),
        ("throughput per dollar, the same", over(per_usd, "H-C", "H-L")),
        ("throughput of one H-G over 16 H-C", over(rates, gpu, "H-C")),
        ("throughput per dollar, the same", over(per_usd, gpu, "H-C")),
        ("throughput per dollar of H-G over H-L", over(per_usd, gpu, "H-L")),
    )
    facts = [
        Fact(
            what=what + (" (fitted)" if (name, place) == _FITTED else ""),
            theirs=f"{printed:g} x",
            ours=times(ours),
            agrees=None if (name, place) == _FITTED else abs(ours / printed - 1) < 0.15,
        )
        for place, ((what, ours), printed) in enumerate(zip(pairs, theirs, strict=True))
    ]
    plain = rates["H-L, scatter-reduce"]
    facts.append(
        Fact(
            what="16 workers: H-C over H-L if that used scatter-reduce",
            theirs=f"{theirs[0]:g} x",
            ours=times(rates["H-C"][-1] / plain[-1]),
            agrees=abs(rates["H-C"][-1] / plain[-1] / theirs[0] - 1) < 0.15,
        )
    )
    scaling = rates["H-C"][-1] / rates["H-C"][0] / _WORKERS[-1]
    facts.append(
        Fact(
            what="H-C on 16 workers, by 16 times one",
            theirs="near linear",
            ours=f"{scaling:.2f}",
            agrees=scaling > 0.85,
        )
    )
    return Figure(
        name=f"hydrozoa-{number}",
        what=f"Hydrozoa, figure {number}: functions, containers and a GPU, {title}",
        panels=panels,
        facts=tuple(facts),
    )


def figure_4() -> Figure:
    """ResNet-34."""
    return _ablation("resnet34", "ResNet-34", 4, (1.34, 4.1, 1.8, 9.8, 40.4))


def figure_5() -> Figure:
    """AlexNet."""
    return _ablation("alexnet", "AlexNet", 5, (4.6, 11.5, 2.5, 13.5, 155.5))


def figure_6() -> Figure:
    """ResNet-34, data parallel: Hydrozoa, Azure ML and SageMaker."""
    ways = (
        replace(k80(), name="Hydrozoa"),
        machines("Azure ML", "vm-nc6"),
        machines("SageMaker", "vm-p2-xlarge"),
    )
    rate = {n: samples_per_s(k80(), "resnet34", n) for n in _WORKERS}
    per_usd = {
        way.name: [samples_per_usd(rate[n], n * way.usd_per_hour) for n in _WORKERS] for way in ways
    }
    panels = (
        Panel(
            title="throughput",
            x="workers",
            y="samples a second",
            log_x=True,
            series=(Series(name="all three", xs=_WORKERS, ys=tuple(rate.values())),),
        ),
        Panel(
            title="throughput per dollar",
            x="workers",
            y="samples a dollar",
            log_x=True,
            series=tuple(
                Series(name=name, xs=_WORKERS, ys=tuple(values)) for name, values in per_usd.items()
            ),
        ),
    )
    hydrozoa = per_usd["Hydrozoa"][-1]
    gains = {name: hydrozoa / per_usd[name][-1] for name in ("Azure ML", "SageMaker")}
    return Figure(
        name="hydrozoa-6",
        what="Hydrozoa, figure 6: ResNet-34, data parallel on K80s",
        panels=panels,
        facts=(
            Fact(
                what="price of a worker, an hour",
                theirs="$0.512",
                ours=f"${k80().usd_per_hour:.3f}",
                agrees=abs(k80().usd_per_hour - 0.512) < 0.001,
            ),
            Fact(
                what="throughput per dollar over Azure ML",
                theirs="1.81 x",
                ours=times(gains["Azure ML"]),
                agrees=abs(gains["Azure ML"] / 1.81 - 1) < 0.05,
            ),
            Fact(
                what="throughput per dollar over SageMaker",
                theirs="2.26 x",
                ours=times(gains["SageMaker"]),
                agrees=abs(gains["SageMaker"] / 2.26 - 1) < 0.05,
            ),
        ),
    )


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
def hybrid_samples_per_s(
    name: str, replicas: int, shards: int, most_samples: int = _BATCH
) -> float:
    """A x B on K80s: a pipeline of each replica in virtual time, then a ring of each shard.

    As many micro-batches as memory takes, and no more than the paper has of any model.
    most_samples: of a worker that has all of the model.
    """
    parts = partition(name, replicas, shards)
    size, most = (1, most_samples) if shards == 1 else (_TABLE_4[name][2], _MOST_MICRO_BATCHES)
    room = min(
        (_K80_MIB - _needed_mib(part, 0)) * _MIB / (size * part.kept_bytes)
        for part in parts
        if part.kept_bytes
    )
    count = max(1, min(most, int(room)))
    flops_per_s = k80().flops_per_s

    def work_s(rank: int, work: Work) -> float:
        forward_s = size * parts[rank].flops / flops_per_s
        return forward_s if work.what == FORWARD else BACKWARD * forward_s

    link = Link(
        up_bytes_per_s=_LINK_BYTES_PER_S,
        down_bytes_per_s=math.inf,  # what one sends is received as it comes
        latency_s=_LINK_LATENCY_S,
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
    out = np.array([0.0, *(micro * one.output_bytes / _LINK_BYTES_PER_S for one in layers)])
    boundary_s = out[ends[:, 1:-1]] if shards > 1 else np.zeros((len(rows), 1))
    between = boundary_s.max(axis=1)
    lag = np.maximum(forward_s.max(axis=1), between)
    lag += np.maximum(BACKWARD * forward_s.max(axis=1), between)
    # What is computed once is the same for all cuts.
    times_s = 2 * boundary_s.sum(axis=1) + (_MOST_MICRO_BATCHES - 1) * lag
    times_s += 2 * (replicas - 1) / replicas * sizes.max(axis=1) / _LINK_BYTES_PER_S
    bounds = ends[int(times_s.argmin())]
    return tuple(together(layers[a:b]) for a, b in pairwise(bounds))


def _ring_s(size_bytes: float, workers: int) -> float:
    """Section 3.4, corrected."""
    return synchronisation_s(size_bytes, workers, _LINK_BYTES_PER_S, beta_s=_LINK_LATENCY_S)


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
            place=Place(stage, 0),
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
    fits = [one for one in range(1, _BATCH + 1) if hybrid_samples_per_s(name, 16, 1, one) <= rate]
    return max(fits, default=None)


def table_4() -> Figure:
    """Data, hybrid and model parallel on 16 K80s: throughput per dollar."""
    usd_per_hour = _WORKERS[-1] * k80().usd_per_hour
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
        facts.append(
            Fact(
                what=f"{title}: best strategy",
                theirs=theirs,
                ours=best,
                agrees=best == theirs,
            )
        )
        if strategy[1] > 1:
            facts.append(
                Fact(
                    what=f"{title}: {theirs} over data parallel (the paper: over Azure ML)",
                    theirs=f"{printed:g} x",
                    ours=times(rates[theirs] / data),
                    agrees=abs(rates[theirs] / data / printed - 1) < 0.15,
                )
            )
            batch = implied_batch(name)
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
