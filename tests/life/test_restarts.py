"""How often workers that live and die together start again, and what is said when they do not."""

from __future__ import annotations

import pytest

from dayfly.errors import WireError
from dayfly.life.gang import GangEnd, Verdict
from dayfly.life.platforms.base import Ended, Invocation, Limits, Outcome
from dayfly.life.restarts import Restarts, in_a_line
from dayfly.life.rollback import by_themselves, is_wire_error, own_deaths


def end(worker: int, outcome: Outcome, error: str | None = None, detail: str = "") -> Ended:
    limits = Limits(lifetime_s=5.0)
    invocation = Invocation(
        function=f"worker-{worker}", attempt=0, handler="m:f", payload={}, limits=limits
    )
    return Ended(
        invocation=invocation, outcome=outcome, error=error, detail=detail, init_s=0, run_s=0
    )


RAISED = end(1, Outcome.RAISED, "ValueError: no", "Traceback ...\nValueError: no")
OTHER = end(0, Outcome.RAISED, "WireError: rank 1 is gone", "Traceback ...")
OLD = end(2, Outcome.LIFETIME, detail="killed at the end of its lifetime of 5 s")
DIED = GangEnd(Verdict.DIED, (RAISED, OTHER))
LIVED = GangEnd(Verdict.LIFETIME, (OLD,))


def test_the_first_cause_comes_with_its_traceback_and_the_others_in_a_line() -> None:
    restarts = Restarts(2)
    assert [restarts.after(DIED, kept=True, where="") for _ in range(2)] == [None, None]
    assert restarts.after(DIED, kept=True, where="") == (
        "worker 1 raised ValueError: no (all had started again 2 times, as --max-restarts 2 "
        "allows)\n\nTraceback ...\nValueError: no\n"
        "also: worker 0 raised WireError: rank 1 is gone"
    )


def test_lifetimes_are_not_counted_as_deaths_unless_nothing_is_kept() -> None:
    restarts = Restarts(0)
    assert [restarts.after(LIVED, kept=True, where="") for _ in range(9)] == [None] * 9
    assert [restarts.after(LIVED, kept=False, where="") for _ in range(2)] == [None] * 2
    assert restarts.after(LIVED, kept=True, where="") is None
    found = [restarts.after(LIVED, kept=False, where="DIR") for _ in range(3)]
    assert found[:2] == [None, None]
    assert (found[2] or "").startswith(
        "3 lives in a row came to the end of their 5 s, and nothing was written below DIR meanwhile"
    )
    assert restarts.deaths == 0


def test_a_death_between_them_counts_as_one_and_lives_in_vain_are_counted_anew() -> None:
    restarts = Restarts(1)
    ends = [LIVED, LIVED, DIED, LIVED, LIVED]
    assert [restarts.after(one, kept=False, where="") for one in ends] == [None] * 5
    assert (restarts.deaths, restarts.in_vain) == (1, 2)
    assert restarts.after(DIED, kept=False, where="") is not None


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (
            "out of memory: limit 9 MiB, an allocation was refused\nTraceback ...",
            "worker 0 ran out of memory (out of memory: limit 9 MiB, an allocation was refused): "
            "raise --memory, lower the batch size, or use more workers (no restart, as "
            "--max-restarts 0 allows)\n\nTraceback ...",
        ),
        (
            "out of memory: limit 9 MiB, peak 9 MiB",
            "worker 0 ran out of memory (out of memory: limit 9 MiB, peak 9 MiB): raise --memory, "
            "lower the batch size, or use more workers (no restart, as --max-restarts 0 allows)",
        ),
    ],
)
def test_memory_has_a_remedy(refused: str, words: str) -> None:
    died = GangEnd(Verdict.DIED, (end(0, Outcome.OUT_OF_MEMORY, detail=refused),))
    assert Restarts(0).after(died, kept=False, where="") == words


def test_a_channel_that_fails_is_a_death_of_its_own() -> None:
    died = GangEnd(Verdict.DIED, (OTHER,), WireError("no server"))
    assert in_a_line(died) == "the channel failed: WireError: no server"
    assert Restarts(0).after(died, kept=False, where="") == (
        "the channel failed: WireError: no server (no restart, as --max-restarts 0 allows)\n"
        "also: worker 0 raised WireError: rank 1 is gone"
    )


@pytest.mark.parametrize(
    ("error", "detail", "of_the_wire"),
    [
        ("WireError: gone", "", True),
        ("WaitTimeout: nothing came", "", True),
        ("RuntimeError: WireError: gone", "", True),
        ("RuntimeError: mine", "Traceback\ndayfly.errors.WaitTimeout: late\n\nThe above", True),
        ("RuntimeError: mine", "Traceback\n  raise dayfly.errors.WireError\n", False),
        ("MyWireErrors: mine", "", False),
        ("ValueError: no", "", False),
    ],
)
def test_an_error_of_the_wire_is_known_behind_another(
    error: str, detail: str, of_the_wire: bool
) -> None:
    assert is_wire_error(end(0, Outcome.RAISED, error, detail)) is of_the_wire


def test_whom_the_coordinator_ended_did_not_end_by_himself() -> None:
    killed = end(3, Outcome.CANCELLED)
    theirs = end(4, Outcome.CANCELLED)
    early = by_themselves([OTHER, RAISED, killed, theirs], {"worker-3"})
    assert early == [OTHER, RAISED, theirs]
    assert own_deaths(early) == [RAISED, theirs]
    assert own_deaths([OTHER]) == [OTHER]


def test_the_same_exception_twice_with_nothing_written_between_is_a_mistake() -> None:
    restarts = Restarts(9)
    assert restarts.after(DIED, kept=False, where="") is None
    found = restarts.after(DIED, kept=False, where="")
    assert (found or "").startswith(
        "worker 1 raised ValueError: no (twice in a row, and nothing was written in between)"
    )


@pytest.mark.parametrize(
    "between",
    [
        (DIED, True),
        (LIVED, False),
        (GangEnd(Verdict.DIED, (end(1, Outcome.RAISED, "OSError: no"),)), False),
        (GangEnd(Verdict.DIED, (end(1, Outcome.KILLED),)), False),
    ],
    ids=["kept", "lifetime", "another", "killed"],
)
def test_what_came_between_them_makes_it_none(between: tuple[GangEnd, bool]) -> None:
    restarts = Restarts(9)
    ends = [(DIED, False), between, (DIED, False)]
    assert [restarts.after(one, kept=kept, where="") for one, kept in ends] == [None] * 3


@pytest.mark.parametrize("first", [OTHER, end(1, Outcome.KILLED), end(1, Outcome.EXITED)])
def test_what_may_pass_is_no_mistake(first: Ended) -> None:
    restarts = Restarts(2)
    died = GangEnd(Verdict.DIED, (first,))
    assert [restarts.after(died, kept=False, where="") for _ in range(2)] == [None, None]
