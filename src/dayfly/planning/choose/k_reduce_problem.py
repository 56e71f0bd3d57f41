"""FasDL's problem (section VI-A): workers, memory, aggregators and batches, and what limits them.

    M, W, K      memory of a function; functions; aggregators among them
    B^a, B^n     samples of a step for an aggregator, and for another function;  B^g  for all
    B_M          samples that memory M allows in a step
    S_m, S_d, D  bytes of the parameters, bytes of the data, samples
    E            epochs

Memory is MiB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.in_words import counted
from dayfly.planning.figures import Affine, Transfer

#: FasDL's step of batch sizes, and the least part of a function's best rate that a batch is to
#: reach: "empirically set between 0.6 and 0.8" (section VI-B).
STEP, RATE = 16, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSize:
    """Functions of one memory size: how fast they are, what they hold, what they cost.

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
    lives for an epoch. Raises RequestError for what is empty or below 1, and a store without
    prices.
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

    def __post_init__(self) -> None:
        counts = (self.workers, self.aggregators_samples, self.aggregators or (1,))
        if not self.sizes or any(not numbers or min(numbers) < 1 for numbers in counts):
            raise RequestError(
                "a choice needs memory sizes, workers, aggregators and their batches: give one of "
                "each at least, from 1"
            )
        if self.size_bytes <= 0 or self.samples < 1 or self.epochs <= 0:
            raise RequestError(
                f"{self.size_bytes:g} bytes of parameters, {self.samples} samples, {self.epochs:g} "
                "epochs: give more than 0 of each"
            )
        if self.store is not None:
            self.store.check_priced()


@dataclass(frozen=True, slots=True, kw_only=True)
class KReducePlan:
    """W, M, K, B^a and B^n. others_samples: 0 where all are aggregators."""

    workers: int
    memory_mib: int
    aggregators: int
    aggregators_samples: int
    others_samples: int

    @property
    def global_samples(self) -> int:
        """B^g, equation 6."""
        others = self.workers - self.aggregators
        return self.aggregators * self.aggregators_samples + others * self.others_samples

    def __str__(self) -> str:
        each = f"{self.aggregators_samples} samples"
        if others := self.workers - self.aggregators:
            first = f"{counted(self.aggregators, 'aggregator')} with {each}"
            each = f"{first}, {counted(others, 'other')} with {self.others_samples}"
        return f"{counted(self.workers, 'function')} of {self.memory_mib} MiB, {each}"


def batches(
    size: FunctionSize, most_samples: int, *, rate: float = RATE, step: int = STEP
) -> tuple[int, ...]:
    """Batches of aggregators to consider: in steps, from B_lower to `most_samples`.

    Equations 13 and 14: a batch B reaches 1/(1 + b/B) of the function's best rate, which is to be
    `rate` at least, so B_lower = b/(1/rate - 1), rounded up to a step here. `most_samples` itself
    if that is less. rate 0: from the first step on. b is the same for all memory sizes in
    equation 4; of sizes that are measured apart, take the one whose b is least.
    """
    b = size.train.fixed / size.train.each
    least = max(1, math.ceil(b / (1 / rate - 1) / step)) if rate else 1
    return tuple(range(least * step, most_samples + 1, step)) or (most_samples,)
