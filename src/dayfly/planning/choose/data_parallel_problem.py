"""Data-parallel training's problem: what there is to choose among, and what a plan says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dayfly.batches import Batches, Rounds
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.from_profile import summed_bytes
from dayfly.planning.choose.front import counted
from dayfly.planning.configuration import ITEM_BYTES, Configuration, ending_s
from dayfly.planning.data_parallel import averaged_of, copying_s
from dayfly.planning.function_kinds import BY_MEMORY, FunctionKind
from dayfly.planning.local_rounds import SumTimes, reduced_at_s
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.specs.methods import BSP, Method
from dayfly.wire.collectives import COLLECTIVES, K_REDUCE


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelPlan:
    """W, M, A, K and mu.

    Attributes:
        store: what they talk through.
        has: of a function, beside its memory.
    """

    workers: int
    memory_mib: int
    collective: str
    aggregators: int | None = None
    micro_batches: int = 1
    store: str = ""
    has: FunctionKind = BY_MEMORY

    def __str__(self) -> str:
        said = f"{counted(self.workers, 'function')} of {self.memory_mib} MiB{self.has}"
        if self.micro_batches > 1:
            said += f", {self.micro_batches} micro-batches"
        if self.workers == 1:
            return said
        k = "" if self.aggregators is None else f" with {counted(self.aggregators, 'aggregator')}"
        return f"{said}, {self.collective}{k}{f' over {self.store}' if self.store else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelProblem:
    """What there is to choose among.

    Raises RequestError for what is empty.

    Attributes:
        profile: of the job, over a store.
        platform: whose prices.
        store: whose prices messages have; None: they cost nothing.
        workers: all W to consider.
        collectives: all A.
        micro_batches: all mu.
        batch_size: of all functions together.
        vcpus_at_once: so many they have together at most.
        method: how all of them learn together.
    """

    profile: Profile
    platform: FunctionPlatform
    store: StoreFacts | None = None
    workers: tuple[int, ...]
    collectives: tuple[str, ...]
    micro_batches: tuple[int, ...]
    batch_size: int
    epochs: int = 1
    validate_every: int = 1
    vcpus_at_once: float = math.inf
    method: Method = BSP

    def __post_init__(self) -> None:
        for what in ("workers", "collectives", "micro_batches"):
            if not getattr(self, what):
                raise RequestError(f"a choice needs {what.replace('_', '-')}: give one at least")
        if min((*self.workers, *self.micro_batches, self.batch_size, self.epochs)) < 1:
            raise RequestError("workers, micro-batches, batch size, epochs: give numbers from 1")

    @property
    def shares_of_steps(self) -> tuple[tuple[int, float], ...]:
        """Samples of a batch, and the share of an epoch's steps that have as many: the last step
        may have fewer."""
        batches = Batches(self.profile.samples, self.batch_size)
        last = len(batches.batch(batches.steps - 1))
        full = min(self.batch_size, self.profile.samples)
        if last == full:
            return ((full, 1.0),)
        return (full, 1 - 1 / batches.steps), (last, 1 / batches.steps)

    @property
    def steps(self) -> int:
        """Of a run."""
        return Batches(self.profile.samples, self.batch_size).steps * self.epochs

    @property
    def rounds(self) -> tuple[tuple[int, int, bool], ...]:
        """Steps of a round, how many of an epoch's rounds have as many, and whether they end the
        epoch: its last one, which may have fewer."""
        batches = Batches(self.profile.samples, self.batch_size)
        longest = Rounds(batches, self.method.round_steps).longest
        whole, last = divmod(batches.steps, longest)
        each = ((longest, whole - (not last), False), (last or longest, 1, True))
        return tuple(one for one in each if one[1])

    @property
    def sums_a_step(self) -> float:
        """Exchanges over steps: an epoch's last round may be shorter than the others."""
        if self.method.round_steps == 1:
            return 1.0
        return sum(n for _, n, _ in self.rounds) / sum(k * n for k, n, _ in self.rounds)

    def waited_s(self, step_s: float, apply_s: float, sums: Sequence[SumTimes]) -> float:
        """Returns the seconds of a step for which its round's sums are waited for; elementwise.

        Args:
            step_s: of a step's passes.
            apply_s: of the optimizer in it.
            sums: of a round, each by itself.
        """
        c, waited_s, steps = self.configuration(2), 0.0, 0
        for each, count, closes in self.rounds:
            computed_s = each * step_s
            reduced_s = reduced_at_s(c, computed_s, apply_s, each, sums, closes=closes)
            waited_s = waited_s + count * (reduced_s - computed_s)
            steps += each * count
        return waited_s / steps

    def exchanging_s(self, size: SizeProfile) -> float:
        """Returns the seconds that each exchange takes of a step beside its sums: the flat buffer's
        own, and its copies.

        Args:
            size: of the functions.
        """
        c = self.configuration(2)
        return size.step_s.value + sum(copying_s(size, c, averaged_of(self.profile, c)))

    def ending_s(self, size: SizeProfile, workers: int) -> float:
        """Returns the seconds from the last step to the end; elementwise in workers.

        Args:
            size: of the functions.
            workers: how many.
        """
        c = self.configuration(2)
        return ending_s(self.profile, c, size, self.profile.layers, workers)

    @property
    def summed_bytes(self) -> float:
        """What each worker sums at once, before compression."""
        if not self.method.protocol.averages:
            return summed_bytes(self.profile)
        return ITEM_BYTES * sum(
            one.elements for one in averaged_of(self.profile, self.configuration(2))
        )

    def configuration(self, workers: int, **more: Any) -> Configuration:
        """Returns a run by so many workers.

        Args:
            workers: how many.
            more: fields of the configuration.
        """
        m = self.method
        return Configuration(
            workers=workers,
            batch_size=self.batch_size,
            sync=m.sync,
            k=m.round_steps,
            outer=m.outer,
            streaming=m.streaming,
            compress=m.compress,
            **more,
        )

    @property
    def allowed(self) -> tuple[int, ...]:
        """All W that have a sample each, rising."""
        return tuple(one for one in sorted(set(self.workers)) if one <= self.batch_size)


def collectives_of(profile: Profile) -> tuple[str, ...]:
    """Returns the built-in algorithms for a profile's channel; of others no cost is known."""
    if ChannelModel.of(profile).kind.abilities.sums:
        return ("push-pull",)
    own = (name for name in COLLECTIVES.built_in if not COLLECTIVES[name].server)
    return (*own, K_REDUCE)
