"""Which ends are causes and which are consequences, and how long to wait before all are ended."""

from __future__ import annotations

import pytest

from dayfly.errors import RunFailed, SureToFail, WireError
from dayfly.life.deaths import PATIENCE, Deaths, Verdict
from dayfly.life.ends import (
    CAUSE_S,
    COMMIT_S,
    OWN_S,
    GenerationEnd,
    own_deaths,
    patience_s,
)
from dayfly.life.platforms.base import Ended, Outcome
from tests.life.ends import end


def handed_over(worker: int, step: int, kept: str | None) -> Ended:
    result = {"status": "handed over", "step": step, "kept": kept}
    return end(worker, Outcome.RETURNED, result=result)


KILLED = end(0, Outcome.KILLED)
RAISED = end(1, Outcome.RAISED, "ArithmeticError: no")
HUNGRY = end(1, Outcome.OUT_OF_MEMORY)
WIRE = end(2, Outcome.RAISED, "WireError: rank 0 is gone")
TIMEOUT = end(3, Outcome.RAISED, "WaitTimeout: nothing came within 900 s")
DONE = end(4, Outcome.RETURNED, result={"status": "done", "step": 12, "kept": "run"})
AT_CHECKPOINT = handed_over(5, 12, "run")
IN_ROUND = handed_over(6, 8, "worker")
IN_VAIN = handed_over(7, 8, None)


@pytest.mark.parametrize(
    ("ends", "own"),
    [
        ([KILLED], [KILLED]),
        ([WIRE, KILLED, TIMEOUT, RAISED], [KILLED, RAISED]),
        ([WIRE, TIMEOUT], [WIRE]),
        ([DONE, TIMEOUT, WIRE], [TIMEOUT]),
        ([WIRE, AT_CHECKPOINT], []),
        ([WIRE, AT_CHECKPOINT, RAISED], [RAISED]),
        ([IN_ROUND, IN_VAIN], []),
    ],
)
def test_an_error_of_the_wire_is_a_consequence_if_it_can_be(
    ends: list[Ended], own: list[Ended]
) -> None:
    assert own_deaths(ends) == own


def test_a_channel_that_failed_explains_the_errors_of_the_wire() -> None:
    assert own_deaths([WIRE, TIMEOUT], explained=True) == []
    assert own_deaths([WIRE, KILLED], explained=True) == [KILLED]


@pytest.mark.parametrize(
    ("ends", "checkpoint_step", "may_come", "seconds"),
    [
        ([KILLED], 8, True, 0.0),
        ([KILLED, WIRE], 8, True, 0.0),
        ([WIRE, TIMEOUT], 8, True, CAUSE_S),
        ([AT_CHECKPOINT], 8, True, COMMIT_S),
        ([AT_CHECKPOINT, KILLED], 8, True, COMMIT_S),
        ([AT_CHECKPOINT], 12, False, 0.0),
        ([AT_CHECKPOINT, WIRE], 8, False, 0.0),
        ([IN_ROUND], 8, True, OWN_S),
        ([IN_ROUND, KILLED], 8, True, 0.0),
        ([IN_ROUND], 4, True, 0.0),
        ([IN_VAIN], 8, True, 0.0),
    ],
)
def test_nothing_is_waited_for_but_what_spares_work_or_tells_a_cause(
    ends: list[Ended], checkpoint_step: int, may_come: bool, seconds: float
) -> None:
    assert patience_s(ends, checkpoint_step, lambda step: may_come and step == 12) == seconds


class Ends:
    """Generations of one run that end one after another, and what is decided of each."""

    def __init__(self, frontier: int) -> None:
        self.frontier = frontier
        self._deaths = Deaths()

    def after(
        self, *ends: Ended, failure: WireError | None = None, checkpoint_step: int = 4
    ) -> Verdict:
        end = GenerationEnd(ends, failure, checkpoint_step=checkpoint_step, frontier=self.frontier)
        return self._deaths.all_ended(end, 0.0)


def failing(decision: Verdict) -> str:
    assert isinstance(decision.failure, RunFailed)
    return str(decision.failure)


def test_three_of_a_cause_fail_the_run_whatever_was_redone_between() -> None:
    """The steps that were done before a rollback, and are done again, are no progress."""
    run = Ends(frontier=7)
    assert [run.after(WIRE, HUNGRY).failure for _ in range(2)] == [None, None]
    assert failing(run.after(HUNGRY, WIRE)).startswith(
        "worker 1 ran out of memory () in step 7, 3 times in a row"
    )
    run.frontier = 8
    assert run.after(HUNGRY).failure is None


def test_the_same_exception_again_fails_the_run() -> None:
    run = Ends(frontier=7)
    assert run.after(WIRE, RAISED).failure is None
    again = run.after(RAISED, WIRE)
    assert isinstance(again.failure, SureToFail)
    assert "twice at job.py:3" in failing(again)


def test_all_start_later_after_each_kill_and_at_once_after_a_hand_over() -> None:
    run = Ends(frontier=7)
    found = [run.after(end, checkpoint_step=8) for end in (KILLED, KILLED, KILLED, IN_ROUND)]
    pauses_s = [one.pause_s for one in found]
    assert pauses_s == [*(PATIENCE.pause_s(deaths) for deaths in (1, 2, 3)), 0.0]
    assert pauses_s[2] > pauses_s[1] > pauses_s[0]


@pytest.mark.parametrize("end", [IN_VAIN, AT_CHECKPOINT, IN_ROUND])
def test_hand_overs_that_lose_what_was_done_do_not_go_on_for_ever(end: Ended) -> None:
    """No checkpoint came of it, or the own state is of a later round than the checkpoint."""
    run = Ends(frontier=9)
    assert [run.after(end).failure for _ in range(2)] == [None, None]
    words = failing(run.after(end))
    assert "handed over" in words
    assert "3 times in a row" in words
    assert "raise --lifetime" in words


@pytest.mark.parametrize(("end", "checkpoint_step"), [(AT_CHECKPOINT, 12), (IN_ROUND, 8)])
def test_hand_overs_that_lose_nothing_are_not_counted(end: Ended, checkpoint_step: int) -> None:
    run = Ends(frontier=12)
    found = [run.after(end, checkpoint_step=checkpoint_step) for _ in range(5)]
    assert found == [Verdict()] * 5


def test_a_channel_that_fails_again_and_again_fails_the_run() -> None:
    run, gone = Ends(frontier=7), WireError("gone")
    assert [run.after(WIRE, failure=gone).failure for _ in range(2)] == [None, None]
    assert failing(run.after(failure=gone)).startswith(
        "the channel failed in step 7, 3 times in a row"
    )


@pytest.mark.parametrize(
    ("ends", "failure", "words"),
    [
        ([WIRE, HUNGRY], None, "worker 1 ran out of memory ()"),
        ([AT_CHECKPOINT, WIRE], None, "worker 5 handed over to its successor"),
        ([WIRE], WireError("gone"), "the channel failed: WireError: gone"),
        ([KILLED], WireError("gone"), "worker 0 was killed from outside ()"),
    ],
)
def test_a_generation_ends_of_its_first_cause(
    ends: list[Ended], failure: WireError | None, words: str
) -> None:
    assert GenerationEnd(ends, failure).in_words == words


@pytest.mark.parametrize(
    ("workers", "checkpoint_step", "redone"),
    [(2, 8, 0), (3, 8, 3), (2, 4, 7)],
    ids=["all", "one has not", "of a later round than the checkpoint"],
)
def test_steps_are_redone_unless_every_worker_kept_its_own_state(
    workers: int, checkpoint_step: int, redone: int
) -> None:
    both = [handed_over(rank, 8, "worker") for rank in range(2)]
    end = GenerationEnd(
        [KILLED, *both], checkpoint_step=checkpoint_step, reached=11, world_size=workers
    )
    assert end.redone_steps == redone
