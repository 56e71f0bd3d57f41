"""Which workers have fallen silent while a peer waits for them. Pure: it reads no clock.

    rank 0       step 7 ..... waits for 1 -- tells so ----------- tells so ---------
    rank 1       step 7 ..................... asked -> beats -------X
    supervisor                               clock of 1: |  again    |  ...  | silent: fenced, ended

A waiting worker tells whom it waits for, and tells so again with each heartbeat. Those are asked
for heartbeats, until nobody has told so for a while. All that comes of a worker is a sign of life.
One of which nothing has come for a heartbeat, and as long as that may be late, is silent: it is
fenced and ended, and another attempt follows.

A worker that holds Python's lock cannot beat, though it lives. So the time becomes twice as long
with each silence of a worker that no completed step follows: such a step passes in the end. Nor is
silence ever a death that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dayfly.life import actions
from dayfly.life.actions import Actions
from dayfly.life.deaths import Count
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.reports import BEAT, Report
from dayfly.life.worker_state import WorkerState
from dayfly.specs.events import rank_of
from dayfly.specs.pace import HEARTBEAT_LATE_S

#: The longest time of silence that is borne with, in seconds: as long as peers wait by default.
LONGEST_S = 900.0


@dataclass(slots=True)
class _Asked:
    """A worker that is asked for heartbeats. Times are the supervisor's, in seconds.

    Args:
        attempt: of it.
        heard: when something came of it last, or it was asked.
        until: when nobody waits for it any more, unless it is told again.
    """

    attempt: int
    heard: float
    until: float


class Silence:
    """What a supervisor has heard of the workers of a generation, and of whom they wait for.

    Args:
        heartbeat_s: between two heartbeats; None: there are none, and nobody is ever silent.
        silences: of each rank so far, without a completed step between them; it goes on with them.
    """

    def __init__(self, heartbeat_s: float | None, silences: dict[int, Count]) -> None:
        self._heartbeat_s = heartbeat_s
        self._silences = silences
        self._known: dict[int, int] = {}  # the attempt of which something came, by rank
        self._spoke: set[int] = set()
        self._wanted: set[int] = set()
        self._asked: dict[int, _Asked] = {}
        self._ended: dict[tuple[int, int], float] = {}  # silent attempts, and for how long
        self._looked: float | None = None

    def hear(self, report: Report, attempt: int) -> None:
        """Something came of a worker, whose latest attempt is `attempt`."""
        if report.attempt == attempt:
            self._known[report.rank] = attempt
            self._spoke.add(report.rank)
            for record in report.records:
                if record["kind"] == BEAT:
                    self._wanted.update(record["waits"])

    def look(self, workers: Sequence[WorkerState], frontier: int, now: float) -> Actions:
        """A look at the clock, once all that had come was heard.

        A worker that has said nothing yet may still start: it is not asked.

        Args:
            workers: of the generation.
            frontier: completed steps of the run.
            now: seconds of a monotonic clock.
        """
        if self._heartbeat_s is None:
            return
        every_s = self._heartbeat_s + HEARTBEAT_LATE_S
        spoke, self._spoke = self._spoke, set()
        wanted, self._wanted = self._wanted, set()
        # A supervisor that could not look, such as while a store was away, has missed nothing.
        blind_s = 0.0 if self._looked is None else now - self._looked
        blind_s = blind_s if blind_s > HEARTBEAT_LATE_S else 0.0
        self._looked = now
        attempts = {one.rank: one.attempt for one in workers if self._may_be_asked(one)}
        for rank, one in list(self._asked.items()):
            if attempts.get(rank) != one.attempt:
                del self._asked[rank]
            one.heard = now if rank in spoke or blind_s else one.heard
            one.until = now + every_s if rank in wanted else one.until + blind_s
        yield from self._ask(wanted, attempts, now, now + every_s)
        for rank, one in list(self._asked.items()):
            before = self._silences.setdefault(rank, Count()).in_row(frontier)
            if now > one.until:  # nobody waits for it any more
                del self._asked[rank]
                yield actions.Ask(rank, one.attempt, asked=False)
            elif now - one.heard > min(every_s * 2.0 ** min(before, 30), LONGEST_S):
                self._silences[rank].add(frontier)
                del self._asked[rank]
                self._ended[rank, one.attempt] = now - one.heard
                yield actions.EndSilent(rank, one.attempt)

    def cause_of(self, ended: Ended) -> Ended:
        """Returns how a function ended, with its silence as the cause if it was ended for that."""
        invocation = ended.invocation
        who = rank_of(invocation.function), invocation.attempt
        if ended.outcome is not Outcome.CANCELLED or who not in self._ended:
            return ended
        detail = f"nothing came of it for {self._ended[who]:.0f} s while a peer waited for it"
        return replace(ended, outcome=Outcome.SILENT, detail=detail)

    def _ask(
        self, wanted: set[int], attempts: Mapping[int, int], now: float, until: float
    ) -> Actions:
        for rank in sorted((wanted & attempts.keys()) - self._asked.keys()):
            self._asked[rank] = _Asked(attempts[rank], now, until)
            yield actions.Ask(rank, attempts[rank], asked=True)

    def _may_be_asked(self, worker: WorkerState) -> bool:
        runs = worker.status is None and worker.start_at is None
        heard_of = self._known.get(worker.rank) == worker.attempt
        return runs and heard_of and (worker.rank, worker.attempt) not in self._ended
