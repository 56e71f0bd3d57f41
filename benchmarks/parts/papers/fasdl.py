"""FasDL's figures 3 and 13: how many aggregators, and which way to talk, for the least dollars.

The paper's formulas are those of `dayfly.plan.formulas.fasdl`, its coefficients a, b, m those of
its table II, and its limits those of table IV. What it does not print, and is assumed here:

    tp          the paper fits p(1 - exp(-t s)) and only plots p and t. Here each message of s bytes
                takes a latency and then s/p: tp = s/(t_lat + s/p), with the catalogue's 70 MB/s and
                40 ms for S3; 1 ms for ElastiCache
    E           epochs: as many as make the paper's own configuration cost what its table III says
    W of figure 3   figure 5's text has 8 workers of 2048 MB with 128 samples each
    server      an m5.large's link of 10 Gb/s, and $0.01 a GB each way between availability zones
    memory      a worker needs 300 MiB, four copies of the parameters, and so much a sample that
                all configurations of table IV fit
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, percent, times
from benchmarks.parts.papers.rows import given, platform, prices, store
from benchmarks.parts.papers.sums import sum_s
from dayfly.plan.formulas.fasdl import (
    aggregate_s,
    communication_s,
    functions_usd,
    global_batch,
    loading_s,
    requests_usd,
    run_s,
    transfer_usd,
)
from dayfly.plan.profile import Fit

_MIB, _GB = 2**20, 2**30
_BASE_MIB = 300
_FAST_LATENCY_S = 0.001  # of ElastiCache, and of a server
_SERVER_BYTES_PER_S, _USD_PER_GB_MOVED = 1.25e9, 0.01
_MEMORY_STEP_MIB, _MOST_MIB = 128, 10240
_GAMMA = 0.6  # least part of the greatest training rate (equation 14; the paper: 0.6 to 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A configuration: workers, MiB of each, aggregators, and samples of either kind.

    memory_mib and others may be arrays: many configurations at once.
    """

    workers: int
    memory_mib: Any
    aggregators: int
    own: int
    others: Any

    @property
    def samples(self) -> Any:
        """B^g."""
        return global_batch(self.workers, self.aggregators, self.own, self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A row of tables II, III and IV.

    title: as the paper writes it. size_mib: S_m. fit: a, b, m. samples, data_bytes: D and S_d.
    limit_s, most_samples: T_con and B^g_max. theirs, server: its configurations of K-REDUCE and of
    lambda-DNN. usd, best_usd: predicted cost of its two searches.
    """

    title: str
    size_mib: float
    fit: Fit
    samples: int
    data_bytes: float
    limit_s: float
    most_samples: int
    theirs: Setup
    server: Setup
    usd: float
    best_usd: float

    @property
    def sample_mib(self) -> float:
        """Memory of a sample; see the module."""
        each: list[float] = [
            (one.memory_mib - _BASE_MIB - 4 * self.size_mib) / max(one.own, one.others)
            for one in (self.theirs, self.server)
        ]
        return min(each)

    @property
    def size_bytes(self) -> float:
        """S_m."""
        return self.size_mib * _MIB


def _fit(a: float, b: float, m: float) -> Fit:
    return Fit(a=a, b=b, m=m, error=0.0)


def _setup(workers: int, memory: int, own: int, aggregators: int, others: int) -> Setup:
    return Setup(
        workers=workers, memory_mib=memory, aggregators=aggregators, own=own, others=others
    )


#: CIFAR-10 has 50,000 images of 3072 bytes; CoLA 8551 sentences, of 128 tokens at most.
_CIFAR, _COLA = (50_000, 50_000 * 3072.0), (8_551, 8_551 * 128.0)
WORKLOADS = (
    Workload(
        title="BERT-Base",
        size_mib=417.17,
        fit=_fit(2344.97, 2.37, 1145.66),
        samples=_COLA[0],
        data_bytes=_COLA[1],
        limit_s=2500,
        most_samples=640,
        theirs=_setup(10, 10240, 32, 4, 84),
        server=_setup(10, 10240, 32, 10, 32),
        usd=3.42,
        best_usd=3.02,
    ),
    Workload(
        title="ResNet50",
        size_mib=97.49,
        fit=_fit(37.19, 12.48, -111.46),
        samples=_CIFAR[0],
        data_bytes=_CIFAR[1],
        limit_s=8000,
        most_samples=1024,
        theirs=_setup(7, 1536, 128, 4, 170),
        server=_setup(2, 3328, 512, 2, 512),
        usd=1.49,
        best_usd=1.30,
    ),
    Workload(
        title="MobileNet",
        size_mib=13.37,
        fit=_fit(13.50, 9.57, -92.88),
        samples=_CIFAR[0],
        data_bytes=_CIFAR[1],
        limit_s=4000,
        most_samples=512,
        theirs=_setup(3, 1920, 128, 1, 192),
        server=_setup(2, 2304, 256, 2, 256),
        usd=0.38,
        best_usd=0.37,
    ),
    Workload(
        title="SqueezeNet",
        size_mib=4.71,
        fit=_fit(2.16, 22.60, -93.22),
        samples=_CIFAR[0],
        data_bytes=_CIFAR[1],
        limit_s=3000,
        most_samples=384,
        theirs=_setup(2, 768, 128, 1, 201),
        server=_setup(2, 768, 192, 2, 192),
        usd=0.104,
        best_usd=0.098,
    ),
)


def throughput(size_bytes: float, latency_s: float) -> float:
    """tp of a message, in bytes a second; see the module."""
    rate = given(platform("aws-lambda").uplink_bytes_per_s, "rate of aws-lambda")
    return size_bytes / (latency_s + size_bytes / rate)


def _s3_latency_s() -> float:
    return given(store("s3").latency_s, "latency of s3")


def scheduled_s(size_bytes: float, workers: int, aggregators: int, latency_s: float) -> float:
    """K-REDUCE's schedule in virtual time; each message pays its own latency, within tp."""
    rate = throughput(size_bytes / aggregators, latency_s)
    return sum_s("k-reduce", workers, size_bytes, rate, 0.0, aggregators=aggregators)


_WORKERS_3, _MEMORY_3, _SAMPLES_3 = 8, 2048, 128


def _panel_3(load: Workload, workers: int, latency_s: float) -> Panel:
    ks = tuple(range(1, workers + 1))
    train_s = load.fit.step_s(_SAMPLES_3, _MEMORY_3)
    return Panel(
        title=f"{load.title}, {workers} workers",
        x="K (aggregators)",
        y="time of an iteration (s)",
        series=(
            Series(
                name="communication",
                xs=ks,
                ys=tuple(scheduled_s(load.size_bytes, workers, k, latency_s) for k in ks),
            ),
            Series(name="training", xs=ks, ys=(train_s,) * workers),
        ),
    )


def best_k(panel: Panel) -> int:
    """The K of the least communication."""
    found = panel.named("communication")
    return int(min(zip(found.ys, found.xs, strict=True))[1])


def figure_3() -> Figure:
    """Training and communication against the number of aggregators."""
    loads = {one.title: one for one in WORKLOADS}
    latency_s = _s3_latency_s()
    sizes = (4, _WORKERS_3, 32)
    panels = [
        _panel_3(loads[title], workers, latency_s)
        for title in ("ResNet50", "SqueezeNet")
        for workers in sizes
    ]
    by = {panel.title: panel for panel in panels}
    wide = by["ResNet50, 32 workers"].named("communication")
    best = best_k(by["ResNet50, 32 workers"])
    small = [best_k(by[f"SqueezeNet, {workers} workers"]) for workers in sizes]
    two = by[f"SqueezeNet, {_WORKERS_3} workers"].named("communication")
    first = by[f"ResNet50, {_WORKERS_3} workers"]
    ratio = first.named("communication").ys[0] / first.named("training").ys[0]
    # As the paper has it, equation 1b; the one message that tells of tp, see docs/papers.md.
    squeeze = loads["SqueezeNet"]
    rate = throughput(squeeze.size_bytes, latency_s)
    aggregated_s = aggregate_s(squeeze.size_bytes, 2, 1, rate, rate)
    others = int(
        squeeze.theirs.own
        + aggregated_s * (squeeze.theirs.memory_mib + squeeze.fit.m) / squeeze.fit.a
    )
    return Figure(
        name="fasdl-3",
        what="FasDL, figure 3: time of an iteration by the number of aggregators",
        panels=tuple(panels),
        columns=3,
        facts=(
            Fact(
                what="SqueezeNet: best K with 4, 8 and 32 workers",
                theirs="1 or 2",
                ours=", ".join(map(str, small)),
                agrees=max(small[:2]) <= 2,
            ),
            Fact(
                what="SqueezeNet, 8 workers: communication at K = 2 over that at the best K",
                theirs="1 or 2 is best",
                ours=times(two.at(2) / min(two.ys)),
                agrees=two.at(2) / min(two.ys) < 1.05,
            ),
            Fact(
                what="ResNet50, 32 workers: best K, and time at K = 1 and at K = W over that",
                theirs="in between; U-shaped",
                ours=f"{best}; {wide.at(1) / wide.at(best):.1f} x, "
                f"{wide.at(32) / wide.at(best):.2f} x",
                agrees=1 < best < 32,
            ),
            Fact(
                what="the same, 8 workers: best K",
                theirs="in between",
                ours=str(best_k(first)),
                agrees=best_k(first) < _WORKERS_3,
            ),
            Fact(
                what="ResNet50, 8 workers, K = 1: communication over training",
                theirs="greatly exceeds",
                ours=f"{ratio:.1f} x",
                agrees=ratio > 2,
            ),
            Fact(
                what="SqueezeNet, 2 workers, K = 1: B^n by equation 16 (tells of tp)",
                theirs=str(squeeze.theirs.others),
                ours=str(others),
                agrees=abs(others / squeeze.theirs.others - 1) < 0.05,
            ),
        ),
    )


CHANNELS = ("S3", "ElastiCache", "server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What configurations take, one or an array of them: seconds of the run, and dollars."""

    seconds: Any
    functions_usd: Any
    channel_usd: Any

    @property
    def usd(self) -> Any:
        """Altogether."""
        return self.functions_usd + self.channel_usd


def taken(load: Workload, setup: Setup, channel: str, epochs: float) -> Taken:
    """Equations 5 to 11 (9 corrected); `setup.memory_mib` and `others` may be arrays."""
    size, workers = load.size_bytes, setup.workers
    steps = load.samples / setup.samples
    latency_s = _s3_latency_s() if channel == "S3" else _FAST_LATENCY_S
    rate = throughput(size, latency_s)
    most = np.maximum(setup.own, setup.others)
    load_s = loading_s(size, load.data_bytes, most, setup.samples, rate)
    train_s = load.fit.a * (setup.own + load.fit.b) / (setup.memory_mib + load.fit.m)
    if channel == "server":
        pushed_s = max(size / rate, workers * size / _SERVER_BYTES_PER_S)
        sync_s = 2 * (pushed_s + _FAST_LATENCY_S)
    else:
        shard_rate = throughput(size / setup.aggregators, latency_s)
        sync_s = communication_s(size, workers, setup.aggregators, shard_rate, shard_rate, 0.0)
    seconds = run_s(load_s, train_s, sync_s, steps, epochs)
    usd = functions_usd(
        prices("aws-lambda").usd_per_gb_s, seconds, setup.memory_mib / 1024, workers
    )
    if channel == "S3":
        put_usd = given(store("s3").usd_per_put, "price of s3")
        get_usd = given(store("s3").usd_per_get, "price of s3")
        other = requests_usd(put_usd, get_usd, workers, setup.aggregators, steps, epochs)
    elif channel == "ElastiCache":
        row = store("elasticache")
        unit_usd = given(row.usd_per_put, "price of elasticache")
        per_byte = unit_usd / given(row.put_unit_bytes, "unit of elasticache")
        other = transfer_usd(per_byte, load.data_bytes, round(size), workers, steps, epochs)
    else:
        machine = prices("vm-m5-large")
        moved = 2 * workers * size * steps * epochs
        # Each byte is billed as it leaves a zone, and as it comes into the other.
        other = machine.usd_per_s * seconds + 2 * _USD_PER_GB_MOVED * moved / _GB
    return Taken(seconds=seconds, functions_usd=usd, channel_usd=other)


def alone(load: Workload, setup: Setup, channel: str, epochs: float) -> Taken:
    """Of one configuration, in plain numbers."""
    one = taken(load, setup, channel, epochs)
    return Taken(
        seconds=float(one.seconds),
        functions_usd=float(one.functions_usd),
        channel_usd=float(one.channel_usd),
    )


@cache
def epochs_of(load: Workload) -> int:
    """E: the paper's configuration then costs, by our formulas, what its table III says."""
    each_usd: float = alone(load, load.theirs, "S3", 1.0).usd
    return max(1, round(load.usd / each_usd))


@cache
def cheapest(load: Workload, channel: str) -> tuple[Setup, Taken]:
    """Of the least dollars within T_con and B^g_max (equation 12), by enumeration.

    Memory in steps of 128 MiB, samples of aggregators in steps of 16; B^n by equation 16. A server
    has no aggregators: all workers have equal samples.
    """
    best: tuple[Setup, Taken] | None = None
    for setup in _candidates(load, channel):
        many = taken(load, setup, channel, epochs_of(load))
        fits = np.array(many.seconds) <= load.limit_s
        fits &= _needed_mib(load, np.maximum(setup.own, setup.others)) <= setup.memory_mib
        fits &= setup.others >= 1
        if not fits.any():
            continue
        place = int(np.where(fits, many.usd, np.inf).argmin())
        if best is None or many.usd[place] < best[1].usd:
            one = _setup(
                setup.workers,
                int(setup.memory_mib[place]),
                setup.own,
                setup.aggregators,
                int(setup.others[place]),
            )
            best = one, alone(load, one, channel, epochs_of(load))
    if best is None:
        raise ValueError(f"{load.title} over {channel} cannot be done in {load.limit_s} s")
    return best


def _candidates(load: Workload, channel: str) -> Iterator[Setup]:
    """Workers, aggregators and their samples, each with all memory sizes at once."""
    memory: Any = np.arange(_MEMORY_STEP_MIB, _MOST_MIB + 1, _MEMORY_STEP_MIB)
    least = load.fit.b / (1 / _GAMMA - 1)  # equation 14
    for workers in range(2, int(load.most_samples / least) + 1):
        for own in range(16, load.most_samples // workers + 1, 16):
            if own < least:
                continue
            for k in range(1, workers + 1) if channel != "server" else (workers,):
                yield Setup(
                    workers=workers,
                    memory_mib=memory,
                    aggregators=k,
                    own=own,
                    others=_others(load, workers, own, k, memory, channel),
                )


def _others(load: Workload, workers: int, own: int, k: int, memory_mib: Any, channel: str) -> Any:
    """B^n by equation 16, the least of it and of what memory and B^g allow, rounded down."""
    if k == workers:
        return np.full(memory_mib.shape, own)
    latency_s = _s3_latency_s() if channel == "S3" else _FAST_LATENCY_S
    rate = throughput(load.size_bytes / k, latency_s)
    aggregated_s = aggregate_s(load.size_bytes, workers, k, rate, rate)
    by_time = own + aggregated_s * (memory_mib + load.fit.m) / load.fit.a
    by_memory = (memory_mib - _needed_mib(load, 0)) / load.sample_mib
    by_batch = (load.most_samples - k * own) / (workers - k)
    return np.maximum(0, np.floor(np.minimum(np.minimum(by_time, by_memory), by_batch)))


def _needed_mib(load: Workload, samples: Any) -> Any:
    return _BASE_MIB + 4 * load.size_mib + samples * load.sample_mib


def figure_13() -> Figure:
    """The least dollars over S3, over ElastiCache, and with a parameter server."""
    titles = tuple(one.title for one in WORKLOADS)
    found = {(load.title, name): cheapest(load, name) for load in WORKLOADS for name in CHANNELS}
    usd = {case: one.usd for case, (_, one) in found.items()}
    theirs = {one.title: alone(one, one.theirs, "S3", epochs_of(one)) for one in WORKLOADS}
    panels = (
        Panel(
            title="least cost within the limits of time and batch",
            x="",
            y="USD",
            log_y=True,
            series=(
                *_bars(usd),
                Series(
                    name="S3, the paper's table III",
                    xs=titles,
                    ys=tuple(one.usd for one in WORKLOADS),
                    kind="bars",
                    theirs=True,
                ),
            ),
        ),
        Panel(
            title="of it, for the channel",
            x="",
            y="part of the cost (%)",
            series=_bars({k: 100 * one.channel_usd / one.usd for k, (_, one) in found.items()}),
        ),
        Panel(
            title="time of that",
            x="",
            y="s",
            series=(
                *_bars({case: one.seconds for case, (_, one) in found.items()}),
                Series(
                    name="limit, the paper's table IV",
                    xs=titles,
                    ys=tuple(one.limit_s for one in WORKLOADS),
                    kind="bars",
                    theirs=True,
                ),
            ),
        ),
    )
    dearer = [
        alone(one, one.theirs, "ElastiCache", 1.0).channel_usd
        / alone(one, one.theirs, "S3", 1.0).channel_usd
        for one in WORKLOADS
    ]
    over_cache = {title: usd[title, "ElastiCache"] / usd[title, "S3"] for title in titles}
    slower = float(
        found["BERT-Base", "ElastiCache"][1].seconds / found["BERT-Base", "S3"][1].seconds
    )
    saved = {
        title: 1 - min(usd[title, "S3"], usd[title, "ElastiCache"]) / usd[title, "server"]
        for title in titles
    }
    facts = [
        Fact(
            what=f"{load.title}: the paper's K-REDUCE configuration, seconds (limit in table IV)",
            theirs=f"at most {load.limit_s:.0f}",
            ours=f"{theirs[load.title].seconds:.0f}, {epochs_of(load)} epochs",
            agrees=theirs[load.title].seconds <= 1.06 * load.limit_s,
        )
        for load in WORKLOADS
    ]
    facts += [
        Fact(
            what=f"{load.title}: least cost over S3 (table III, brute force)",
            theirs=f"${load.best_usd:.3g}",
            ours=f"${usd[load.title, 'S3']:.3g}",
            agrees=abs(usd[load.title, "S3"] / load.best_usd - 1) < 0.15,
        )
        for load in WORKLOADS
    ]
    facts += [
        Fact(
            what="table IV: ElastiCache's bill over S3's: BERT, ResNet50, MobileNet, SqueezeNet",
            theirs="the more, the larger the model",
            ours=", ".join(f"{one:.0f} x" for one in dearer),
            agrees=dearer == sorted(dearer, reverse=True),
        ),
        Fact(
            what="BERT: ElastiCache dearer than S3, and slower",
            theirs="both",
            ours=f"{times(over_cache['BERT-Base'])} the cost, {times(slower)} the time",
            agrees=over_cache["BERT-Base"] > 1 and slower > 1,
        ),
        Fact(
            what="most that a store saves over a parameter server",
            theirs="78.13 %",
            ours=f"{percent(max(saved.values()))} ({max(saved, key=lambda one: saved[one])})",
            agrees=abs(max(saved.values()) - 0.7813) < 0.1,
        ),
        Fact(
            what="S3 and ElastiCache both cheaper than a server",
            theirs="all models",
            ours=f"{sum(_both_cheaper(usd, title) for title in titles)} of {len(titles)}",
            agrees=all(_both_cheaper(usd, title) for title in titles),
        ),
    ]
    return Figure(
        name="fasdl-13",
        what="FasDL, figure 13: what to talk through",
        panels=panels,
        columns=3,
        facts=tuple(facts),
    )


def _both_cheaper(usd: Mapping[tuple[str, str], float], title: str) -> bool:
    return max(usd[title, "S3"], usd[title, "ElastiCache"]) < usd[title, "server"]


def _bars(values: Mapping[tuple[str, str], float]) -> tuple[Series, ...]:
    titles = tuple(one.title for one in WORKLOADS)
    return tuple(
        Series(
            name=f"{name}, ours",
            xs=titles,
            ys=tuple(float(values[title, name]) for title in titles),
            kind="bars",
        )
        for name in CHANNELS
    )
