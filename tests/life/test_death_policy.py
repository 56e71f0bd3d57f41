"""When a run gives up, and how long a worker waits before it starts again."""

from __future__ import annotations

import pytest

from dayfly.errors import RunFailed, SureToFail, WireError
from dayfly.life.deaths import Deaths, Patience, Verdict
from dayfly.life.ends import GenerationEnd
from dayfly.life.platforms.base import Ended, Outcome
from tests.life.ends import end

RAISED, OOM, LIFETIME = Outcome.RAISED, Outcome.OUT_OF_MEMORY, Outcome.LIFETIME
EXITED, KILLED, RECLAIMED = Outcome.EXITED, Outcome.KILLED, Outcome.CANCELLED

PATIENCE = Patience(without_progress_s=10.0, first_pause_s=1.0, longest_pause_s=5.0)


def raised(error: str, line: int = 3, step: int | None = None, worker: int = 0) -> Ended:
    return end(worker, RAISED, error, place=f"job.py:{line}", step=step)


def dead(outcome: Outcome, what: str = "", worker: int = 0) -> Ended:
    return end(worker, outcome, detail=what)


HUNGRY, OLD, HIT = dead(OOM), dead(LIFETIME), dead(KILLED, "SIGKILL")
WIRE = end(0, RAISED, "WaitTimeout: late", step=5)
GONE = GenerationEnd([], WireError("gone"), frontier=7)

#: Deaths as (how a function ended, completed steps), a second apart, and at which of them the run
#: fails, if at all.
TABLE: dict[str, tuple[list[tuple[Ended, int]], int | None]] = {
    "three of one cause": ([(HUNGRY, 5)] * 3, 2),
    "two of one cause": ([(HUNGRY, 5)] * 2, None),
    "progress between": ([(HUNGRY, 5), (HUNGRY, 5), (HUNGRY, 6), (HUNGRY, 6)], None),
    "progress, then three": ([(HUNGRY, 5), (HUNGRY, 6), (HUNGRY, 6), (HUNGRY, 6)], 3),
    "different outcomes": ([(HUNGRY, 5), (OLD, 5), (raised("E"), 5), (HUNGRY, 5), (OLD, 5)], None),
    "memory peaks differ": ([(dead(OOM, f"peak {n} MiB"), 0) for n in range(3)], 2),
    "exit codes": ([(dead(EXITED, f"exit code {3 + n % 2}"), 0) for n in range(4)], None),
    "one exit code": ([(dead(EXITED, "signal SIGSEGV"), 0)] * 3, 2),
    # Exceptions of the job.
    "the same again": ([(raised("E: a", step=5), 5), (raised("E: b", step=5), 5)], 1),
    "the same, redone": ([(raised("E", step=5), 5), (raised("E", step=5), 9)], 1),
    "other deaths between": ([(raised("E", step=5), 5), (HIT, 5), (raised("E", step=5), 5)], 2),
    "at other lines": ([(raised("E", n, 5), 5) for n in range(3)], 2),
    "in other steps": ([(raised("E", step=n), n) for n in range(9)], None),
    "of other types": ([(raised(f"E{n}", step=5), 5) for n in range(9)], None),
    "of other workers": ([(raised("E", step=5, worker=n), 5) for n in range(9)], None),
    "outside of steps": ([(raised("E"), 5)] * 2, 1),
    "outside, with progress": ([(raised("E"), 5), (raised("E"), 6)], None),
    # Of the wire: they may pass.
    "the wire": ([(WIRE, 5)] * 3, 2),
    # From outside.
    "kills": ([(HIT, 0)] * 10, None),
    "reclaims": ([(dead(RECLAIMED), 0)] * 10, None),
    "a thousand functions": ([(dead(KILLED, worker=n), 0) for n in range(10)], None),
    "kills do not add to others": ([(HUNGRY, 0), (HIT, 0), (HUNGRY, 0)], None),
    "kills do not reset others": ([(HUNGRY, 0), (HIT, 0), (HUNGRY, 0), (HUNGRY, 0)], 3),
    # For too long.
    "kills for too long": ([(HIT, 0)] * 12, 11),
    "kills, progress, kills": ([(HIT, 0)] * 10 + [(HIT, 1)] * 10, None),
    "ever other causes": ([(raised(f"E{n}"), 0) for n in range(20)], 11),
}


@pytest.mark.parametrize("name", list(TABLE))
def test_the_policy(name: str) -> None:
    rows, fails_at = TABLE[name]
    deaths = Deaths(patience=PATIENCE)
    found = [deaths.died(ended, step, float(now)) for now, (ended, step) in enumerate(rows)]
    failed = [number for number, decision in enumerate(found) if decision.failure is not None]
    assert failed[:1] == ([] if fails_at is None else [fails_at])


def test_a_reclaim_of_a_thousand_functions_is_no_reason_to_wait_or_to_give_up() -> None:
    deaths = Deaths()
    found = [deaths.died(dead(KILLED, worker=n), 7, 0.1 * n) for n in range(1000)]
    assert found == [Verdict()] * 1000


def test_starts_of_one_worker_come_later_and_later_until_there_is_progress() -> None:
    deaths = Deaths(patience=PATIENCE)
    steps = [3, 3, 3, 3, 3, 3, 4, 4]
    found = [deaths.died(HIT, step, 0.0).pause_s for step in steps]
    assert found == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0, 0.0, 1.0]
    assert deaths.died(dead(KILLED, worker=1), 4, 0.0).pause_s == 0.0
    assert Patience().pause_s(10**6) == Patience().longest_pause_s


def test_only_what_would_come_again_is_sure_to_fail() -> None:
    deaths, text = Deaths(), ""
    for _ in range(2):
        failure = deaths.died(raised("ArithmeticError: no", step=4), 5, 0.0).failure
    assert isinstance(failure, SureToFail)
    text = str(failure)
    assert text.startswith("worker 0 raised ArithmeticError: no in step 4, twice at job.py:3: it ")
    assert text.endswith("\n\nTraceback ...\nArithmeticError: no")
    failures = [deaths.died(HUNGRY, 5, 0.0).failure for _ in range(3)]
    assert type(failures[-1]) is RunFailed


def test_each_worker_counts_for_itself() -> None:
    """One event, such as the end of lifetimes that began together, may hit all of them."""
    deaths = Deaths()
    found = [deaths.died(dead(LIFETIME, "60 s", n % 4), 4, 0.0).failure for n in range(8)]
    assert found == [None] * 8
    assert deaths.died(raised("E: no", worker=1), 4, 0.0).failure is None
    failure = deaths.died(dead(LIFETIME, "60 s", 1), 4, 0.0).failure
    assert str(failure).startswith(
        "worker 1 came to the end of its lifetime (60 s) in step 4, 3 times in a row without a "
        "completed step: raise --lifetime"
    )


def test_a_channel_fails_a_run_at_the_third_failure_or_after_too_long() -> None:
    deaths = Deaths(patience=PATIENCE)
    found = [deaths.all_ended(GONE, 0.0) for _ in range(3)]
    assert [decision.pause_s for decision in found[:2]] == [0.0, 1.0]
    assert str(found[2].failure) == (
        "the channel failed in step 7, 3 times in a row without a completed step: WireError: gone"
    )
    deaths = Deaths(patience=PATIENCE)
    deaths.died(HIT, 7, 0.0)
    late = deaths.all_ended(GONE, 10.5).failure
    assert "the last of 2 deaths in 10 s without a completed step" in str(late)


@pytest.mark.parametrize("one", [dead(LIFETIME, "60 s"), dead(OOM, "256 MiB limit")])
def test_workers_that_hand_over_between_rounds_need_time_for_rounds(one: Ended) -> None:
    deaths = Deaths(by_rounds=True)
    cause = str([deaths.died(one, 7, 0.0).failure for _ in range(3)][-1])
    needs = "so that a start, a checkpoint and three rounds fit, or give a smaller --k"
    assert (needs in cause) == (one.outcome is LIFETIME)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (dead(OOM, "256 MiB limit"), "ran out of memory (256 MiB limit)*: raise --memory or"),
        (dead(LIFETIME, "60 s"), "came to the end of its lifetime (60 s)*: raise --lifetime"),
        (dead(EXITED, "exit code 3"), "ended itself (exit code 3)*3 times in a row"),
        (WIRE, "raised WaitTimeout: late in step 7*3 times in a row*Traceback ..."),
    ],
)
def test_the_cause_says_what_to_do(one: Ended, text: str) -> None:
    deaths = Deaths()
    cause = str([deaths.died(one, 7, 0.0).failure for _ in range(3)][-1])
    assert cause.startswith("worker 0 ")
    at = 0
    for part in text.split("*"):
        assert (at := cause.find(part, at)) >= 0, cause
