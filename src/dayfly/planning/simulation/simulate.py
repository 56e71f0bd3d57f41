"""A run, round after round, with deaths, hand-overs, checkpoints and rollbacks.

    round        |=========|=========|====X      |=========|     X: worker 1 died; its successor
    worker 1     |---------|---------|--  |//|..|---------|      starts, catches up by the log, and
    worker 2     |---------|---------|------wait-|---------|     computes the round once more

Rounds follow each other, as nobody begins one before it has the sum of the last. In each, whoever
ends before the round does is replaced, until nobody does. What a round takes is its kind's
(`rounds`, `staged`); what happens between rounds follows `life.supervisor` and `runs.worker`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dayfly.planning.simulation.fleet import End, Fleet, Policy
from dayfly.planning.simulation.outcome import Simulated, Story, Telling
from dayfly.planning.simulation.rounds import LocalSteps, Taken
from dayfly.planning.simulation.scenario import Chance, Floats, Ints, Scenario
from dayfly.planning.simulation.turns import Course, Turn, nothing_moved


def simulate(
    course: Course, scenario: Scenario, policy: Policy, watched: Sequence[int] = ()
) -> Simulated:
    """Simulate a run.

    Pure: the seed decides.

    Args:
        watched: workers of which every step is told.
    """
    return _Run(course, scenario, policy, watched).run()


class _Failed(Exception):
    """The run gives up."""


@dataclass(frozen=True, slots=True, eq=False)
class _Again:
    """A round as it is taken, some by successors: see `Rounds.take`."""

    began_N: Floats
    slow_NK: Floats
    credit_N: Floats


class _Run:
    """One simulation under way.

    done: steps that are completed. index: rounds that are. committed: (when, step, index) of the
    checkpoint that counts; pending: of the one that is being written, with when each part is.
    frontier: completed steps, the most that there ever were.
    """

    def __init__(
        self, course: Course, scenario: Scenario, policy: Policy, watched: Sequence[int]
    ) -> None:
        self._course = course
        self._policy = policy
        self._chance = Chance(scenario, course.workers)
        self._fleet = Fleet(
            self._chance,
            policy,
            course.init_N,
            course.start_N,
            course.lifetime_s,
            course.hears_s,
            scenario.invoking,
        )
        self._story = Story()
        self._telling = Telling(self._story, self._fleet, watched)
        self._all = np.arange(course.workers)
        self._done = self._index = self._frontier = 0
        self._committed = (0.0, 0, 0)
        self._pending: tuple[float, int, int, Floats] | None = None
        self._checkpoint_at_s = 0.0
        self._deaths_in_a_row = 0
        self._dead_since_s = 0.0  # the first of these
        self._by_rank: Counter[int] = Counter()
        self._by_cause: Counter[tuple[int, End]] = Counter()
        self._step_s: dict[int, float] = {}
        self._epochs: dict[int, float] = {}
        self._moved = nothing_moved(course.workers)
        self._computed_N = np.zeros(course.workers)
        self._redone = self._rollbacks = self._checkpoints = 0

    def run(self) -> Simulated:
        fleet, course = self._fleet, self._course
        fleet.invoke(self._all, np.zeros(course.workers))
        self._telling.started(self._all)
        ready_N = fleet.able_s.copy()
        status, error = "done", None
        try:
            while self._done < course.steps:
                ready_N = self._take(course.turn(self._done), ready_N)
        except _Failed as failure:
            status, error = "failed", str(failure)
        return Simulated(
            status=status,
            error=error,
            steps=self._done,
            epochs=sorted(self._epochs.items()),
            attempts=sorted(fleet.ended, key=lambda one: (one.end_s, one.rank, one.number)),
            step_s=[self._step_s[step] for step in sorted(self._step_s)],
            redone_steps=self._redone,
            rollbacks=self._rollbacks,
            checkpoints=self._checkpoints,
            moved=self._moved,
            computed_s=self._computed_N.tolist(),
            stragglers=self._chance.stragglers,
            generation=self._telling.generation,
            story=self._story,
        )

    def _take(self, turn: Turn, ready_N: Floats) -> Floats:
        """Take a round, and what follows it; returns from when each worker can take the next."""
        course, fleet = self._course, self._fleet
        wish = self._wishes(turn, ready_N)
        slow_NK = self._chance.slowness(turn.rounds.steps)
        again = _Again(ready_N.copy(), slow_NK, np.zeros(course.workers))
        while True:
            taken = turn.rounds.take(again.began_N, again.slow_NK, again.credit_N)
            ended_N = self._validated(turn, taken)
            cut_N, hands_N = fleet.cut_s(), self._hand_over_s(turn, taken)
            first_N = np.minimum(cut_N, hands_N)
            hit = np.flatnonzero(first_N < ended_N)
            if not hit.size:
                break
            if not course.replays:
                return self._cut_short(turn, first_N, hands_N)
            self._start_again(turn, taken, hit, cut_N, hands_N, again)
        self._note(turn, taken, ended_N, ready_N)
        last = turn.stop >= course.steps
        if last:
            fleet.end(self._all, ended_N + course.end_N, End.DONE, turn.stop)
            self._commit(turn, ended_N, float((ended_N + course.part_N).max()))
            return ended_N
        begun_s, warm_s = fleet.successors_s(float(ended_N.max()))
        if float(ended_N.max()) >= warm_s:
            return self._renew(turn, ended_N, begun_s)
        return self._checkpoint(turn, ended_N) if wish else ended_N

    def _renew(self, turn: Turn, ended_N: Floats, begun_s: float) -> Floats:
        """All hand over to successors that started at a moment, and are warm; when these go on."""
        course, fleet = self._course, self._fleet
        written_N = ended_N + course.part_N
        commit_s = float(written_N.max())
        self._commit(turn, ended_N, commit_s)
        fleet.checkpoint_s = max(fleet.checkpoint_s, float(course.part_N.max()))
        for rank in range(course.workers):
            self._telling.ended(rank, End.HANDED_OVER, float(written_N[rank]))
        fleet.end(self._all, written_N, End.HANDED_OVER, turn.stop)
        fleet.invoke(self._all, np.full(course.workers, begun_s))
        fleet.able_s = np.maximum(fleet.able_s, commit_s)
        fleet.dies_s = np.maximum(fleet.dies_s, fleet.able_s)  # rather than while it waits
        self._telling.started(self._all)
        return fleet.able_s.copy()

    def _wishes(self, turn: Turn, ready_N: Floats) -> bool:
        """Whether a worker wants a checkpoint after the round; see `runs.worker`."""
        course, fleet = self._course, self._fleet
        time_is_up = ready_N[0] - self._checkpoint_at_s > course.checkpoint_every_s
        if time_is_up or fleet.due(ready_N).any():
            return True
        if course.keeps_within and not course.replays and turn.stop < course.steps:
            steps = course.turn(turn.stop).rounds.steps
            return not bool(fleet.fits(steps, ready_N).all())
        return False

    def _validated(self, turn: Turn, taken: Taken) -> Floats:
        """When each worker can go on: after an epoch that is validated, all at the sum's end."""
        if turn.validation_N is None:
            return taken.ended_N
        slow_N = taken.slow_NK[:, -1]
        own_N = taken.ended_N + turn.validation_N * np.where(slow_N, slow_N, 1.0)
        return np.full(len(own_N), own_N.max() + turn.validated_s)

    def _hand_over_s(self, turn: Turn, taken: Taken) -> Floats:
        """When workers of local SGD hand over within the round, (N,); infinite: they do not."""
        course, fleet = self._course, self._fleet
        whole = np.full(course.workers, np.inf)
        if not course.keeps_within or np.isinf(course.lifetime_s):
            return whole
        assert isinstance(turn.rounds, LocalSteps)
        step_NK = turn.rounds.own_NK * taken.slow_NK
        ends_NK = taken.began_N[:, None] + np.cumsum(step_NK, axis=1)
        longest_N = np.maximum(fleet.longest_s, step_NK.max(axis=1))
        needed_N = np.minimum(
            2 * longest_N + 2 * fleet.checkpoint_s + self._policy.spare_s,
            self._policy.most_share * course.lifetime_s,
        )
        due_NK = (fleet.deadline_s[:, None] - ends_NK < needed_N[:, None]) & (step_NK > 0)
        found = due_NK.any(axis=1)
        first = np.argmax(due_NK, axis=1)
        whole[found] = ends_NK[found, first[found]]
        return whole

    def _start_again(
        self,
        turn: Turn,
        taken: Taken,
        hit: Ints,
        cut_N: Floats,
        hands_N: Floats,
        again: _Again,
    ) -> None:
        """Replace workers that ended within a round; changes when they begin, and what is left."""
        course, fleet = self._course, self._fleet
        at_N = np.minimum(cut_N, hands_N)
        for rank in hit.tolist():
            at_s, one = float(at_N[rank]), np.array([rank])
            kept = hands_N[rank] <= cut_N[rank]
            how = End.HANDED_OVER if kept else fleet.how(rank)
            self._telling.ended(rank, how, at_s)
            ended_s = at_s + course.keep_s if kept else at_s
            fleet.end(one, np.array([ended_s]), how, turn.first)
            pause_s = self._count(rank, how, turn.first, at_s)
            if self._pending is not None and at_s < self._pending[3][rank]:
                self._pending = None
            own = kept and course.keeps_within  # its successor goes on from there
            behind = 0 if own else self._index - self._committed_by(at_s)[2]
            fleet.invoke(one, np.array([ended_s + pause_s]))
            self._telling.started(one)
            able_s = float(fleet.able_s[rank])
            log_s = behind * float(course.log_N[rank])
            if course.recomputes_N[rank]:
                self._redone += behind * turn.rounds.steps
            self._moved[rank] += behind * course.log_moved[rank]
            if behind:
                self._telling.caught_up(rank, self._done, able_s, log_s, behind)
            if isinstance(turn.rounds, LocalSteps):
                every_s = course.checkpoint_every_s
                begun_s = float(again.began_N[rank])
                told_s = (
                    at_s
                    if kept or how is End.HANDED_OVER
                    else (begun_s + max(0.0, at_s - begun_s) // every_s * every_s)
                )
                for number, _, end_s in turn.rounds.own_steps(taken, rank):
                    if end_s <= told_s:
                        again.slow_NK[rank, number] = 0.0
                    elif end_s <= at_s:
                        self._redone += 1
            if at_s >= float(taken.computed_N[rank]):
                # Its contributions are there, and what its peers have made of them.
                row = taken.windows[course.stage_N[rank]] if taken.windows else ()
                began_s = row[0].began_s if row else at_s
                again.credit_N[rank] = max(0.0, at_s - began_s)
            again.began_N[rank] = able_s + log_s

    def _count(self, rank: int, how: End, step: int, at_s: float) -> float:
        """Returns the pause before the worker starts again; see `life.deaths`.

        Deaths without a completed step between them end a run.
        """
        policy = self._policy
        if how is End.HANDED_OVER:
            return 0.0
        if not self._deaths_in_a_row:
            self._dead_since_s = at_s
        self._deaths_in_a_row += 1
        dead_s = at_s - self._dead_since_s
        if dead_s > policy.without_progress_s:
            raise _Failed(
                f"worker {rank} died in step {step}, the last of {self._deaths_in_a_row} deaths in "
                f"{dead_s:.0f} s without a completed step"
            )
        if how is End.LIFETIME:
            times = self._by_cause[rank, how] = self._by_cause[rank, how] + 1
            if times >= policy.deaths_of_one_cause:
                raise _Failed(
                    f"worker {rank} came to the end of its lifetime in step {step}, {times} times "
                    "in a row without a completed step: raise --lifetime, so that a step and a "
                    "start fit, or use more workers"
                )
        return self._pause_s(rank)

    def _pause_s(self, rank: int) -> float:
        """Of a worker that died once more."""
        self._by_rank[rank] += 1
        return self._policy.pause_s(self._by_rank[rank])

    def _committed_by(self, at_s: float) -> tuple[float, int, int]:
        """The checkpoint that counts at a moment."""
        if self._pending is not None and self._pending[0] <= at_s:
            self._committed = self._pending[:3]
            self._pending = None
        return self._committed

    def _cut_short(self, turn: Turn, first_N: Floats, hands_N: Floats) -> Floats:
        """Somebody ended within the round, and nothing is kept: all go back to the checkpoint."""
        rank = int(np.argmin(first_N))
        at_s = float(first_N[rank])
        how = End.HANDED_OVER if hands_N[rank] <= at_s else self._fleet.how(rank)
        self._telling.ended(rank, how, at_s)
        if how is End.HANDED_OVER:
            pause_s = self._count_lost(rank, turn.first)
        else:
            pause_s = self._count(rank, how, turn.first, at_s)
        return self._roll_back(np.array([rank]), how, at_s, turn.first, pause_s)

    def _count_lost(self, rank: int, step: int) -> float:
        """A hand-over that loses what was done counts like a death; as `_count`."""
        key = rank, End.HANDED_OVER
        self._by_cause[key] += 1
        if self._by_cause[key] >= self._policy.deaths_of_one_cause:
            raise _Failed(
                f"worker {rank} handed over to its successor in step {step}, {self._by_cause[key]} "
                "times in a row without a completed step: raise --lifetime, so that more steps "
                "and a checkpoint fit"
            )
        return self._pause_s(rank)

    def _roll_back(
        self, who: Ints, how: End, at_s: float, step: int, pause_s: float = 0.0
    ) -> Floats:
        """End all functions and start them from the checkpoint; from when they can go on."""
        fleet, course = self._fleet, self._course
        _, to_step, index = self._committed_by(at_s)
        self._pending = None
        others = np.setdiff1d(self._all, who)
        fleet.end(who, np.full(len(who), at_s), how, step)
        fleet.end(others, np.full(len(others), at_s), End.CANCELLED, step)
        self._rollbacks += 1
        self._redone += (step - to_step) * course.workers
        cause = {End.HANDED_OVER: "handed over to its successor", End.KILLED: "was killed"}.get(
            how, "came to the end of its lifetime"
        )
        self._telling.rolled_back(at_s, step, to_step, f"worker {int(who[0])} {cause}")
        self._done, self._index = to_step, index
        self._checkpoint_at_s = at_s
        fleet.invoke(self._all, np.full(course.workers, at_s + pause_s))
        self._telling.started(self._all)
        return fleet.able_s.copy()

    def _note(self, turn: Turn, taken: Taken, ended_N: Floats, ready_N: Floats) -> None:
        """A round is taken by all."""
        course, fleet = self._course, self._fleet
        self._done, self._index = turn.stop, self._index + 1
        if turn.stop > self._frontier:
            self._frontier, self._deaths_in_a_row = turn.stop, 0
            self._by_rank.clear()
            self._by_cause.clear()
        if isinstance(turn.rounds, LocalSteps):
            longest_N = (turn.rounds.own_NK * taken.slow_NK).max(axis=1)
        else:
            longest_N = taken.ended_N - taken.began_N
        fleet.took(longest_N, turn.rounds.steps)
        self._computed_N += taken.busy_N
        self._moved += turn.moved
        took_s = float(taken.ended_N[0] - ready_N[0]) / turn.rounds.steps
        for step in range(turn.first, turn.stop):
            self._step_s[step] = took_s
        self._telling.round(turn, taken)
        if turn.epoch is not None:
            if turn.validation_N is not None:
                self._moved += course.validation_moved
            self._epochs[turn.epoch] = float(ended_N.max())
            self._telling.epoch(turn, taken, ended_N)

    def _checkpoint(self, turn: Turn, ended_N: Floats) -> Floats:
        """All write their shares; who has little time left hands over."""
        course, fleet = self._course, self._fleet
        written_N = ended_N + course.part_N
        commit_s = float(written_N.max())
        self._commit(turn, ended_N, commit_s)
        fleet.checkpoint_s = max(fleet.checkpoint_s, float(course.part_N.max()))
        who = np.flatnonzero(fleet.due(ended_N) | fleet.late(ended_N))
        if not who.size:
            return ended_N
        if not course.replays:
            self._done = turn.stop
            return self._roll_back(who, End.HANDED_OVER, commit_s, turn.stop)
        ready_N = ended_N.copy()
        at_N = np.minimum(written_N, np.maximum(fleet.dies_s, ended_N))
        for rank in who.tolist():
            # Whoever dies while it writes leaves the same checkpoint to its successor, or the last.
            how = End.KILLED if fleet.dies_s[rank] < written_N[rank] else End.HANDED_OVER
            self._telling.ended(rank, how, float(at_N[rank]))
            fleet.end(np.array([rank]), at_N[rank : rank + 1], how, turn.stop)
        fleet.invoke(who, at_N[who])
        self._telling.started(who)
        ready_N[who] = fleet.able_s[who]
        return ready_N

    def _commit(self, turn: Turn, ended_N: Floats, commit_s: float) -> None:
        """A checkpoint is being written, and counts from when it is whole."""
        written_N = ended_N + self._course.part_N
        self._committed_by(float(ended_N.max()))
        self._pending = (commit_s, turn.stop, self._index, written_N)
        self._checkpoint_at_s = float(ended_N[0])
        self._checkpoints += 1
        self._telling.checkpoint(turn.stop, ended_N, written_N, commit_s)
