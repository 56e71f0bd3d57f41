"""What may happen to a run, for its simulation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """seed: of all that is random here. deaths_per_hour: of each function, at random moments.
    cold_start_s, cold_start_sigma: added to each start, log-normal around it. straggler_sigma:
    compute times of workers and steps vary log-normally by it. stragglers, straggler_factor: so
    many workers are slower by so much, throughout. store_bytes_per_s: of all functions together,
    each way (Alibaba's 10 Gb/s); None: the catalogue's, if it has one. decline: bandwidth of a
    function falls with the functions that run at once (FuncPipe section 5.4): pairs (functions,
    part of it that is left), linear between.
    """

    seed: int = 0
    deaths_per_hour: float = 0.0
    cold_start_s: float = 0.0
    cold_start_sigma: float = 0.0
    straggler_sigma: float = 0.0
    stragglers: int = 0
    straggler_factor: float = 1.0
    store_bytes_per_s: float | None = None
    decline: tuple[tuple[float, float], ...] = ()
