"""FasDL's problem (section VI-A), and tables of what does not depend on batches.

    M, W, K      memory of a function; functions; aggregators among them
    B^a, B^n     samples of a step for an aggregator, and for another function;  B^g  for all
    B_M          samples that memory M allows in a step
    S_m, S_d, D  bytes of the parameters, bytes of the data, samples
    E            epochs

Memory is MiB. Arrays: P pairs (W, K), K different numbers of aggregators, S memory sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from dayfly.catalogue.store import StoreFacts
from dayfly.elementwise import least
from dayfly.errors import RequestError
from dayfly.planning.choose.arrays import Array, Ints, on_arrays
from dayfly.planning.choose.formulas import aggregate_s, requests_usd, rounds_of
from dayfly.planning.choose.front import counted
from dayfly.planning.decline import Decline, left_of_bandwidth
from dayfly.planning.function_kinds import BY_MEMORY, FunctionKind
from dayfly.planning.profile import Affine, Transfer
from dayfly.wire.collectives.k_reduce import k_reduce_bytes
from dayfly.wire.streams import HostLink

#: FasDL's step of batch sizes, and the least part of a function's best rate that a batch is to
#: reach: "empirically set between 0.6 and 0.8" (section VI-B).
STEP, RATE = 16, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSize:
    """Functions of one memory size.

    train: seconds of a step of so many samples; equation 4 is such a line for each M. up, down: its
    way to the store. most_samples: B_M; 0: not even the model fits. usd_per_s: of one function.
    start_s: what each epoch's functions take before they load anything. most_workers: at once.
    """

    memory_mib: int
    train: Affine
    up: Transfer
    down: Transfer
    most_samples: int
    usd_per_s: float
    start_s: float = 0.0
    most_workers: float = math.inf

    def __post_init__(self) -> None:
        if self.train.each <= 0 or self.train.fixed < 0:
            raise RequestError(
                f"a step on {self.memory_mib} MiB takes {self.train.fixed:g} s and "
                f"{self.train.each:g} s a sample: it must take longer the more samples it has"
            )

    def allows(self, workers: int) -> bool:
        """Whether so many may be there at once."""
        return workers <= self.most_workers

    @property
    def latency_s(self) -> float:
        """Of a message, either way."""
        return max(self.up.latency_s.value, self.down.latency_s.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class KReduceProblem:
    """What there is to choose among, and its limits.

    sizes: of functions, by rising memory. workers: all W to consider; the largest is the limit of
    functions at once. aggregators: all K to consider; None: any. aggregators_samples: all B^a to
    consider, rising; see `batches`. most_global_samples: B^g may be so many (equation 12). store:
    whose prices messages have; None: they cost nothing. usd_per_invocation: of a function, which
    lives for an epoch. store_bytes_per_s: what the store carries each way for all functions, which
    share it evenly; infinite: any. decline: of a function's own (`planning.decline`). host: shared
    by functions on it. Raises RequestError for what is empty, below 1, and a store without prices.
    """

    size_bytes: float
    data_bytes: float
    samples: int
    epochs: float
    sizes: tuple[FunctionSize, ...]
    workers: tuple[int, ...]
    aggregators: tuple[int, ...] | None = None
    aggregators_samples: tuple[int, ...]
    most_global_samples: int
    store: StoreFacts | None = None
    usd_per_invocation: float = 0.0
    store_bytes_per_s: float = math.inf
    decline: Decline = ()
    host: HostLink | None = None

    def __post_init__(self) -> None:
        counts = (self.workers, self.aggregators_samples, self.aggregators or (1,))
        if not self.sizes or any(not numbers or min(numbers) < 1 for numbers in counts):
            what = "memory sizes, workers, aggregators and their batches"
            raise RequestError(f"a choice needs {what}: give one of each at least, from 1")
        if self.size_bytes <= 0 or self.samples < 1 or self.epochs <= 0:
            what = f"{self.size_bytes:g} bytes of parameters, {self.samples} samples"
            raise RequestError(f"{what}, {self.epochs:g} epochs: give more than 0 of each")
        if (rate := self.store_bytes_per_s) <= 0:
            raise RequestError(f"a store of {rate:g} bytes/s for all: give more than 0")
        if self.store is not None:
            self.store.check_priced()

    def aggregators_of(self, workers: int) -> Ints:
        """Returns all K of so many functions, rising."""
        every = np.arange(1, workers + 1)
        return every if self.aggregators is None else np.intersect1d(every, self.aggregators)

    def share(self, workers: int) -> float:
        """Returns the most bytes a second that each of so many functions has; elementwise."""
        of_host = math.inf if self.host is None else self.host.share(workers)
        share: float = least(self.store_bytes_per_s / workers, of_host)
        return share

    @property
    def data_usd(self) -> float:
        """Dollars an epoch for the bytes of the data, in and out of the store: 2 S_d (10)."""
        size = math.ceil(self.data_bytes)
        return 0.0 if self.store is None else self.store.transfer_usd(size, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class KReducePlan:
    """W, M, K, B^a and B^n. others_samples: 0 where all are aggregators. has: of a function, beside
    its memory."""

    workers: int
    memory_mib: int
    aggregators: int
    aggregators_samples: int
    others_samples: int
    has: FunctionKind = BY_MEMORY

    @property
    def global_samples(self) -> int:
        """B^g, equation 6."""
        others = self.workers - self.aggregators
        return self.aggregators * self.aggregators_samples + others * self.others_samples

    def __str__(self) -> str:
        each = f"{self.aggregators_samples} samples"
        if others := self.workers - self.aggregators:
            has = f" with {each}" if self.aggregators_samples else " only to sum"
            first = f"{counted(self.aggregators, 'aggregator')}{has}"
            each = f"{first}, {counted(others, 'other')} with {self.others_samples}"
        return f"{counted(self.workers, 'function')} of {self.memory_mib} MiB, {each}"


def batches(
    train: Affine, most_samples: int, *, rate: float = RATE, step: int = STEP
) -> tuple[int, ...]:
    """Batches of aggregators to consider: in steps, from B_lower to `most_samples`.

    Equations 13 and 14: a batch B reaches 1/(1 + b/B) of the function's best rate, which is to be
    `rate` at least, so B_lower = b/(1/rate - 1), rounded up to a step here. `most_samples` itself
    if that is less. rate 0: from the first step on. b is the same for all memory sizes in
    equation 4; of sizes that are measured apart, take the one whose b is least.
    train: seconds of a step of so many samples.
    """
    b = train.fixed / train.each
    least = max(1, math.ceil(b / (1 / rate - 1) / step)) if rate else 1
    return tuple(range(least * step, most_samples + 1, step)) or (most_samples,)


@dataclass(frozen=True, slots=True)
class Grid:
    """Pairs, by rising workers, then aggregators: (P,), parts of rounds (P, 3).

    aggregator, other: rounds of who aggregates and who does not. step_usd: of a step's messages;
    kept_usd_per_s: of keeping them. left: part of a function's bandwidth. shard: of `shards`, K.
    """

    workers: Ints
    aggregators: Ints
    aggregator: Array
    other: Array
    step_usd: Array
    kept_usd_per_s: Array
    left: Array
    shard: Ints
    shards: Ints

    @classmethod
    def of(cls, problem: KReduceProblem) -> Self:
        """All that keep the limit of the global batch."""
        p = problem
        most = p.most_global_samples // min(p.aggregators_samples)
        counts = [one for one in sorted(set(p.workers)) if one <= most]
        of_each = [p.aggregators_of(one) for one in counts]
        many = [len(one) for one in of_each]
        workers = np.repeat(np.array(counts, dtype=np.int64), many)
        aggregators = np.concatenate([np.empty(0, dtype=np.int64), *of_each])
        shards, shard = np.unique(aggregators, return_inverse=True)
        rounds = cast("Callable[..., tuple[tuple[Array, ...], ...]]", rounds_of)
        aggregator, other = (np.stack(one, axis=1) for one in rounds(workers, aggregators))
        return cls(
            workers=workers,
            aggregators=aggregators,
            aggregator=aggregator,
            other=other,
            step_usd=_step_usd(p, counts, of_each),
            kept_usd_per_s=np.repeat([_kept_usd_per_s(p, one) for one in counts], many),
            left=np.repeat([left_of_bandwidth(p.decline, one) for one in counts], many),
            shard=shard,
            shards=shards,
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """What `FunctionSize` says, (S,). fixed_s, each_s: of training. down_bytes_per_s: at best."""

    fixed_s: Array
    each_s: Array
    start_s: Array
    usd_per_s: Array
    most_samples: Ints
    most_workers: Array
    down_bytes_per_s: Array

    @classmethod
    def of(cls, problem: KReduceProblem) -> Self:
        """All of them."""
        every = problem.sizes
        return cls(
            fixed_s=np.array([one.train.fixed for one in every]),
            each_s=np.array([one.train.each for one in every]),
            start_s=np.array([one.start_s for one in every]),
            usd_per_s=np.array([one.usd_per_s for one in every]),
            most_samples=np.array([one.most_samples for one in every]),
            most_workers=np.array([one.most_workers for one in every]),
            down_bytes_per_s=np.array([one.down.peak_bytes_per_s.value for one in every]),
        )


@dataclass(frozen=True, slots=True)
class Tables:
    """Of a problem; U different ways to the store.

    way: (S,), of each size. aggregator_s, other_s: (U, P), both rounds, without training.
    aggregated_s: (U, P), T_agg of equation 1b.
    """

    problem: KReduceProblem
    grid: Grid
    sizes: Sizes
    way: Ints
    aggregator_s: Array
    other_s: Array
    aggregated_s: Array

    @classmethod
    def of(cls, problem: KReduceProblem) -> Self:
        """Of all pairs and sizes."""
        grid = Grid.of(problem)
        every = [(one.up, one.down, one.latency_s) for one in problem.sizes]
        ways = {way: number for number, way in enumerate(dict.fromkeys(every))}
        found = [_way(problem, grid, *way) for way in ways]
        aggregator_s, other_s, aggregated_s = map(np.stack, zip(*found, strict=True))
        return cls(
            problem=problem,
            grid=grid,
            sizes=Sizes.of(problem),
            way=np.array([ways[one] for one in every]),
            aggregator_s=aggregator_s,
            other_s=other_s,
            aggregated_s=aggregated_s,
        )


def _way(
    problem: KReduceProblem, grid: Grid, up: Transfer, down: Transfer, latency_s: float
) -> tuple[Array, Array, Array]:
    """Both rounds and T_agg of all pairs; bytes a second are of a shard's message (equation 2)."""
    shard_bytes = problem.size_bytes / grid.shards
    up_K, down_K = (
        np.array([way.throughput(one) for one in shard_bytes.tolist()]) for way in (up, down)
    )
    share_P = on_arrays(problem.share)(grid.workers)
    own = (grid.left * rate_K[grid.shard] for rate_K in (up_K, down_K))
    up_P, down_P = (np.minimum(rate_P, share_P) for rate_P in own)
    shard_P = shard_bytes[grid.shard]
    units_3P = (shard_P / up_P, shard_P / down_P, np.full_like(up_P, latency_s))
    whole = problem.size_bytes, grid.workers, grid.aggregators
    aggregated_s = on_arrays(aggregate_s)(*whole, up_P, down_P)
    return _sum(grid.aggregator, units_3P), _sum(grid.other, units_3P), aggregated_s


def _sum(parts_P3: Array, units_3P: tuple[Array, Array, Array]) -> Array:
    """In the order of the formulas, so that sums have the same bits."""
    whole: Array = sum(part * unit for part, unit in zip(parts_P3.T, units_3P, strict=True))
    return whole


@dataclass(frozen=True, slots=True)
class Rounds:
    """Functions of some sizes and pairs, by index, of any shapes that broadcast; see `Tables`."""

    tables: Tables
    size: Ints
    pair: Ints
    aggregator_s: Array
    other_s: Array
    aggregated_s: Array

    @classmethod
    def of(cls, tables: Tables, size: Ints, pair: Ints) -> Self:
        """Of these."""
        way = tables.way[size]
        return cls(
            tables=tables,
            size=size,
            pair=pair,
            aggregator_s=tables.aggregator_s[way, pair],
            other_s=tables.other_s[way, pair],
            aggregated_s=tables.aggregated_s[way, pair],
        )

    def only(self, at: Ints) -> Self:
        """Those at these indices, of one dimension."""
        return type(self).of(self.tables, self.size[at], self.pair[at])

    def train_s(self, samples: Ints) -> Array:
        """Seconds of a step of so many samples, messages left out: `FunctionSize.train`."""
        sizes, at = self.tables.sizes, self.size
        trained: Array = sizes.fixed_s[at] + sizes.each_s[at] * samples
        return trained

    @property
    def workers(self) -> Ints:
        """W."""
        return self.tables.grid.workers[self.pair]

    @property
    def aggregators(self) -> Ints:
        """K."""
        return self.tables.grid.aggregators[self.pair]

    @property
    def loading_bytes_per_s(self) -> Array:
        """Bytes a second at which a function reads model and data, as all do at once."""
        own = self.tables.sizes.down_bytes_per_s[self.size] * self.tables.grid.left[self.pair]
        return np.minimum(own, on_arrays(self.tables.problem.share)(self.workers))


def _step_usd(problem: KReduceProblem, counts: list[int], of_each: list[Ints]) -> Array:
    """Requests of a step (equation 9), and its bytes where they are billed (equation 10, with
    `KReduceProblem.data_usd`)."""
    store, size = problem.store, math.ceil(problem.size_bytes)
    if store is None:
        return np.zeros(sum(len(one) for one in of_each))
    most = range(1, max(counts, default=0) + 1)
    puts = np.array([store.puts_usd(1, -(-size // k)) for k in most])
    gets = np.array([store.gets_usd(1, -(-size // k)) for k in most])
    found = [np.empty(0)]
    for w, ks in zip(counts, of_each, strict=True):
        requests = on_arrays(requests_usd)(puts[ks - 1], gets[ks - 1], w, ks, 1, 1)
        found.append(requests + store.transfer_usd(*k_reduce_bytes(size, w)))
    return np.concatenate(found)


def _kept_usd_per_s(problem: KReduceProblem, workers: int) -> float:
    """A step's contributions are there at once, at most."""
    up_bytes, _ = k_reduce_bytes(math.ceil(problem.size_bytes), workers)
    return problem.store.storage_usd(up_bytes, 1.0) if problem.store else 0.0
