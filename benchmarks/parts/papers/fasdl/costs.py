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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.parts.papers.fasdl.workloads import BASE_MIB, Setup, Workload, make_setup
from benchmarks.parts.papers.formulas.fasdl import transfer_usd
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


_SERVER_BYTES_PER_S, _USD_PER_GB_MOVED = 1.25e9, 0.01


_MEMORY_STEP_MIB, _MOST_MIB = 128, 10240


_GAMMA = 0.6  # least part of the greatest training rate (equation 14; the paper: 0.6 to 0.8)


def throughput(size_bytes: float, latency_s: float) -> float:
    """tp of a message, in bytes a second; see the module."""
    rate = given(platform("aws-lambda").uplink_bytes_per_s, "rate of aws-lambda")
    return size_bytes / (latency_s + size_bytes / rate)


def s3_latency_s() -> float:
    return given(store("s3").latency_s, "latency of s3")


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
    latency_s = s3_latency_s() if channel == "S3" else FAST_LATENCY_S
    rate = throughput(size, latency_s)
    most = np.maximum(setup.own, setup.others)
    load_s = loading_s(size, load.data_bytes, most, setup.samples, rate)
    train_s = load.fit.a * (setup.own + load.fit.b) / (setup.memory_mib + load.fit.m)
    if channel == "server":
        pushed_s = max(size / rate, workers * size / _SERVER_BYTES_PER_S)
        sync_s = 2 * (pushed_s + FAST_LATENCY_S)
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
        other = machine.usd_per_s * seconds + 2 * _USD_PER_GB_MOVED * moved / GB
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
            one = make_setup(
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
    latency_s = s3_latency_s() if channel == "S3" else FAST_LATENCY_S
    rate = throughput(load.size_bytes / k, latency_s)
    aggregated_s = aggregate_s(load.size_bytes, workers, k, rate, rate)
    by_time = own + aggregated_s * (memory_mib + load.fit.m) / load.fit.a
    by_memory = (memory_mib - _needed_mib(load, 0)) / load.sample_mib
    by_batch = (load.most_samples - k * own) / (workers - k)
    return np.maximum(0, np.floor(np.minimum(np.minimum(by_time, by_memory), by_batch)))


def _needed_mib(load: Workload, samples: Any) -> Any:
    return BASE_MIB + 4 * load.size_mib + samples * load.sample_mib
