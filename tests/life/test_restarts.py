"""How often workers that live and die together start again, and what is said when they do not."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.errors import SureToFail, WireError
from dayfly.life.deaths import Patience, Restart, Verdict
from dayfly.life.ends import GenerationEnd, by_themselves, own_deaths
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.restarts import LoopRestarts, Restarts
from tests.life.ends import end

RAISED = end(1, Outcome.RAISED, "ValueError: no")
OTHER = end(0, Outcome.RAISED, "WireError: rank 1 is gone")
OLD = end(2, Outcome.LIFETIME, detail="killed at the end of its lifetime of 5 s")
HIT = end(1, Outcome.KILLED, detail="killed by SIGKILL from outside")


def decided(
    restarts: Restarts, end: GenerationEnd, *, kept: bool = False, now: float = 0.0
) -> Verdict:
    """What follows from a generation. kept: whether anything was written in it."""
    written = 0
    restarts.written = lambda: written
    restarts.begins()
    written += kept
    return restarts.all_ended(end, now)


def after(
    restarts: Restarts, end: GenerationEnd, *, kept: bool = False, now: float = 0.0
) -> str | None:
    """Why the run fails, if it does."""
    failure = decided(restarts, end, kept=kept, now=now).failure
    return None if failure is None else str(failure)


DIED = GenerationEnd([RAISED, OTHER])
LIVED = GenerationEnd([OLD])
KILLED = GenerationEnd([OTHER, HIT])


def test_the_first_cause_comes_with_its_traceback_and_the_others_in_a_line() -> None:
    restarts = Restarts(2)
    assert [after(restarts, DIED, kept=True) for _ in range(2)] == [None, None]
    assert after(restarts, DIED, kept=True) == (
        "worker 1 raised ValueError: no (2 restarts, as --max-restarts 2 "
        "allows)\n\nTraceback ...\nValueError: no\n"
        "also: worker 0 raised WireError: rank 1 is gone"
    )


def test_lifetimes_are_not_counted_as_deaths_unless_nothing_is_kept() -> None:
    restarts = Restarts(0, where="DIR")
    assert [after(restarts, LIVED, kept=True) for _ in range(9)] == [None] * 9
    assert [after(restarts, LIVED, kept=False) for _ in range(2)] == [None] * 2
    assert after(restarts, LIVED, kept=True) is None
    found = [after(restarts, LIVED, kept=False) for _ in range(3)]
    assert found[:2] == [None, None]
    assert (found[2] or "").startswith(
        "3 lives in a row came to the end of their 5 s, and nothing was written below DIR meanwhile"
    )
    assert restarts.deaths == 0


def test_a_death_between_them_counts_as_one_and_lives_in_vain_are_counted_anew() -> None:
    restarts = Restarts(1)
    ends = [LIVED, LIVED, DIED, LIVED, LIVED]
    assert [after(restarts, one, kept=False) for one in ends] == [None] * 5
    assert (restarts.deaths, restarts.in_vain) == (1, 2)
    assert after(restarts, DIED, kept=False) is not None


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
    died = GenerationEnd([end(0, Outcome.OUT_OF_MEMORY, detail=refused)])
    assert after(Restarts(0), died) == words


def test_a_channel_that_fails_is_a_death_of_its_own() -> None:
    died = GenerationEnd([OTHER], WireError("no server"))
    assert died.in_words == "the channel failed: WireError: no server"
    assert after(Restarts(0), died) == (
        "the channel failed: WireError: no server (no restart, as --max-restarts 0 allows)\n"
        "also: worker 0 raised WireError: rank 1 is gone"
    )


def test_whom_the_coordinator_ended_did_not_end_by_himself() -> None:
    killed = end(3, Outcome.CANCELLED)
    theirs = end(4, Outcome.CANCELLED)
    early = by_themselves([OTHER, RAISED, killed, theirs], {"worker-3"})
    assert early == [OTHER, RAISED, theirs]
    assert own_deaths(early) == [RAISED, theirs]
    assert own_deaths([OTHER]) == [OTHER]


def test_the_same_exception_twice_with_nothing_written_between_is_a_mistake() -> None:
    restarts = Restarts(9)
    assert decided(restarts, DIED, kept=False, now=0.0) == Verdict()
    failure = decided(restarts, DIED, kept=False, now=0.0).failure
    assert isinstance(failure, SureToFail)
    assert str(failure).startswith(
        "worker 1 raised ValueError: no (twice in a row, and nothing was written in between)"
    )


def elsewhere(**changes: Any) -> GenerationEnd:
    """As `DIED`, but for what is given."""
    told: dict[str, Any] = {"worker": 1, "error": "ValueError: no", "place": "job.py:3", **changes}
    return GenerationEnd([end(outcome=Outcome.RAISED, **told)])


@pytest.mark.parametrize(
    "second",
    [elsewhere(error="OSError: no"), elsewhere(place="job.py:4")],
    ids=["type", "line"],
)
def test_another_exception_is_another_mistake(second: GenerationEnd) -> None:
    restarts = Restarts(9)
    assert [after(restarts, one) for one in (DIED, second, DIED)] == [None] * 3


@pytest.mark.parametrize(
    "second", [elsewhere(error="ValueError: at 0x7f"), elsewhere(worker=0)], ids=["text", "rank"]
)
def test_the_text_of_an_exception_and_its_rank_may_differ(second: GenerationEnd) -> None:
    restarts = Restarts(9)
    assert after(restarts, DIED) is None
    assert after(restarts, second) is not None


@pytest.mark.parametrize(
    "between", [(DIED, True), (LIVED, False), (KILLED, False)], ids=["kept", "lifetime", "killed"]
)
def test_what_came_between_them_makes_it_none(between: tuple[GenerationEnd, bool]) -> None:
    restarts = Restarts(9)
    ends = [(DIED, False), between, (DIED, False)]
    assert [after(restarts, one, kept=kept) for one, kept in ends] == [None] * 3


@pytest.mark.parametrize("first", [OTHER, end(1, Outcome.EXITED)])
def test_what_may_pass_is_no_mistake(first: Ended) -> None:
    restarts = Restarts(2)
    died = GenerationEnd([first])
    assert [after(restarts, died) for _ in range(3)][:2] == [None, None]
    assert restarts.deaths == 2


def test_kills_from_outside_are_not_counted_and_wait_longer_and_longer() -> None:
    restarts = Restarts(0, Patience(first_pause_s=1.0, longest_pause_s=5.0))
    told = [decided(restarts, KILLED, kept=False, now=0.0) for _ in range(6)]
    assert told == [Verdict(pause_s=pause_s) for pause_s in (0.0, 1.0, 2.0, 4.0, 5.0, 5.0)]
    assert decided(restarts, KILLED, kept=True, now=0.0) == Verdict()
    assert restarts.deaths == 0


def test_kills_end_a_run_that_kept_nothing_for_too_long() -> None:
    restarts = Restarts(0, Patience(without_progress_s=10.0))
    assert [after(restarts, KILLED, now=now) for now in (0.0, 9.0, 10.0)] == [None] * 3
    assert after(restarts, KILLED, kept=True, now=11.0) is None
    assert after(restarts, KILLED, now=20.0) is None
    assert (after(restarts, KILLED, now=22.0) or "").startswith(
        "worker 1 was killed from outside (killed by SIGKILL from outside) (the last of 3 kills "
        "in 11 s in which nothing was written)"
    )


def test_one_starts_again_alone_once_all_are_in_a_loop_that_can_catch_up() -> None:
    policy = LoopRestarts(Restarts(1), workers=2)
    policy.begins()
    found = [policy.restart]
    policy.entered(1, alone=True)
    found.append(policy.restart)
    policy.entered(0, alone=True)
    assert [*found, policy.restart] == [Restart.ALL, Restart.ALL, Restart.ONE]
    assert policy.stops_in_order
    policy.grouped()
    assert policy.restart is Restart.ALL
    assert policy.stops_in_order, "there is a checkpoint to write"
    policy.begins()
    assert not policy.stops_in_order
    for rank in range(2):
        policy.entered(rank, alone=rank == 0)
    assert policy.restart is Restart.ALL


def test_deaths_of_one_count_as_those_of_all_do() -> None:
    policy = LoopRestarts(Restarts(1), workers=2)
    other = end(1, Outcome.RAISED, "KeyError: 3", place="job.py:9")
    assert policy.died(HIT, 3, 0.0).failure is None
    assert policy.died(OLD, 4, 0.0).failure is None
    assert policy.died(RAISED, 5, 0.0).failure is None
    assert policy.together.deaths == 1
    assert str(policy.died(other, 6, 0.0).failure).startswith(
        "worker 1 raised KeyError: 3 (one restart, as --max-restarts 1 allows)"
    )


def test_hand_overs_of_all_are_planned() -> None:
    gone = end(0, Outcome.RETURNED, result={"status": "handed over", "step": 4, "kept": "run"})
    policy = LoopRestarts(Restarts(0, where="DIR"), workers=2)
    assert GenerationEnd([gone]).planned
    assert not GenerationEnd([gone, RAISED]).planned
    assert policy.all_ended(GenerationEnd([gone]), 0.0).failure is None
