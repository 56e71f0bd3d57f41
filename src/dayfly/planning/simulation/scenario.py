"""What may happen to a simulated run, and all that is random in it.

A draw is a function of the seed and of what it is for. A worker's attempts have draws of their own,
whatever happens to others. So two scenarios with one seed differ in what was asked for, and not in
luck: with twice the rate of deaths, each function lives half as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dayfly.errors import RequestError
from dayfly.planning.decline import check_decline
from dayfly.specs.invoking import MOST_CALL_S, Invoking


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
            5.4): pairs (functions, part of the bandwidth that is left), linear between; beside what
            the profile says of it.
        invoke_call_s: of one invocation, until the platform has taken it.
        invoke_at_once: such calls that one caller has under way at once.
        invoke_fan_out: functions that each function invokes, as a tree; None: the coordinator
            invokes all.

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
    invoke_call_s: float = 0.0
    invoke_at_once: int = 1
    invoke_fan_out: int | None = None

    def __post_init__(self) -> None:
        for name in ("seed", "stragglers"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise RequestError(f"{_flag(name)} {value!r}: give a whole number from 0")
        for name in ("deaths_per_hour", "cold_start_s", "cold_start_sigma", "straggler_sigma"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise RequestError(f"{_flag(name)} {value:g}: give a number from 0")
        if not 0 < self.straggler_factor < math.inf:
            raise RequestError(
                f"--straggler-factor {self.straggler_factor:g}: give a number above 0"
            )
        if self.store_bytes_per_s is not None and not 0 < self.store_bytes_per_s < math.inf:
            raise RequestError(
                f"--store-rate {self.store_bytes_per_s / 1e6:g} MB/s: give a number above 0"
            )
        if self.cold_start_sigma and not self.cold_start_s:
            raise RequestError(
                f"--cold-start-sigma {self.cold_start_sigma:g} varies cold starts, and there are "
                "none: give --cold-start, too"
            )
        if self.straggler_factor != 1.0 and not self.stragglers:
            raise RequestError(
                f"--straggler-factor {self.straggler_factor:g} slows stragglers, and there are "
                "none: give --stragglers, too"
            )
        for name, usual in (("invoke_at_once", 1), ("invoke_fan_out", None)):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"{_flag(name)} {value}: give a whole number from 1")
            if value != usual and not self.invoke_call_s:
                raise RequestError(
                    f"{_flag(name)} {value}: invocation calls take no time, so this changes "
                    "nothing: give --invoke-call, too"
                )
        if not 0 <= self.invoke_call_s <= MOST_CALL_S:
            raise RequestError(
                f"--invoke-call {1000 * self.invoke_call_s:g} ms: give 0 to {1000 * MOST_CALL_S:g}"
            )
        try:
            check_decline(self.decline)
        except ValueError as error:
            raise RequestError(f"--decline {self.decline}: {error}") from error

    @property
    def invoking(self) -> Invoking:
        """How functions that start together are invoked."""
        return Invoking(
            call_s=self.invoke_call_s, at_once=self.invoke_at_once, fan_out=self.invoke_fan_out
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
        if self.invoke_call_s:
            said.append(f"functions start by {self.invoking.words()}")
        return f"seed {self.seed}: {'; '.join(said) if said else 'nothing happens'}"


#: Flags that are not named as their fields.
_FLAGS = {"cold_start_s": "cold_start", "straggler_sigma": "jitter"}


def _flag(name: str) -> str:
    return f"--{_FLAGS.get(name, name).replace('_', '-')}"


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: What a stream of random numbers is for.
_STEPS, _DEATHS, _STARTS, _STRAGGLERS = range(1, 5)
_HOUR_S = 3600.0


class Chance:
    """The draws of one simulation of `workers` workers."""

    def __init__(self, scenario: Scenario, workers: int) -> None:
        self._scenario = scenario
        self._workers = workers
        self.everybody = np.arange(workers, dtype=np.int64)
        self._by_attempt: dict[tuple[int, int], Floats] = {}
        # A stretch of steps and attempts that nobody redoes: each step's draw is the next one.
        self._noise = np.random.default_rng([scenario.seed, _STEPS])
        slow = np.random.default_rng([scenario.seed, _STRAGGLERS])
        self.stragglers = np.sort(slow.permutation(workers)[: scenario.stragglers])
        self._base_N = np.ones(workers)
        self._base_N[self.stragglers] = scenario.straggler_factor

    def slowness(self, steps: int) -> Floats:
        """How much longer workers compute in the next steps, (N, steps); 1: as in the profile.

        Log-normal with median 1, times the factor of those that are slow throughout.
        """
        sigma = self._scenario.straggler_sigma
        if not sigma:
            return np.repeat(self._base_N[:, None], steps, axis=1)
        noise = self._noise.standard_normal((self._workers, steps))
        return np.exp(sigma * noise) * self._base_N[:, None]

    def life_s(self, ranks: Ints, attempts: Ints) -> Floats:
        """How long functions live, from their invocation, before they die by chance; (len,).

        Deaths come at a constant rate, so lives are exponential; endless without a rate.
        """
        rate_per_s = self._scenario.deaths_per_hour / _HOUR_S
        if not rate_per_s:
            return np.full(len(ranks), np.inf)
        return self._drawn(_DEATHS, ranks, attempts) / rate_per_s

    def cold_start_s(self, ranks: Ints, attempts: Ints) -> Floats:
        """What the scenario adds to starts, (len,): log-normal around its cold start."""
        usual_s, sigma = self._scenario.cold_start_s, self._scenario.cold_start_sigma
        if not usual_s or not sigma:
            return np.full(len(ranks), usual_s)
        return usual_s * np.exp(sigma * self._drawn(_STARTS, ranks, attempts))

    def _drawn(self, purpose: int, ranks: Ints, attempts: Ints) -> Floats:
        found = np.empty(len(ranks))
        for attempt in np.unique(attempts):
            of_attempt = attempts == attempt
            found[of_attempt] = self._of_attempt(purpose, int(attempt))[ranks[of_attempt]]
        return found

    def _of_attempt(self, purpose: int, attempt: int) -> Floats:
        kept = self._by_attempt.get((purpose, attempt))
        if kept is None:
            stream = np.random.default_rng([self._scenario.seed, purpose, attempt])
            if purpose == _DEATHS:
                kept = stream.exponential(size=self._workers)
            else:
                kept = stream.standard_normal(self._workers)
            self._by_attempt[purpose, attempt] = kept
        return kept
