"""Who is silent, and who is not: as tables of what comes in and when, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dayfly.life.actions import Action, Ask, EndSilent
from dayfly.life.platforms.base import Outcome
from dayfly.life.reports import BEAT, Report
from dayfly.life.silence import LONGEST_S, Silence
from dayfly.life.worker_state import WorkerState
from dayfly.specs.pace import HEARTBEAT_LATE_S
from tests.life.ends import end

BEAT_S = 20.0
#: From the last sign of life.
SILENT_S = BEAT_S + HEARTBEAT_LATE_S
TICK_S = 0.5


class Watched:
    """Two workers in a step that lasts, of which something was heard."""

    def __init__(self, heartbeat_s: float | None = BEAT_S) -> None:
        self.silence = Silence(heartbeat_s, {})
        self.workers = [WorkerState(0, attempt=0), WorkerState(1, attempt=0)]
        self.now, self.frontier = 0.0, 7
        self.says(0)
        self.says(1)

    def says(self, rank: int, *waits: int, attempt: int | None = None) -> None:
        attempt = self.workers[rank].attempt if attempt is None else attempt
        records = ({"kind": BEAT, "waits": list(waits)},)
        self.silence.hear(Report(rank, attempt, {}, records), self.workers[rank].attempt)

    def until(self, then: float, beats: Sequence[int] = ()) -> list[tuple[float, Action]]:
        """Looks every now and then; worker 0 says each heartbeat that it waits for 1.

        beats: of worker 1, in seconds.
        """
        found = []
        while self.now < then:
            if self.now % BEAT_S == 0:
                self.says(0, 1)
            if self.now in beats:
                self.says(1)
            look = self.silence.look(self.workers, self.frontier, self.now)
            found += [(self.now, one) for one in look]
            self.now += TICK_S
        return found

    def again(self, rank: int) -> None:
        """Another attempt follows, and says that it begins."""
        self.workers[rank].attempt += 1
        self.says(rank)


ASKED = (0.0, Ask(1, 0, asked=True))


def test_one_that_beats_is_let_be_and_one_that_misses_a_heartbeat_is_silent() -> None:
    watched = Watched()
    assert watched.until(70.0, beats=[15, 35, 55]) == [ASKED]
    silent = (55.0 + SILENT_S + TICK_S, EndSilent(1, 0))
    assert watched.until(100.0) == [silent]


def test_only_while_somebody_waits_is_anybody_asked() -> None:
    watched = Watched()
    assert watched.until(1.0) == [ASKED]
    found, watched.says = [], lambda *_, **__: None  # type: ignore[method-assign, var-annotated]
    watched.silence.hear(Report(1, 0, {}, ({"kind": "step"},)), 0)  # what it waited for came
    found += watched.until(500.0)
    assert found == [(SILENT_S + TICK_S, Ask(1, 0, asked=False))]


def test_nobody_is_silent_for_whom_nobody_waits_any_more() -> None:
    """It was waited for once, and what it says in short rounds comes less often than heartbeats."""
    watched = Watched()
    assert watched.until(TICK_S) == [ASKED]
    watched.says = lambda *_, **__: None  # type: ignore[method-assign]
    assert watched.until(500.0) == [(SILENT_S + TICK_S, Ask(1, 0, asked=False))]


@pytest.mark.parametrize("case", ["no heartbeats", "starts", "is over", "never heard of"])
def test_who_is_not_asked(case: str) -> None:
    watched = Watched(None if case == "no heartbeats" else BEAT_S)
    if case == "starts":
        watched.workers[1].start_at = 3.0
    elif case == "is over":
        watched.workers[1].status = "done"
    elif case == "never heard of":
        watched.workers[1].attempt = 1
        watched.says(1, attempt=0)  # its predecessor's last word
    assert watched.until(500.0) == []


def test_nobody_is_silent_as_the_supervisor_itself_was_away() -> None:
    watched = Watched()
    assert watched.until(1.0) == [ASKED]
    watched.now += 1000.0  # a store was away, or the machine slept
    again = watched.now
    assert watched.until(again + SILENT_S) == []
    (found,) = watched.until(again + SILENT_S + 2 * TICK_S)
    assert found[1] == EndSilent(1, 0)


def test_the_time_doubles_until_a_step_is_completed() -> None:
    watched = Watched()
    spans = []
    for _ in range(8):
        found = watched.until(watched.now + 2 * LONGEST_S)
        asked = [at for at, one in found if one == Ask(1, watched.workers[1].attempt, asked=True)]
        ended = [at for at, one in found if one == EndSilent(1, watched.workers[1].attempt)]
        spans.append(ended[0] - asked[0] - TICK_S)
        watched.again(1)
    assert spans == [min(SILENT_S * 2**n, LONGEST_S) for n in range(8)]
    watched.frontier += 1
    found = watched.until(watched.now + 2 * SILENT_S)
    assert [type(one) for _, one in found][:2] == [Ask, EndSilent]


def test_the_cause_of_its_end_is_its_silence_and_of_nobody_elses() -> None:
    watched = Watched()
    watched.until(30.0)
    cancelled = end(1, Outcome.CANCELLED)
    found = watched.silence.cause_of(cancelled)
    assert found.outcome is Outcome.SILENT
    assert found.detail == "nothing came of it for 26 s while a peer waited for it"
    for other in (end(0, Outcome.CANCELLED), end(1, Outcome.RETURNED)):
        assert watched.silence.cause_of(other) is other
