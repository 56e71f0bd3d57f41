"""What a configuration will take: seconds, dollars, memory, requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What all workers put into the store and get out of it."""

    puts: int
    gets: int
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one configuration takes.

    Attributes:
        step_s: the median step, on rank 0's clock, as a run measures it.
        epoch_s: all steps and the validation.
        run_s: from the first invocation to the end of the last function.
        billed_s: billed seconds of all functions.
        gb_s: GB-seconds of all functions.
        cost_usd: dollars under `price_list`, as a bill has them.
        by_kind: the dollars by what they are for.
        price_list: the platform whose prices count.
        memory_mib: peak of each stage's functions, in MiB.
        step_volume: bytes and requests of a step.
        epoch_volume: of an epoch.
        run_volume: of the run.
        breakdown: seconds of a step by what is waited for on the critical rank: compute, transfer,
            sync, overhead. They add up to `step_s`.
        invocations: of the run, hand-overs included.
    """

    step_s: float
    epoch_s: float
    run_s: float
    billed_s: float
    gb_s: float
    cost_usd: float
    by_kind: Mapping[str, float]
    price_list: str
    memory_mib: tuple[float, ...]
    step_volume: Volume
    epoch_volume: Volume
    run_volume: Volume
    breakdown: Mapping[str, float]
    invocations: int
