"""CE-scaling's problem (section III-B): functions, their memory, and the store between them.

    n, m, s      functions, memory of each, store: an allocation (equation 1)
    D, b_z       bytes of the data; bytes of a step for a function
    M            bytes of the model
    u(m), B_S3   seconds for a byte of data; bytes a second in which data are read
    b_s, l_s     bytes a second and latency of a store
    p_f(m), p_s  dollars of a function's second; of a request, or of a minute of a store

Memory is MiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.from_profile import (
    allowed,
    most_at_once,
    summed_bytes,
)
from dayfly.planning.choose.front import counted
from dayfly.planning.choose.k_reduce_from_profile import check_fits, most_samples, training
from dayfly.planning.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySize:
    """Functions of one memory size.

    compute_s_per_byte: u(m). loading_bytes_per_s: B_S3. usd_per_s: p_f(m). step_s: what a step
    takes beside its data and its sum, which the paper leaves out. most_batch_bytes: of data that
    fit into memory in a step; b_z at most. most_workers: at once.
    """

    memory_mib: int
    compute_s_per_byte: float
    loading_bytes_per_s: float
    usd_per_s: float
    step_s: float = 0.0
    most_batch_bytes: float = math.inf
    most_workers: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOption:
    """A store as equations 3 and 5 have it.

    bytes_per_s: b_s, of one transfer after another. latency_s: l_s. facts: prices of requests,
    bytes and what is kept, of a store that bills those. usd_per_minute: of a store that bills time,
    of which each epoch pays one minute more. sums: whether it is a parameter server, and sums up
    itself.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    facts: StoreFacts | None = None
    usd_per_minute: float = 0.0
    sums: bool = False

    @classmethod
    def of_store(
        cls, facts: StoreFacts, *, bytes_per_s: float, latency_s: float | None = None
    ) -> Self:
        """A store of the catalogue. bytes_per_s: of a function's way to it. latency_s: None: the
        catalogue's. Raises RequestError if that has no latency, or no prices."""
        facts.check_priced()
        latency_s = facts.latency_s if latency_s is None else latency_s
        if latency_s is None:
            raise RequestError(
                f"the catalogue has no latency_s of {facts.name}: give one, or add the row, with "
                "its source, to a catalogue of your own"
            )
        rate = min(bytes_per_s, facts.bytes_per_s or math.inf)
        return cls(name=facts.name, bytes_per_s=rate, latency_s=latency_s, facts=facts)

    @classmethod
    def of_machine(cls, machine: FunctionPlatform, *, bytes_per_s: float, latency_s: float) -> Self:
        """A parameter server on a machine of the catalogue (VM-PS). bytes_per_s: of a function's
        way to it. Raises RequestError if that is no machine, or has no prices."""
        if machine.prices is None or machine.machine_vcpus is None:
            raise RequestError(
                f"{machine.name} is no machine with prices in the catalogue: name one that is"
            )
        memory_mib = machine.memory_max_mib or 0
        ways = (machine.up_bytes_per_s(memory_mib), machine.down_bytes_per_s(memory_mib))
        return cls(
            name=machine.name,
            bytes_per_s=min([bytes_per_s, *(way for way in ways if way is not None)]),
            latency_s=latency_s,
            usd_per_minute=60 * machine.prices.usd_for_1_s(memory_mib, machine.machine_vcpus),
            sums=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProblem:
    """What there is to choose among, and its limits.

    batch_bytes: b_z, a function's in a step; shared_batch: all functions' together, as dayfly's
    batches are. sample_bytes: no function has less of a step. workers: all n to consider. at_once:
    the platform's limit of functions at once, which constraint 8 leaves out; None: no limit.
    usd_per_invocation: p_invk, of a function, which lives for an epoch. Raises RequestError for
    what is empty or not above 0, for a name twice, and if the limit leaves no n.
    """

    size_bytes: float
    data_bytes: float
    batch_bytes: float
    shared_batch: bool = False
    sample_bytes: float = 0.0
    epochs: float = 1.0
    sizes: tuple[MemorySize, ...]
    stores: tuple[StoreOption, ...]
    workers: tuple[int, ...]
    at_once: int | None = None
    usd_per_invocation: float = 0.0

    def __post_init__(self) -> None:
        if not self.sizes or not self.stores or not self.workers or min(self.workers) < 1:
            raise RequestError(
                "a choice needs memory sizes, stores and workers: give one of each at least, from 1"
            )
        if len({store.name for store in self.stores}) < len(self.stores):
            raise RequestError("two stores have one name: give each a name of its own")
        if min(self.size_bytes, self.data_bytes, self.batch_bytes, self.epochs) <= 0:
            raise RequestError(
                f"{self.size_bytes:g} bytes of a model, {self.data_bytes:g} of data, "
                f"{self.batch_bytes:g} of a batch, {self.epochs:g} epochs: give more than 0 of each"
            )
        if not self.sample_bytes <= self.batch_bytes <= self.data_bytes:
            raise RequestError(
                f"a batch of {self.batch_bytes:.0f} bytes is more than all {self.data_bytes:.0f} "
                f"bytes of data, or less than a sample of {self.sample_bytes:.0f}: give one between"
            )
        if self.at_once is not None and min(self.workers) > self.at_once:
            raise RequestError(
                f"{min(self.workers)} functions are more than the {self.at_once} at once that the "
                f"platform allows: take {self.at_once}"
            )

    def batch_of(self, workers: int) -> float:
        """b_z with so many functions."""
        return self.batch_bytes / workers if self.shared_batch else self.batch_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """An allocation: n, m and s. store: its name."""

    workers: int
    memory_mib: int
    store: str

    def __str__(self) -> str:
        functions = counted(self.workers, "function")
        return f"{functions} of {self.memory_mib} MiB over {self.store}"


def store_problem(
    profile: Profile,
    platform: FunctionPlatform,
    stores: Sequence[StoreOption],
    *,
    workers: Sequence[int],
    batch_size: int,
    at_once: int | None = None,
    vcpus_at_once: float = math.inf,
) -> StoreProblem:
    """CE-scaling's problem of a job, with a batch that all functions share.

    platform: whose prices. at_once, vcpus_at_once: its limits. Raises RequestError as
    `k_reduce_problem` does.
    """
    held = {"collective": "all-reduce"}
    # Bytes of data are but a unit here, as none are loaded; so a sample may be one.
    sample_bytes = profile.sample_bytes or 1.0
    made = []
    for memory_mib, size in allowed(profile, vcpus_at_once):
        line = training(profile, size)
        most = most_samples(profile, memory_mib, workers, batch_size, **held)
        made.append(
            MemorySize(
                memory_mib=memory_mib,
                compute_s_per_byte=line.each / sample_bytes,
                loading_bytes_per_s=float("inf"),
                usd_per_s=platform.usd_per_s(memory_mib),
                step_s=line.fixed,
                most_batch_bytes=most * sample_bytes,
                most_workers=most_at_once(size, max(workers), vcpus_at_once),
            )
        )
    holds = [(size.memory_mib, int(size.most_batch_bytes)) for size in made]
    check_fits(profile, holds, workers, held)
    return StoreProblem(
        size_bytes=summed_bytes(profile),
        data_bytes=profile.samples * sample_bytes,
        batch_bytes=min(batch_size, profile.samples) * sample_bytes,
        shared_batch=True,
        sample_bytes=sample_bytes,
        epochs=profile.epochs,
        sizes=tuple(made),
        stores=tuple(stores),
        workers=tuple(workers),
        at_once=at_once,
        usd_per_invocation=platform.prices.usd_per_request if platform.prices else 0.0,
    )
