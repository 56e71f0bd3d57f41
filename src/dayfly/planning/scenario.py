"""What may happen to a run, for its simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dayfly.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What happens to a simulated run.

    Args:
        seed: of all that is random here.
        deaths_per_hour: deaths of each function, at random moments.
        cold_start_s: added to each start of a function.
        cold_start_sigma: spread of that, log-normal.
        straggler_sigma: spread of compute times over workers and steps, log-normal.
        stragglers: workers that are slower throughout.
        straggler_factor: how many times slower they compute.
        store_bytes_per_s: of all functions together, each way (Alibaba's 10 Gb/s); None: the
            catalogue's, if it has one.
        decline: a function's bandwidth falls with the functions that run at once (FuncPipe section
            5.4): pairs (functions, part of the bandwidth that is left), linear between.

    Raises:
        RequestError: a scenario that cannot be.
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

    def __post_init__(self) -> None:
        for name in ("seed", "stragglers"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise RequestError(f"{name} {value!r}: give a whole number from 0")
        for name in ("deaths_per_hour", "cold_start_s", "cold_start_sigma", "straggler_sigma"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise RequestError(f"{name} {value:g}: give a number from 0")
        for name in ("straggler_factor", "store_bytes_per_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise RequestError(f"{name} {value:g}: give a number above 0")
        if self.cold_start_sigma and not self.cold_start_s:
            raise RequestError(
                f"cold_start_sigma {self.cold_start_sigma:g} varies cold starts, and there are "
                "none: give cold_start, too"
            )
        if self.straggler_factor != 1.0 and not self.stragglers:
            raise RequestError(
                f"straggler_factor {self.straggler_factor:g} slows stragglers, and there are none: "
                "give stragglers, too"
            )
        counts = [functions for functions, _ in self.decline]
        if counts != sorted(set(counts)) or any(not 0 <= one < math.inf for one in counts):
            raise RequestError(f"decline {self.decline}: give rising numbers of functions")
        if any(not 0 < part <= 1 for _, part in self.decline):
            raise RequestError(
                f"decline {self.decline}: give the parts that are left, above 0 and at most 1"
            )

    def words(self) -> str:
        """What is not as usual, for people; that nothing is, too."""
        said = []
        if self.deaths_per_hour:
            said.append(f"{self.deaths_per_hour:g} deaths an hour of each function")
        if self.cold_start_s:
            spread = f" (log-normal, {self.cold_start_sigma:g})" if self.cold_start_sigma else ""
            said.append(f"cold starts {self.cold_start_s:g} s longer{spread}")
        if self.straggler_sigma:
            said.append(f"compute times vary by {self.straggler_sigma:g} (log-normal)")
        if self.stragglers:
            plural = "s" * (self.stragglers > 1)
            said.append(f"{self.stragglers} straggler{plural}, slower by {self.straggler_factor:g}")
        if self.store_bytes_per_s is not None:
            said.append(f"a store of {self.store_bytes_per_s / 1e6:g} MB/s each way")
        if self.decline:
            row = ", ".join(f"{part:g} with {count:g} functions" for count, part in self.decline)
            said.append(f"bandwidth falls to {row}")
        return f"seed {self.seed}: {'; '.join(said) if said else 'nothing happens'}"
