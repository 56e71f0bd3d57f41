"""What FasDL's configurations take, and the cheapest of them.

The paper's formulas are those of `papers.formulas.fasdl`, its coefficients a, b, m those
of its table II, and its limits those of table IV. What it does not print, and is assumed here:

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

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.parts.papers.fasdl.workloads import BASE_MIB, Setup, Workload, make_setup
from benchmarks.parts.papers.formulas.fasdl import printed_communication_s, transfer_usd
from benchmarks.parts.papers.rows import given, platform, prices, store
from dayfly.planning.choose.formulas import (
    aggregate_s,
    communication_s,
    functions_usd,
    loading_s,
    requests_usd,
    run_s,
)

MIB, GB = 2**20, 2**30


FAST_LATENCY_S = 0.001  # of ElastiCache, and of a server


_SERVER_BYTES_PER_S = 1.25e9


_MEMORY_STEP_MIB, MOST_MIB = 128, 10240


_GAMMA = 0.6  # least part of the greatest training rate (equation 14; the paper: 0.6 to 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What the paper does not print, to be changed one by one.

    bytes_per_s: of a worker's link, each way; None: the catalogue's. s3_latency_s: of a message;
    None: the catalogue's. printed: sums take equation 3 as printed, not as a schedule of K-REDUCE
    takes them. move_usd_per_gb: of what a server sends or gets.
    """

    bytes_per_s: float | None = None
    s3_latency_s: float | None = None
    printed: bool = False
    move_usd_per_gb: float = 0.01

    def latency_s(self, channel: str) -> float:
        """Of a message through a channel."""
        if channel != "S3":
            return FAST_LATENCY_S
        if self.s3_latency_s is not None:
            return self.s3_latency_s
        return given(store("s3").latency_s, "latency of s3")

    def throughput(self, size_bytes: float, channel: str) -> float:
        """tp of a message, in bytes a second; see the module."""
        rate = self.bytes_per_s
        if rate is None:
            rate = given(platform("aws-lambda").uplink_bytes_per_s, "rate of aws-lambda")
        return size_bytes / (self.latency_s(channel) + size_bytes / rate)


USUAL = Assumed()
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


def taken(
    load: Workload, setup: Setup, channel: str, epochs: float, assumed: Assumed = USUAL
) -> Taken:
    """Equations 5 to 11 (9 corrected); `setup.memory_mib` and `others` may be arrays."""
    size, workers = load.size_bytes, setup.workers
    steps = load.samples / setup.samples
    rate = assumed.throughput(size, channel)
    most = np.maximum(setup.own, setup.others)
    load_s = loading_s(size, load.data_bytes, most, setup.samples, rate)
    train_s = load.fit.a * (setup.own + load.fit.b) / (setup.memory_mib + load.fit.m)
    sync_s = summed_s(load, setup, channel, assumed)
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
        other = machine.usd_per_s * seconds + 2 * assumed.move_usd_per_gb * moved / GB
    return Taken(seconds=seconds, functions_usd=usd, channel_usd=other)


def summed_s(load: Workload, setup: Setup, channel: str, assumed: Assumed = USUAL) -> float:
    """T_comm: equation 3, or push and pull through a server."""
    size, workers = load.size_bytes, setup.workers
    if workers == 1:
        return 0.0
    if channel == "server":
        own_s = size / assumed.throughput(size, channel)
        return 2 * (max(own_s, workers * size / _SERVER_BYTES_PER_S) + FAST_LATENCY_S)
    shard_rate = assumed.throughput(size / setup.aggregators, channel)
    links = (size, workers, setup.aggregators, shard_rate, shard_rate)
    return printed_communication_s(*links) if assumed.printed else communication_s(*links, 0.0)


def alone(
    load: Workload, setup: Setup, channel: str, epochs: float, assumed: Assumed = USUAL
) -> Taken:
    """Of one configuration, in plain numbers."""
    one = taken(load, setup, channel, epochs, assumed)
    return Taken(
        seconds=float(one.seconds),
        functions_usd=float(one.functions_usd),
        channel_usd=float(one.channel_usd),
    )


@cache
def epochs_of(load: Workload, assumed: Assumed = USUAL) -> int:
    """E: the paper's configuration then costs, by our formulas, what its table III says."""
    each_usd: float = alone(load, load.theirs, "S3", 1.0, assumed).usd
    return max(1, round(load.usd / each_usd))


@cache
def cheapest(load: Workload, channel: str, assumed: Assumed = USUAL) -> tuple[Setup, Taken]:
    """Of the least dollars within T_con and B^g_max (equation 12), by enumeration.

    Memory in steps of 128 MiB, samples of aggregators in steps of 16; B^n by equation 16. A server
    has no aggregators: all workers have equal samples.
    """
    return _least(load, channel, assumed, load.limit_s, lambda many: many.usd)


@cache
def fastest(load: Workload, channel: str, assumed: Assumed = USUAL) -> tuple[Setup, Taken]:
    """Of the least seconds within B^g_max, by the same enumeration."""
    return _least(load, channel, assumed, math.inf, lambda many: many.seconds)


def _least(
    load: Workload,
    channel: str,
    assumed: Assumed,
    limit_s: float,
    value: Callable[[Taken], Any],
) -> tuple[Setup, Taken]:
    best: tuple[Setup, Taken] | None = None
    epochs = epochs_of(load, assumed)
    for setup in _candidates(load, channel, assumed):
        many = taken(load, setup, channel, epochs, assumed)
        fits = np.array(many.seconds) <= limit_s
        fits &= needed_mib(load, np.maximum(setup.own, setup.others)) <= setup.memory_mib
        fits &= setup.others >= 1
        if not fits.any():
            continue
        place = int(np.where(fits, value(many), np.inf).argmin())
        if best is None or value(many)[place] < value(best[1]):
            one = make_setup(
                setup.workers,
                int(setup.memory_mib[place]),
                setup.own,
                setup.aggregators,
                int(setup.others[place]),
            )
            best = one, alone(load, one, channel, epochs, assumed)
    if best is None:
        raise ValueError(f"{load.title} over {channel} cannot be done in {limit_s} s")
    return best


def _candidates(load: Workload, channel: str, assumed: Assumed) -> Iterator[Setup]:
    """Workers, aggregators and their samples, each with all memory sizes at once."""
    memory: Any = np.arange(_MEMORY_STEP_MIB, MOST_MIB + 1, _MEMORY_STEP_MIB)
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
                    others=_others(load, workers, own, k, memory, channel, assumed),
                )


def _others(
    load: Workload,
    workers: int,
    own: int,
    k: int,
    memory_mib: Any,
    channel: str,
    assumed: Assumed,
) -> Any:
    """B^n by equation 16, the least of it and of what memory and B^g allow, rounded down."""
    if k == workers:
        return np.full(memory_mib.shape, own)
    rate = assumed.throughput(load.size_bytes / k, channel)
    aggregated_s = aggregate_s(load.size_bytes, workers, k, rate, rate)
    by_time = own + aggregated_s * (memory_mib + load.fit.m) / load.fit.a
    by_memory = (memory_mib - needed_mib(load, 0)) / load.sample_mib
    by_batch = (load.most_samples - k * own) / (workers - k)
    return np.maximum(0, np.floor(np.minimum(np.minimum(by_time, by_memory), by_batch)))


def needed_mib(load: Workload, samples: Any) -> Any:
    """Memory of a worker with so many samples; see the module."""
    return BASE_MIB + 4 * load.size_mib + samples * load.sample_mib
