"""All that is random in a simulation: a function of the seed and of what it is for.

A worker's attempts have draws of their own, whatever happens to others. So two scenarios with one
seed differ in what was asked for, and not in luck: with twice the rate of deaths, each function
lives half as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dayfly.planning.scenario import Scenario

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
