"""What follows from each event of a generation: tables, without a supervisor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from dayfly.errors import RunFailed, SureToFail, WireError
from dayfly.life.actions import Action, AskToStop, Commit, EndAll, Pass, Start, Tell, Trim
from dayfly.life.deaths import Deaths, Restart
from dayfly.life.ends import GenerationEnd, status_after
from dayfly.life.generation import LEAVE_S, STOP_GRACE_S, Generation
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.reports import Report
from dayfly.life.restarts import Restarts
from dayfly.life.worker_state import Past, States, WorkerState
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.generations import GenerationPlan, RankPlan
from tests.life.ends import end
from tests.life.supervised import caught_up, part, part_of

ONE, ALL = Restart.ONE, Restart.ALL
BOTH = ["worker-0", "worker-1"]


def returned(status: str, worker: int = 0) -> Any:
    return end(
        worker, Outcome.RETURNED, result={"status": status, "step": 4, "kept": None, "error": "no"}
    )


KILLED = end(0, Outcome.KILLED)
HANDED_OVER, DONE, FAILED = returned("handed over"), returned("done"), returned("failed")
DONE_TOO = returned("done", 1)
WIRE = end(0, Outcome.RAISED, "WireError: rank 1 is gone")


def begun(restart: Restart, *, in_order: bool = True, hears_stop_s: float = 0.0) -> Generation:
    """Two workers that run, from the checkpoint before step 0, at 0 s."""
    workers = [RankPlan(spec=FunctionSpec(), replica=rank) for rank in range(2)]
    plan = GenerationPlan(number=0, platform="", channel="", store="", layout=workers)
    policy = Deaths(restart, hears_stop_s) if in_order else Restarts(0)
    generation = Generation(plan, policy, Past())
    assert list(generation.begins(0.0)) == [
        Pass(0, "begin"),
        Start(0, 0, 0),
        Start(1, 0, 0),
        Pass(0, "invoked"),
    ]
    return generation


def told(generation: Generation, rank: int, *records: Any, attempt: int = 0) -> list[Action]:
    return list(generation.heard(Report(rank, attempt, {}, records)))


def look(
    generation: Generation,
    *ends: Ended,
    now: float = 1.0,
    stop_asked: bool = False,
    change_asked: bool = False,
) -> list[Action]:
    generation.ended += ends
    over = {one.invocation.function for one in ends}
    running = [one for one in BOTH if one not in over]
    asked = {"stop_asked": stop_asked, "change_asked": change_asked}
    return list(generation.saw(running=running, now=now, **asked))


AGAIN = [Pass(0, "again"), Start(0, 1, 0)]


@pytest.mark.parametrize(
    ("restart", "ends", "actions", "over"),
    [
        (ONE, [], [], None),
        (ONE, [KILLED], [Tell(KILLED, death=True), *AGAIN], None),
        (ONE, [HANDED_OVER], [Tell(HANDED_OVER, death=False), *AGAIN], None),
        (ONE, [DONE], [Tell(DONE, death=False)], None),
        (ONE, [DONE, DONE_TOO], [Tell(DONE, death=False), Tell(DONE_TOO, death=False)], "done"),
        (ALL, [], [], None),
        (ALL, [KILLED], [EndAll()], None),
        (ALL, [DONE], [Tell(DONE, death=False)], None),
        (ALL, [DONE, DONE_TOO], [Tell(DONE, death=False), Tell(DONE_TOO, death=False)], "done"),
        (ALL, [WIRE], [], None),  # maybe another's death explains it
        (ALL, [HANDED_OVER], [EndAll()], None),  # nothing was kept, so there is nothing to wait for
    ],
)
def test_what_follows_from_ends(
    restart: Restart, ends: list[Ended], actions: list[Action], over: str | None
) -> None:
    generation = begun(restart)
    assert look(generation, *ends) == actions
    assert generation.over == over


@pytest.mark.parametrize(
    ("hears_stop_s", "now", "over"),
    [
        (0.0, 1.0, None),
        (0.0, 0.9 + STOP_GRACE_S, None),
        (0.0, 1.0 + STOP_GRACE_S, "stopped"),
        (9.6, 10.5 + STOP_GRACE_S, None),  # so long it takes until one looks for it
        (9.6, 10.6 + STOP_GRACE_S, "stopped"),
    ],
)
def test_workers_that_stop_in_order_have_time_to(
    hears_stop_s: float, now: float, over: str | None
) -> None:
    generation = begun(ONE, hears_stop_s=hears_stop_s)
    assert look(generation, stop_asked=True) == [AskToStop()]
    assert look(generation, stop_asked=True, now=now) == []
    assert generation.over == over


@pytest.mark.parametrize("restart", [ONE, ALL])
def test_a_stop_waits_for_nobody_where_nobody_could_be_started(restart: Restart) -> None:
    generation = begun(restart)
    seen = {"running": [], "now": 1.0}
    assert list(generation.saw(stop_asked=False, **seen)) == []
    assert generation.over is None
    assert list(generation.saw(stop_asked=True, **seen)) == [AskToStop()]
    assert generation.over == "stopped"


def test_a_stop_waits_for_one_that_died_and_starts_again() -> None:
    generation = begun(ONE)
    assert look(generation, KILLED, DONE_TOO, stop_asked=True)[-1] == Start(0, 1, 0)
    assert generation.over is None


@pytest.mark.parametrize("restart", [ONE, ALL])
def test_workers_end_for_a_change_at_their_own_pace(restart: Restart) -> None:
    generation = begun(restart)
    assert look(generation, change_asked=True) == [AskToStop(changes=True)]
    assert look(generation, change_asked=True, now=1000.0) == []
    assert generation.over is None
    told(generation, 0, part(4, "a", then="stopped"))
    assert told(generation, 1, part(4, "b", then="stopped"))[:1] == [
        Commit(4, (part_of(4, "a"), part_of(4, "b")))
    ]
    look(generation, returned("stopped"), returned("stopped", 1), change_asked=True, now=1001.0)
    assert generation.over == "stopped"


def test_a_stop_during_a_change_has_its_bound() -> None:
    generation = begun(ONE)
    assert look(generation, change_asked=True) == [AskToStop(changes=True)]
    asked = {"change_asked": True, "stop_asked": True}
    assert look(generation, now=5.0, **asked) == [AskToStop()]
    assert look(generation, now=5.0 + STOP_GRACE_S, **asked) == []
    assert generation.over == "stopped"


def test_one_that_dies_before_a_change_starts_again_first() -> None:
    generation = begun(ONE)
    look(generation, change_asked=True)
    assert look(generation, KILLED, change_asked=True) == [Tell(KILLED, death=True), *AGAIN]


def test_a_pause_is_made_once() -> None:
    past = Past(pause_s=7.0)
    for number, starts in enumerate([[], [Start(0, 0, 0)]]):
        plan = GenerationPlan(
            number=number,
            platform="",
            channel="",
            store="",
            layout=[RankPlan(spec=FunctionSpec())],
        )
        found = list(Generation(plan, Deaths(ALL), past).begins(0.0))
        assert found == [Pass(0, "begin"), *starts, Pass(0, "invoked")]


def test_others_have_none() -> None:
    generation = begun(ALL, in_order=False)
    assert look(generation, KILLED, stop_asked=True) == []
    assert generation.over == "stopped"
    assert list(generation.untold()) == [Tell(KILLED, death=False)]


def over_of(generation: Generation, *, running: list[str] | None = None, **more: Any) -> Any:
    list(generation.gone(running=running or [], **{"stop_asked": False, "now": 2.0, **more}))
    return generation.over


def lost(generation: Generation) -> None:
    generation.lose_channel(WireError("gone"), 1.0)


def last(generation: Generation) -> None:
    for rank in range(2):
        told(generation, rank, part(4, then="done"))


def asked(generation: Generation) -> None:
    look(generation, stop_asked=True)


def found_out(generation: Generation) -> None:
    look(generation, FAILED)


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (lambda generation: None, "worker 0 was killed from outside ()"),
        (lost, "worker 0 was killed from outside ()"),
        (last, "done"),
        (asked, "stopped"),
        (found_out, "no"),
    ],
)
def test_what_follows_once_all_were_ended(before: Callable[[Generation], None], words: str) -> None:
    generation = begun(ALL)
    before(generation)
    generation.ended.append(KILLED)
    over = over_of(generation)
    assert (over.in_words if isinstance(over, GenerationEnd) else str(over)) == words
    assert isinstance(over, SureToFail) == (before is found_out)


def test_nothing_follows_a_function_that_cannot_be_ended() -> None:
    generation = begun(ALL)
    over = over_of(generation, running=["worker-1"])
    assert isinstance(over, RunFailed)
    assert "worker-1 did not end within 60 s" in str(over)


def test_a_checkpoint_counts_once_all_parts_are_there_and_the_log_goes_once_nobody_reads_it() -> (
    None
):
    generation = begun(ONE)
    assert told(generation, 0, part(4, "a")) == []
    parts = (part_of(4, "a"), part_of(4, "b"))
    assert told(generation, 1, caught_up(0), part(4, "b")) == [Commit(4, parts)]
    assert look(generation) == [], "worker 0 may still read it"
    told(generation, 0, caught_up(0))
    assert look(generation) == [Trim(4)]
    assert look(generation) == []
    assert look(generation, KILLED)[-1] == Start(0, 1, 4)


def test_a_commit_that_fails_leaves_the_state_as_it_was() -> None:
    """The one who carries it out raises, and does not ask for what follows."""
    generation = begun(ALL)
    told(generation, 0, part(4, then="done"))
    actions: Iterator[Action] = generation.heard(Report(1, 0, {}, [part(4, then="done")]))
    assert isinstance(next(actions), Commit)
    actions.close()  # type: ignore[attr-defined]
    assert isinstance(over_of(generation), RunFailed | GenerationEnd)


@pytest.mark.parametrize(
    ("ended", "last", "status"),
    [
        (returned("done"), None, "done"),
        (returned("stopped"), None, "stopped"),
        (returned("done"), "done", "done"),
        (returned("handed over"), None, None),
        (returned("handed over"), "stopped", "stopped"),
        (KILLED, None, None),
        (KILLED, "done", "done"),
    ],
)
def test_who_ended_has_a_status_or_starts_again(ended: Any, last: Any, status: Any) -> None:
    assert status_after(ended, last) == status


@pytest.mark.parametrize(
    ("worker", "reads"),
    [
        ({"started_from": 8}, False),
        ({"started_from": 12}, False),
        ({"started_from": 4, "caught_up": True}, False),
        ({"started_from": 4, "status": "done"}, False),
        ({"started_from": 4}, True),
    ],
)
def test_who_reads_the_log_before_step_8(worker: dict[str, Any], reads: bool) -> None:
    assert WorkerState(1, **worker).reads_log_before(8) is reads


def test_a_new_attempt_is_behind_until_it_says_otherwise() -> None:
    worker = WorkerState(2, attempt=3, started_from=4, caught_up=True, start_at=7.0)
    worker.starts(5, 8, 2.0)
    assert worker == WorkerState(2, attempt=5, started_from=8, started_at=2.0)


# --- a generation that warms up


def test_attempts_of_two_generations_that_live_at_once_have_numbers_of_their_own() -> None:
    past = Past()
    now = Generation(_plan(0), Deaths(ONE), past)
    list(now.begins(0.0))
    following = Generation(_plan(1), Deaths(ONE), past, waiting=True)
    assert list(following.begins(1.0)) == [
        Pass(0, "warm"),
        Start(0, 1, 0),
        Start(1, 1, 0),
        Pass(0, "warming"),
    ]
    assert look(now, KILLED) == [Tell(KILLED, death=True), Pass(0, "again"), Start(0, 2, 0)]


def test_who_warms_up_goes_from_the_checkpoint_of_the_plan_and_lives_on_like_any_other() -> None:
    following = Generation(_plan(1), Deaths(ONE), Past(), waiting=True)
    list(following.begins(1.0))
    assert told(following, 0, {"kind": "warm"}) == []
    assert not following.ready
    told(following, 1, {"kind": "warm"}, attempt=7)
    assert not following.ready, "of another attempt"
    told(following, 1, {"kind": "warm"})
    assert following.ready
    assert list(following.waits(2.0)) == []
    assert list(following.goes(replace(_plan(1), first_step=4), Deaths(ONE))) == [Pass(4, "begin")]
    assert told(following, 0, part(4)) == [], "that checkpoint counts already"
    assert look(following, KILLED) == [
        Tell(KILLED, death=True),
        Pass(4, "again"),
        Start(0, 1, 4),
    ]


def test_one_whose_life_goes_by_while_it_waits_has_a_successor_and_is_no_death() -> None:
    following = Generation(_plan(1), Deaths(ONE), Past(), waiting=True)
    list(following.begins(1.0))
    for attempt in range(5):
        told(following, 0, {"kind": "warm"}, attempt=attempt)
        following.ended.append(HANDED_OVER)
        assert list(following.waits(2.0)) == [
            Tell(HANDED_OVER, death=False),
            Start(0, attempt + 1, 0),
        ]
        assert not following.ready
    assert following.over is None


@pytest.mark.parametrize(
    ("life_s", "due_s"),
    [
        (20.0, 20.0 - (1.5 * 0.5 + 1.0 + 2 * 0.1 + 2 * 0.2 + 0.5)),
        (900.0, 900.0 - (1.5 * 0.5 + 1.0 + 2 * 0.1 + 2 * 0.2 + 0.5)),
        (5.0, None),  # more than half of a life would go by before its end
        (None, None),
    ],
)
def test_successors_warm_up_just_in_time(life_s: float | None, due_s: float | None) -> None:
    generation = Generation(_plan(0, FunctionSpec(lifetime_s=life_s)), Deaths(ONE), Past())
    list(generation.begins(0.0))
    assert not generation.renewal_due(1e9), "nobody knows yet how long a start takes"
    for rank in range(2):
        told(generation, rank, {"kind": "start"}, {"kind": "step", "step": 0, "step_s": 0.1})
        told(generation, rank, {**part(1), "seconds": 0.2})
    look(generation, now=0.5)
    if due_s is None:
        assert not generation.renewal_due(1e9)
        return
    assert not generation.renewal_due(due_s - 0.01)
    assert generation.renewal_due(due_s + 0.01)
    look(generation, change_asked=True)
    assert not generation.renewal_due(due_s + 0.01), "others go on soon anyway"


def test_what_a_first_start_takes_counts_until_another_one_is_seen() -> None:
    """A platform may have to start itself for it; successors find it started."""
    past = Past()
    generation = Generation(_plan(0, FunctionSpec(lifetime_s=8.0)), Deaths(ONE), past)
    list(generation.begins(0.0))
    for rank in range(2):
        told(generation, rank, {"kind": "start", "step": 0})
    look(generation, now=3.0)
    assert past.start_s == 3.0
    assert not generation.renewal_due(7.9), "more than a half of the lifetime would go by with it"
    past.started(4.0, 4.25)
    assert past.start_s == 0.25
    assert generation.renewal_due(7.9)


def test_replicas_of_a_stage_have_equal_states_before_a_step() -> None:
    states = States()
    assert states.note("worker 0 computed", {"step": 4, "digest": "a"}) is None
    assert states.note("worker 1 loaded", {"step": 4, "digest": "a", "holds": ""}) is None
    other_stage = {"step": 4, "digest": "b", "holds": "stage 1 of cut 3"}
    assert states.note("worker 2 loaded", other_stage) is None
    assert states.note("worker 3 loaded", {"step": 8, "digest": "c"}) is None, "another step"
    assert states.note("worker 4 loaded", {"step": 4}) is None, "within a round"
    for digest, holds, words in (
        ("d", "", "another state before step 4 than worker 0 computed (digests d and a): "),
        ("a", "stage 1 of cut 3", "another state of stage 1 of cut 3 before step 4 than worker 2"),
    ):
        wrong = states.note("worker 1 loaded", {"step": 4, "digest": digest, "holds": holds})
        assert wrong is not None
        assert wrong.startswith(f"worker 1 loaded {words}")
    states.keep(8)
    assert states.note("worker 1 loaded", {"step": 4, "digest": "d"}) is None, "computed anew"
    assert states.note("worker 1 loaded", {"step": 8, "digest": "d"}) is not None


def test_stages_of_another_cut_have_the_same_weights_together() -> None:
    states = States()

    def told(who: str, cut: list[int], stage: int, **sums: int) -> str | None:
        words = {what: f"{total:x}" for what, total in sums.items()}
        holds = f"stage {stage} of cut {cut}" if cut else ""
        record = {"step": 4, "digest": f"{cut} {stage}", "holds": holds, "cut": cut}
        return states.note(who, {**record, "stage": stage, "sums": words})

    assert told("worker 0 computed", [3], 0, weights=2**128 - 1, state=7) is None
    assert told("worker 1 computed", [3], 1, weights=10) is None
    assert told("worker 0 loaded", [], 0, weights=9, state=7, more=1) is None
    assert told("worker 1 loaded", [], 0, weights=9, state=7, more=1) is None, "its replica"
    assert told("worker 0 loaded", [2, 4], 0, weights=1) is None
    assert told("worker 1 loaded", [2, 4], 1, state=7) is None
    wrong = told("worker 2 loaded", [2, 4], 2, weights=9)
    assert wrong is not None
    assert wrong.startswith(
        "worker 2 loaded other weights before step 4 than worker 1 computed (digests "
    )
    states.keep(8)
    assert told("worker 0 computed", [], 0, weights=5) is None, "computed anew"


def test_what_a_generation_computed_is_what_the_next_one_loads() -> None:
    generation = begun(ONE)
    look(generation, change_asked=True)
    for rank in range(2):
        told(generation, rank, part(4, then="stopped", digest="a"))
    assert generation.passes_on
    following = Generation(_plan(1), Deaths(ONE), generation._past, waiting=True)
    list(following.goes(replace(_plan(1), first_step=4), Deaths(ONE)))
    told(following, 0, {"kind": "start", "step": 4, "digest": "a"})
    assert not following.begun
    told(following, 1, {"kind": "start", "step": 4, "digest": "b"})
    assert not following.begun
    assert isinstance(following.over, SureToFail)
    assert str(following.over).startswith(
        "worker 1 loaded another state before step 4 than worker 0 computed"
    )


def test_replicas_that_computed_other_states_leave_no_checkpoint_to_the_next_generation() -> None:
    parts = [part(4, then="stopped", digest=digest) for digest in "ab"]
    generation = begun(ONE)
    look(generation, change_asked=True)
    assert [told(generation, rank, one) for rank, one in enumerate(parts)] == [[], []]
    assert isinstance(generation.over, SureToFail)
    assert str(generation.over).startswith(
        "worker 1 computed another state before step 4 than worker 0 computed"
    )
    ending = begun(ONE)  # at the end of a run nobody loads it beside them
    told(ending, 0, parts[0])
    assert isinstance(told(ending, 1, parts[1])[0], Commit)


def test_functions_that_do_not_end_do_not_hold_up_the_next_generation_for_ever() -> None:
    generation = begun(ONE)
    look(generation, change_asked=True)
    for rank in range(2):
        told(generation, rank, part(4, then="stopped"))
    assert generation.passes_on
    look(generation, now=2.0)
    look(generation, now=2.0 + LEAVE_S)
    assert generation.over is None
    look(generation, now=2.1 + LEAVE_S)
    assert generation.over == "stopped"


def _plan(number: int, spec: FunctionSpec | None = None) -> GenerationPlan:
    workers = [RankPlan(spec=spec or FunctionSpec(), replica=rank) for rank in range(2)]
    return GenerationPlan(number=number, platform="", channel="", store="", layout=workers)
