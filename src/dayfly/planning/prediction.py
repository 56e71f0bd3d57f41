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
    """Of one configuration.

    step_s: the median step, on rank 0's clock, as a run measures it. epoch_s: all steps and the
    validation. run_s: from the first invocation to the end of the last function. billed_s, gb_s: of
    all functions. cost_usd, by_kind: under `price_list`, as a bill has it. memory_mib: peak of each
    stage's functions. volume: of a step, an epoch, the run. breakdown: seconds of a step by what is
    waited for on the critical rank: compute, transfer, sync, overhead; they add up to step_s.
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
