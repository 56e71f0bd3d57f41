"""The functions of a run: when each was invoked, how long it may live, and how it ended.

    invoked |init| ready |start| able |-- rounds ---| end      init: the cold start
                   '---- lifetime ----------------->'          start: calls of a tree, job, data,
    '---- life by chance ---------------> death                checkpoint

All moments are seconds of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from dayfly.planning.simulation.scenario import Chance, Floats, Ints
from dayfly.specs.invoking import Invoking
from dayfly.specs.pace import warm_ahead_s


class End(Enum):
    """How an attempt ended."""

    DONE = "done"
    HANDED_OVER = "handed over"
    KILLED = "killed"  # by chance: a death
    LIFETIME = "lifetime"  # in its first step: a death
    CANCELLED = "cancelled"  # as all went back to the checkpoint


#: Ends that are deaths.
DEATHS = (End.KILLED, End.LIFETIME)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An invocation that is over; seconds of the run.

    Attributes:
        step: at which it ended.
    """

    rank: int
    number: int
    invoked_s: float
    init_s: float
    end_s: float
    end: End
    step: int

    @property
    def run_s(self) -> float:
        """From where the handler began; 0 if it ended before."""
        return max(0.0, self.end_s - self.invoked_s - self.init_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a worker hands over, as `life.lifetimes` has it.

    Attributes:
        spare_s: to end in order, whatever the job.
        late_share, late_times: at a checkpoint it hands over with less left than this share of its
            lifetime, or so many times what must be left.
        most_share: of its lifetime, before which it does not hand over.
        without_progress_s: from a death on without a completed step, which ends a run.
        deaths_of_one_cause: in a row, which do.
        pause_s: before a start, after so many deaths of the function in a row.
    """

    spare_s: float
    late_share: float
    late_times: float
    most_share: float
    without_progress_s: float
    deaths_of_one_cause: int
    pause_s: Callable[[int], float]


class Fleet:
    """All workers' functions.

    Arrays, (N,): able_s: from when it can take a round. dies_s: by chance. deadline_s: the end of
    its lifetime. steps: taken by this attempt. longest_s: of these.

    Args:
        init_N, start_N: of each worker.
        lifetime_s: infinite: not limited.
        hears_s: as of `Course`.
        invoking: of those that start together.
    """

    def __init__(
        self,
        chance: Chance,
        policy: Policy,
        init_N: Floats,
        start_N: Floats,
        lifetime_s: float,
        hears_s: float | None,
        invoking: Invoking,
    ) -> None:
        workers = len(init_N)
        self._chance = chance
        self._policy = policy
        self._init_N = init_N
        self._start_N = start_N
        self._lifetime_s = lifetime_s
        self._hears_s = hears_s
        self._invoking = invoking
        self.attempt = np.full(workers, -1, dtype=np.int64)
        self.invoked_s = np.zeros(workers)
        self.cold_s = np.zeros(workers)
        self.able_s = np.zeros(workers)
        self.dies_s = np.full(workers, np.inf)
        self.deadline_s = np.full(workers, np.inf)
        self.steps = np.zeros(workers, dtype=np.int64)
        self.longest_s = np.zeros(workers)
        self.checkpoint_s = 0.0
        self.ended: list[Attempt] = []

    @property
    def workers(self) -> int:
        """How many."""
        return len(self.attempt)

    def invoke(self, ranks: Ints, at_s: Floats) -> None:
        """Start functions of these workers together.

        Args:
            ranks: of the workers, rising.
            at_s: from when each may be invoked.
        """
        self.attempt[ranks] += 1
        number = self.attempt[ranks]
        cold_s = self._init_N[ranks] + self._chance.cold_start_s(ranks, number)
        life_s = self._chance.life_s(ranks, number)
        invoked_s, calling_s = self._called(cold_s, life_s)
        at_s = at_s + invoked_s
        self.invoked_s[ranks] = at_s
        self.cold_s[ranks] = cold_s
        self.able_s[ranks] = at_s + cold_s + calling_s + self._start_N[ranks]
        self.dies_s[ranks] = at_s + life_s
        self.deadline_s[ranks] = at_s + cold_s + self._lifetime_s
        self.steps[ranks] = 0
        self.longest_s[ranks] = 0.0

    def _called(self, cold_s: Floats, life_s: Floats) -> tuple[Floats, Floats]:
        """When each of those that start together is invoked, and how long it invokes others."""
        how, count = self._invoking, len(cold_s)
        if not how.call_s:
            return np.zeros(count), np.zeros(count)
        calling = [how.calling_s(len(how.invoked_by(one, count))) for one in range(count)]
        return np.array(how.invoked_s(cold_s.tolist(), life_s.tolist())), np.array(calling)

    def end(self, ranks: Ints, at_s: Floats, how: End, step: int) -> None:
        """These functions are over."""
        for rank, end_s in zip(ranks.tolist(), at_s.tolist(), strict=True):
            init_s = min(float(self.cold_s[rank]), end_s - float(self.invoked_s[rank]))
            self.ended.append(
                Attempt(
                    rank,
                    int(self.attempt[rank]),
                    float(self.invoked_s[rank]),
                    init_s,
                    end_s,
                    how,
                    step,
                )
            )

    def took(self, step_N: Floats, steps: int) -> None:
        """A round was taken, of so many steps; step_N: how long each of them took at most."""
        self.steps += steps
        np.maximum(self.longest_s, step_N, out=self.longest_s)

    def needed_s(self) -> Floats:
        """What must be left for another step and an end in order, (N,); see `life.lifetimes`."""
        needed_N = 2 * self.longest_s + 2 * self.checkpoint_s + self._policy.spare_s
        bounded_N: Floats = np.minimum(needed_N, self._policy.most_share * self._lifetime_s)
        return bounded_N

    def due(self, at_N: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Who should hand over rather than take another step; nobody in a first step."""
        return (self.steps > 0) & (self.deadline_s - at_N < self.needed_s())

    def late(self, at_N: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Who should hand over at a checkpoint that is made anyway."""
        if np.isinf(self._lifetime_s) or self._hears_s is not None:
            return np.zeros(self.workers, dtype=bool)
        policy = self._policy
        late_N = np.maximum(
            policy.late_share * self._lifetime_s, policy.late_times * self.needed_s()
        )
        return (self.steps > 0) & (self.deadline_s - at_N < late_N)

    def successors_s(self, now_s: float) -> tuple[float, float]:
        """When successors of all workers start, and when they are warm; infinite: not by now.

        The first whose lifetime comes to its end decides, if it has taken a step.
        """
        most_s = self._policy.most_share * self._lifetime_s
        if self._hears_s is None or now_s < float(self.invoked_s.min()) + most_s:
            return np.inf, np.inf
        next_s = self._chance.cold_start_s(np.arange(self.workers), self.attempt + 1)
        cold_N = self._init_N + next_s
        invoked_N, calling_N = self._called(cold_N, np.full(self.workers, np.inf))
        start_s = float((invoked_N + cold_N + calling_N + self._start_N).max())
        ahead_N = self.needed_s() + warm_ahead_s(start_s, self._hears_s, 0.0)
        due_N = np.where(
            (self.steps > 0) & (ahead_N < most_s),
            self.invoked_s + self._lifetime_s - ahead_N,
            np.inf,
        )
        return float(due_N.min()), float(due_N.min()) + start_s

    def fits(self, steps: int, at_N: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Who is sure to end so many more steps in this life."""
        if np.isinf(self._lifetime_s):
            return np.ones(self.workers, dtype=bool)
        left_N = self.deadline_s - at_N
        return (self.steps > 0) & (left_N > 2 * steps * self.longest_s + self.needed_s())

    def cut_s(self) -> Floats:
        """When each function ends if it is not through before: dead, or out of time, (N,).

        One that waits hands over a moment before its deadline; in its first step it is killed at
        it.
        """
        patient_N = np.where(self.steps > 0, self._policy.spare_s / 2, 0.0)
        cut_N: Floats = np.minimum(self.dies_s, self.deadline_s - patient_N)
        return cut_N

    def how(self, rank: int) -> End:
        """How a function ends at its `cut_s`."""
        if self.dies_s[rank] <= self.cut_s()[rank]:
            return End.KILLED
        return End.HANDED_OVER if self.steps[rank] > 0 else End.LIFETIME
