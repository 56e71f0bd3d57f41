"""Plans that are known while others are sought, wherever either of them run.

A search need not look at what a known plan beats by more than its model errs: it could not be
among the best. What it looks at is bounded by `beats` of the least seconds and the least dollars
that any plan of a kind takes; so a place whose every kind is beaten needs no search at all, and
the front of all places together stays what enumeration would make it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dayfly.planning.choose.arrays import Array, undominated

#: Closed forms of runs whose steps take less, in seconds, err by more than others, and by how much:
#: there it counts how periods of the CPU, latencies and the work of messages fall together.
_SHORT_S, _SHORT_ERROR = 0.05, 0.30


def short_error(seconds: ArrayLike, steps: int) -> Array:
    """Returns the relative error of closed forms of whole models whose steps are short; 0 for runs
    of longer steps, whose error the caller knows, (plans,).

    Args:
        seconds: of each run, (plans,).
        steps: of a run.
    """
    return np.where(np.asarray(seconds) < _SHORT_S * steps, _SHORT_ERROR, 0.0)


@dataclass(slots=True)
class Known:
    """The front of all plans that were added.

    Args:
        slack: relative error of both goals within which a plan may still be the better one.
    """

    slack: float = 0.0
    _seconds: Array = field(default_factory=lambda: np.empty(0))
    _usd: Array = field(default_factory=lambda: np.empty(0))

    @property
    def anything(self) -> bool:
        """Whether a plan was added."""
        return len(self._seconds) > 0

    def add(self, seconds: ArrayLike, usd: ArrayLike) -> None:
        """Adds plans.

        Args:
            seconds: of each, (plans,).
            usd: of each, (plans,).
        """
        every_s, every_usd = np.append(self._seconds, seconds), np.append(self._usd, usd)
        if len(every_s):
            front = undominated(every_s, every_usd)
            self._seconds, self._usd = every_s[front], every_usd[front]

    def of_steps(self, steps: float, start_s: float) -> list[tuple[float, float]]:
        """Returns the known plans as rivals of a search over steps.

        Args:
            steps: of a run.
            start_s: least seconds of a run beside its steps.

        Returns:
            For each known plan, seconds and dollars of a step. It beats every run whose steps take
            as long or longer, and cost as much or more.
        """
        step_s = np.maximum(0.0, self._seconds * (1 + self.slack) - start_s) / steps
        usd = self._usd * (1 + self.slack) / steps
        return list(zip(step_s.tolist(), usd.tolist(), strict=True))

    def beats(self, seconds: float, usd: float, error: ArrayLike = 0.0) -> bool:
        """Returns whether a known plan is better in both goals by more than the slack.

        Args:
            seconds: that a plan takes at least.
            usd: that it costs at least.
            error: as of `beat`.
        """
        return bool(self.beat(np.array([seconds]), np.array([usd]), error)[0])

    def beat(self, seconds: Array, usd: Array, error: ArrayLike = 0.0) -> NDArray[np.bool_]:
        """Returns of each plan whether a known one is better in both goals by more than the slack.

        Args:
            seconds: that each takes at least, (plans,).
            usd: that each costs at least, (plans,).
            error: of each, where it may be more than the slack, (plans,).
        """
        within = 1 + np.maximum(self.slack, error)
        at = np.searchsorted(self._seconds, seconds / within)
        least_usd = np.concatenate([[np.inf], self._usd])[at]  # of those that are faster
        beaten: NDArray[np.bool_] = least_usd * within < usd
        return beaten


@dataclass(frozen=True, slots=True)
class KnownPlans:
    """Plans of whole models and of cut ones, apart.

    What is known of a cut is its planner's estimate, which errs by more than the closed forms of
    whole models do where steps are short. So cuts spare other cuts alone, and whole models both.

    Args:
        whole: plans of whole models.
        cuts: plans of cut models.
    """

    whole: Known
    cuts: Known

    @property
    def anything(self) -> bool:
        """Whether a plan was added."""
        return self.whole.anything or self.cuts.anything

    def of_steps(self, steps: float, start_s: float) -> list[tuple[float, float]]:
        """Returns the plans of both kinds as rivals of a search for cuts; see `Known.of_steps`."""
        return [*self.whole.of_steps(steps, start_s), *self.cuts.of_steps(steps, start_s)]

    def beat(self, seconds: Array, usd: Array) -> NDArray[np.bool_]:
        """Returns of each cut whether a known plan of either kind beats it; see `Known.beat`."""
        return self.whole.beat(seconds, usd) | self.cuts.beat(seconds, usd)
