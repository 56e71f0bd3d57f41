"""What a supervisor does, in which order, and what it does once only; see supervised.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.errors import RunFailed, SureToFail, WireError
from dayfly.life import checkpoints
from dayfly.life.ends import COMMIT_S
from dayfly.life.generation import FAILED_GRACE_S, FOLLOWED_S, STOP_GRACE_S
from dayfly.life.platforms.base import Outcome
from dayfly.life.reports import BEAT, asked
from dayfly.life.restarts import Restarts
from dayfly.life.supervisor import LAST_S
from dayfly.wire.keys import FOREVER
from dayfly.wire.stores.base import StoreError
from dayfly.wire.stores.files import FileStore
from tests.life.supervised import (
    AGAIN,
    STARTS,
    Happening,
    Supervised,
    Turn,
    begins,
    caught_up,
    change_to,
    dies,
    ends,
    part,
    part_of,
    says,
    sees_messages_of_before,
    stop,
    took,
    warms,
)

KILLED, RAISED = Outcome.KILLED, Outcome.RAISED
#: Both workers need the log no more.
LEVEL = [says(0, caught_up(0)), says(1, caught_up(0))]
#: Both end as they should.
DONE = [ends(0), ends(1)]
DONE_TOLD = ["told 0 returned", "told 1 returned"]
LATEST = "put checkpoint/latest.json"


def whole(step: int, then: str | None = None) -> list[Happening]:
    """Both workers wrote their parts of a checkpoint."""
    return [says(rank, part(step, f"part-{rank}", then=then)) for rank in range(2)]


def commits(step: int) -> list[str]:
    """The log of a commit whose log is not trimmed yet."""
    return [f"at {step} commit", LATEST, f"at {step} committed", f"told committed {step}"]


def trims(step: int) -> list[str]:
    return [f"trim {step}", f"at {step} trim", f"tell trimmed {step}"]


def together(*happenings: Happening) -> Happening:
    """One happening after another."""

    def happen(run: Supervised) -> None:
        for one in happenings:
            one(run)

    return happen


# --- a commit


def test_a_checkpoint_is_durable_before_anybody_hears_of_it_and_before_the_log_goes(
    tmp_path: Path,
) -> None:
    run = Supervised(tmp_path, LEVEL, whole(4), DONE)
    FileStore(tmp_path).put("checkpoint/000000000/tree.json", b"{}")
    assert run.to_end() == "done"
    assert run.log[: len(STARTS)] == STARTS
    assert run.later == [
        "at 4 commit",
        "put checkpoint/latest.json",  # the file is synced when `put` returns
        "at 4 committed",
        "told committed 4",
        "trim 4",
        "at 4 trim",
        "delete checkpoint/000000000",
        "tell trimmed 4",
        *DONE_TOLD,
    ]
    kept = checkpoints.latest(run.store)
    assert kept == run.workload.checkpoint
    assert kept is not None
    assert kept.parts == (part_of(4, "part-0"), part_of(4, "part-1"))


def test_parts_in_any_order_of_ranks_and_steps(tmp_path: Path) -> None:
    """Rank 0 is ahead; rank 1 is behind, and what it writes of step 4 comes too late."""
    turns = [
        LEVEL,
        [says(0, part(4, "a"), part(8, "a"), part(12, "a"))],
        [says(1, part(8, "b"))],
        [says(1, part(4, "b"))],
        [says(1, part(12, "b"))],
        DONE,
    ]
    run = Supervised(tmp_path, *turns)
    assert run.to_end() == "done"
    assert run.later == [*commits(8), *trims(8), *commits(12), *trims(12), *DONE_TOLD]
    assert run.workload.checkpoint.step == 12


def test_a_part_that_comes_again_commits_nothing_again(tmp_path: Path) -> None:
    again = says(1, part(4, "part-1"), attempt=1)
    run = Supervised(tmp_path, LEVEL, whole(4), [again], [*whole(4)], DONE)
    assert run.to_end() == "done"
    assert run.later == [*commits(4), *trims(4), *DONE_TOLD]


def test_what_comes_at_once_is_committed_in_its_order_and_the_log_is_trimmed_once(
    tmp_path: Path,
) -> None:
    run = Supervised(tmp_path, [*LEVEL, *whole(4), *whole(8)], DONE)
    assert run.to_end() == "done"
    assert run.later == [*commits(4), *commits(8), *trims(8), *DONE_TOLD]


def test_a_missing_part_keeps_a_checkpoint_from_counting(tmp_path: Path) -> None:
    run = Supervised(tmp_path, LEVEL, [says(0, part(4)), says(1, part(8))], DONE)
    assert run.to_end() == "done"
    assert run.later == DONE_TOLD
    assert run.workload.checkpoint.step == 0


def test_of_a_commit_that_fails_nobody_hears_and_nothing_goes(tmp_path: Path) -> None:
    run = Supervised(tmp_path, LEVEL, [lambda run: setattr(run.store, "failure", full), *whole(4)])
    full = StoreError("no room")
    with pytest.raises(StoreError, match="no room"):
        run.to_end()
    assert run.later == [
        "at 4 commit",
        *("kill worker-0", "kill worker-1"),
        *("told 0 cancelled", "told 1 cancelled"),
    ]
    assert run.workload.checkpoint.step == 0


def test_the_log_stays_as_long_as_a_worker_reads_it(tmp_path: Path) -> None:
    """Its attempt that died read it no more; the one that runs still does."""
    turns = [
        LEVEL,
        [dies(1)],
        [says(1, caught_up(0), attempt=0), *whole(4)],
        [says(1, caught_up(4), attempt=1)],
        DONE,
    ]
    run = Supervised(tmp_path, *turns)
    assert run.to_end() == "done"
    assert run.later == [
        *("told 1 killed, a death", "at 0 again", "told invoked 1.1", "invoke 1.1 from 0"),
        *commits(4),
        *trims(4),
        *DONE_TOLD,
    ]
    assert run.past.frontier == 4, "who has caught up has done what was done"


def test_a_successor_begins_at_the_last_checkpoint_and_is_told_where_the_log_begins(
    tmp_path: Path,
) -> None:
    turns = [LEVEL, whole(4), [dies(1)], whole(8), [dies(0)], DONE]
    run = Supervised(tmp_path, *turns)
    assert run.to_end() == "done"
    # Worker 1 may read the log from step 4 on, until it says that it has caught up.
    assert [payload for _, payload in run.starts[2:]] == [
        {"from": 4, "trimmed": 4},
        {"from": 8, "trimmed": 4},
    ]


def test_messages_of_one_tick_are_heard_before_what_ended_is_judged(tmp_path: Path) -> None:
    """The last checkpoint is committed, so nobody who ends in the same moment starts again."""
    run = Supervised(tmp_path, LEVEL, [*whole(4, then="done"), dies(0), ends(1)])
    assert run.to_end() == "done"
    assert run.later == [
        *commits(4),
        *("told 0 killed, a death", "told 1 returned"),
        *trims(4),
    ]


def test_a_checkpoint_that_only_pauses_nothing_ends_nobody(tmp_path: Path) -> None:
    run = Supervised(tmp_path, LEVEL, whole(4), [dies(0)], DONE)
    assert run.to_end() == "done"
    assert "invoke 0.1 from 4" in run.later


# --- reports


@pytest.mark.parametrize(("every_s", "listings"), [(0.0, 42), (0.98, 4)])
def test_a_box_is_listed_no_more_often_than_it_is_cheap(
    every_s: float, listings: int, tmp_path: Path
) -> None:
    """40 waits of 0.05 s: at once, after 1 s, when functions ended, and at the end."""
    run = Supervised(tmp_path, *[[]] * 40, DONE, list_every_s=every_s)
    assert run.to_end() == "done"
    assert run.channel.listings == listings


def test_the_listener_hears_every_report(tmp_path: Path) -> None:
    run = Supervised(tmp_path, LEVEL, whole(4), [says(0, took(4)), *DONE])
    assert run.to_end() == "done"
    assert run.listener.reports == 5
    assert "at 4 step" in run.later


# --- ends, one by one


def test_all_that_ended_is_told_before_one_of_it_ends_the_run(tmp_path: Path) -> None:
    raised = [dies(0, RAISED, "ValueError: no")]
    run = Supervised(tmp_path, raised, [*raised, dies(1)])
    with pytest.raises(SureToFail, match="twice"):
        run.to_end()
    assert run.later == [
        *("told 0 raised, a death", "at 0 again", "told invoked 0.1", "invoke 0.1 from 0"),
        *("told 0 raised, a death", "told 1 killed, a death"),
    ]


def test_starts_in_a_row_wait_and_a_hand_over_does_not(tmp_path: Path) -> None:
    """The second death in a row waits 50 ms; a completed step makes the next one the first."""
    turns = [[dies(0)], [dies(0)], [], [], [says(0, took(0))], [dies(0)], [], []]
    turns += [[ends(1, "handed over")], DONE]
    run = Supervised(tmp_path, *turns)
    assert run.to_end() == "done"
    began = run.starts[0][0]
    assert [round(at - began, 3) for at, _ in run.starts] == [0, 0, 0, 0.05, 0.15, 0.25]
    assert run.later.count("told 0 killed, a death") == 3
    assert "told 1 returned" in run.later
    assert run.past.frontier == 1


def test_a_worker_that_found_out_why_it_fails_ends_the_run_after_the_others(tmp_path: Path) -> None:
    failed = ends(0, "failed", error="the loss is NaN")
    run = Supervised(tmp_path, [failed], [], [ends(1, "failed", error="another")])
    with pytest.raises(SureToFail, match="the loss is NaN"):
        run.to_end()
    assert run.later == DONE_TOLD


def test_others_have_seconds_to_end_after_that(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [ends(0, "failed", error="the loss is NaN")])
    with pytest.raises(SureToFail, match="the loss is NaN"):
        run.to_end()
    assert run.later == ["told 0 returned", "kill worker-1", "told 1 cancelled"]
    assert FAILED_GRACE_S < run.clock.now - run.starts[0][0] < FAILED_GRACE_S + 0.2


# --- stops


def test_a_stop_is_passed_on_once_and_ends_in_order(tmp_path: Path) -> None:
    stopped = [ends(0, "stopped"), ends(1, "stopped")]
    run = Supervised(tmp_path, LEVEL, [stop], [], whole(4, "stopped"), stopped)
    assert run.to_end() == "stopped"
    assert run.later == [
        *(f"tell stop {FOREVER}", "told stopping"),
        *commits(4),
        *trims(4),
        *DONE_TOLD,
    ]


def test_for_a_change_all_end_at_a_checkpoint_and_the_next_plan_goes_on_from_it(
    tmp_path: Path,
) -> None:
    stopped = [ends(0, "stopped"), ends(1, "stopped")]
    run = Supervised(
        tmp_path, LEVEL, [change_to(3)], whole(4, "stopped"), stopped, [*DONE, ends(2)]
    )
    assert run.to_end() == "done"
    assert run.later == [
        f"tell stop {FOREVER}",
        *commits(4),
        *trims(4),
        *("told 0 returned", "told 1 returned"),
        "3 workers from 4",
        "at 4 begin",
        *("told invoked 0.1", "invoke 0.1 from 4"),
        *("told invoked 1.1", "invoke 1.1 from 4"),
        *("told invoked 2.0", "invoke 2.0 from 4"),
        "at 4 invoked",
        *(*DONE_TOLD, "told 2 returned"),
    ]
    assert run.listener.generations == [(0, 0), (1, 4)]


def test_a_roll_back_takes_up_the_change_that_was_asked_for(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [change_to(1)], [dies(1)], [], [ends(0)], replays=False, lives=3)
    assert run.to_end() == "done"
    assert [line for line in run.log if "workers from" in line] == ["1 workers from 0"]


def test_a_run_that_is_done_at_the_boundary_of_a_change_is_done(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [change_to(3)], DONE)
    assert run.to_end() == "done"
    assert run.workload.asked == 3, "nobody took it up"


def test_a_stop_before_the_boundary_of_a_change_ends_the_run(tmp_path: Path) -> None:
    stopped = [ends(0, "stopped"), ends(1, "stopped")]
    run = Supervised(tmp_path, LEVEL, [change_to(3)], [stop, *whole(4, "stopped")], stopped)
    assert run.to_end() == "stopped"
    assert "told stopping" in run.log
    assert run.workload.asked == 3


def test_workers_that_do_not_stop_in_time_are_killed(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [stop])
    assert run.to_end() == "stopped"
    assert run.later == [
        *(f"tell stop {FOREVER}", "told stopping"),
        *("kill worker-0", "kill worker-1"),
        *("told 0 cancelled", "told 1 cancelled"),
    ]
    assert STOP_GRACE_S < run.clock.now - run.starts[0][0] < STOP_GRACE_S + 0.2


def test_to_stop_in_order_nobody_waits_with_a_start(tmp_path: Path) -> None:
    """Of three deaths in a row, the third's successor would have begun after 0.1 s."""
    run = Supervised(tmp_path, [dies(0)], [dies(0)], [], [dies(0), stop], whole(4, "stopped"))
    assert run.to_end() == "stopped"
    assert run.starts[-1][0] == run.starts[-2][0]


def test_one_who_was_done_while_others_stopped(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [ends(0), ends(1, "stopped")])
    assert run.to_end() == "stopped"


def test_what_does_not_end_at_last_is_left(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [stop])
    run.platform.stubborn = True
    assert run.to_end() == "stopped"
    assert run.clock.now - run.starts[0][0] == pytest.approx(STOP_GRACE_S + LAST_S, abs=0.2)


# --- all go back


def test_one_death_ends_all_where_nothing_is_replayed(tmp_path: Path) -> None:
    """The others die of it: no deaths of their own. Steps after the checkpoint are done again."""
    turns = [
        whole(4),
        [says(0, took(3), took(5)), dies(1), dies(0, RAISED, "WireError: 1 is gone")],
    ]
    run = Supervised(tmp_path, *turns, replays=False)
    assert run.to_end() == AGAIN
    assert run.later == [
        *commits(4),
        *("at 3 step", "at 5 step"),
        *("told 1 killed, a death", "told 0 raised"),
        "at 4 roll back",
        "back from 6 to 4, 2 again: worker 1 was killed from outside ()",
    ]
    assert run.workload.checkpoint.step == 4


def test_who_is_killed_with_a_dead_one_may_still_complete_a_checkpoint(tmp_path: Path) -> None:
    """Its parts arrive with its end, and are looked for at once; then nothing is done again."""
    turns = [LEVEL, [dies(1)], [says(1, took(3)), *whole(4)]]
    run = Supervised(tmp_path, *turns, replays=False, list_every_s=1000.0)
    assert run.to_end() == AGAIN
    assert run.later == [
        "kill worker-0",
        "at 3 step",
        *commits(4),
        *("told 1 killed, a death", "told 0 cancelled"),
        "at 4 roll back",
        "back from 4 to 4, 0 again: worker 1 was killed from outside ()",
    ]
    waited_s = run.clock.now - run.starts[0][0]
    assert waited_s == pytest.approx(0.0, abs=0.2), "a death is not waited for"


def test_a_hand_over_waits_for_the_checkpoint_that_was_made_for_it(tmp_path: Path) -> None:
    handed = ends(0, "handed over", kept="run", step=4)
    turns = [LEVEL, [says(0, took(3), part(4, "part-0")), handed], [], [says(1, part(4, "part-1"))]]
    run = Supervised(tmp_path, *turns, [], replays=False)
    assert run.to_end() == AGAIN
    assert run.later == [
        "at 3 step",
        *commits(4),
        "kill worker-1",
        *("told 0 returned", "told 1 cancelled"),
        "at 4 roll back",
        "back from 4 to 4, 0 again: worker 0 handed over to its successor",
    ]


def test_workers_that_all_kept_their_own_state_are_not_waited_for(tmp_path: Path) -> None:
    own = {"status": "handed over", "kept": "worker", "step": 0}
    run = Supervised(tmp_path, [says(0, took(2)), ends(0, **own), ends(1, **own)], replays=False)
    assert run.to_end() == AGAIN
    assert run.later == [
        "at 2 step",
        *DONE_TOLD,
        "at 0 roll back",
        "back from 3 to 0, 0 again: worker 0 handed over to its successor",
    ]
    assert run.clock.now == run.starts[0][0]


def test_a_wait_for_a_checkpoint_is_no_longer_than_a_stop_leaves(tmp_path: Path) -> None:
    """Meanwhile the box is listed no more often than it is cheap."""
    handed = [says(0, part(4, "part-0")), ends(0, "handed over", kept="run", step=4), stop]
    run = Supervised(tmp_path, handed, replays=False, list_every_s=1000.0)
    assert run.to_end() == "stopped"
    waited_s = run.clock.now - run.starts[0][0]
    assert waited_s == pytest.approx(STOP_GRACE_S, abs=0.2)
    assert run.channel.listings == 2, "as one ended, and as all had ended"


@pytest.mark.parametrize("lives", [True, False])
def test_such_a_checkpoint_is_waited_for_while_it_may_come(lives: bool, tmp_path: Path) -> None:
    handed = [says(0, part(4, "part-0")), ends(0, "handed over", kept="run", step=4)]
    turns = [handed] if lives else [handed, [dies(1)]]
    run = Supervised(tmp_path, *turns, replays=False)
    assert run.to_end() == AGAIN
    waited_s = run.clock.now - run.starts[0][0]
    assert waited_s == pytest.approx(COMMIT_S if lives else 0.0, abs=0.2)
    assert run.workload.checkpoint.step == 0


def test_the_pause_after_deaths_in_a_row_comes_before_the_next_generation(tmp_path: Path) -> None:
    turns = [[dies(1)], [], [dies(1)], [], [], [dies(1)]]
    run = Supervised(tmp_path, *turns, replays=False, lives=3)
    assert run.to_end() == AGAIN
    began = run.starts[0][0]
    assert [round(at - began, 3) for at, _ in run.starts] == [0, 0, 0, 0, 0.05, 0.05]
    assert run.past.attempts == {0: 2, 1: 2}


def test_each_generation_has_a_number_and_begins_at_the_checkpoint(tmp_path: Path) -> None:
    turns = [[*LEVEL, *whole(4)], [dies(1)], [], DONE]
    run = Supervised(tmp_path, *turns, replays=False, lives=2)
    assert run.to_end() == "done"
    assert run.listener.generations == [(0, 0), (1, 4)]
    assert [payload["from"] for _, payload in run.starts] == [0, 0, 4, 4]


def test_a_stop_before_the_next_generation_starts_nobody(tmp_path: Path) -> None:
    """Here it is asked for in the last moment, when it is noted that all start again."""
    run = Supervised(tmp_path, [dies(1)], replays=False, lives=2)
    run.workload.then = lambda: stop(run)
    assert run.to_end() == "stopped"
    assert len(run.starts) == 2


def test_a_channel_that_fails_makes_all_go_back(tmp_path: Path) -> None:
    """That explains what died of it, and is the cause."""
    gone = WireError("the store is gone")
    turns = [[], [lambda run: setattr(run.channel, "failure", gone)]]
    turns += [[], [lambda run: setattr(run.channel, "failure", None)]]
    run = Supervised(tmp_path, *turns, replays=False)
    assert run.to_end() == AGAIN
    assert run.later == [
        *("kill worker-0", "kill worker-1", "told 0 cancelled", "told 1 cancelled"),
        "at 0 roll back",
        "back from 0 to 0, 0 again: the channel failed: WireError: the store is gone",
    ]


def test_a_channel_that_keeps_the_log_may_not_fail(tmp_path: Path) -> None:
    gone = WireError("the store is gone")
    run = Supervised(tmp_path, [lambda run: setattr(run.channel, "failure", gone)])
    with pytest.raises(WireError, match="the store is gone"):
        run.to_end()
    assert run.later == [
        *("kill worker-0", "kill worker-1", "told 0 cancelled", "told 1 cancelled"),
    ]


def test_a_channel_that_fails_while_all_go_back_is_why(tmp_path: Path) -> None:
    """One of the workers heard of it before the coordinator did."""

    def fails(run: Supervised) -> None:
        run.channel.failure = WireError("the store is gone")

    run = Supervised(tmp_path, [], [dies(1, RAISED, "WireError: gone")], [fails], replays=False)
    assert run.to_end() == AGAIN
    assert run.later == [
        *("kill worker-0", "told 1 raised", "told 0 cancelled"),
        "at 0 roll back",
        "back from 0 to 0, 0 again: the channel failed: WireError: the store is gone",
    ]


def test_who_goes_back_to_stop_has_stopped(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [dies(1)], [stop], replays=False)
    assert run.to_end() == "stopped"
    assert run.later == ["kill worker-0", "told 1 killed, a death", "told 0 cancelled"]


def test_who_was_to_stop_and_dies_has_stopped(tmp_path: Path) -> None:
    def asked_no_more(run: Supervised) -> None:
        run.stop_asked = False

    run = Supervised(tmp_path, [stop], [asked_no_more], [dies(1)], replays=False)
    assert run.to_end() == "stopped"
    assert run.later[2:] == ["kill worker-0", "told 1 killed, a death", "told 0 cancelled"]


def test_after_the_last_checkpoint_nobody_goes_back(tmp_path: Path) -> None:
    """One is done, the other handed over before it heard that all was done; or it dies of that."""
    last = whole(4, "done")
    run = Supervised(tmp_path, last, [ends(0), dies(1)], replays=False)
    assert run.to_end() == "done"
    assert run.later == [*commits(4), "told 0 returned", "told 1 killed, a death", *trims(4)]
    late = Supervised(tmp_path, LEVEL, [dies(0)], last, replays=False)
    assert late.to_end() == "done"
    assert not any("back" in line for line in late.later)


def test_a_worker_that_found_out_why_it_fails_makes_nobody_go_back(tmp_path: Path) -> None:
    failed = ends(0, "failed", error="the loss is NaN")
    run = Supervised(tmp_path, [failed, dies(1)], replays=False)
    with pytest.raises(SureToFail, match="the loss is NaN"):
        run.to_end()


def test_deaths_of_one_cause_end_the_run(tmp_path: Path) -> None:
    dead = dies(1, Outcome.EXITED)
    run = Supervised(tmp_path, [dead], [], [dead], [], [], [dead], replays=False, lives=3)
    with pytest.raises(RunFailed, match="3 times in a row"):
        run.to_end()
    assert sum("back from" in line for line in run.log) == 2


def test_nobody_follows_a_function_that_cannot_be_ended(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [dies(1)], replays=False)
    run.platform.stubborn = True
    with pytest.raises(RunFailed, match="worker-0 did not end within 60 s of the kill"):
        run.to_end()
    assert run.later == ["kill worker-0", "told 1 killed, a death", "kill worker-0"]
    waited_s = run.clock.now - run.starts[0][0]
    assert waited_s == pytest.approx(FOLLOWED_S + LAST_S, abs=0.2)


# --- a script: what it keeps is its own, and it is asked nothing


def test_one_death_ends_all_workers_of_a_script_and_all_start_again(tmp_path: Path) -> None:
    """One died of it; who returned between the look and the kill ended in good order."""
    dead = [dies(0, RAISED, "ValueError: no")]
    run = Supervised(tmp_path, dead, [], DONE, script=Restarts(1), lives=2)
    run.platform.late["worker-1"] = ends(1)
    assert run.to_end() == "done"
    assert run.later == [
        *("kill worker-1", "told 0 raised, a death", "told 1 returned"),
        "at 0 roll back",
        "back from 0 to 0, 0 again: worker 0 raised ValueError: no",
        *("at 0 begin", "told invoked 0.1", "invoke 0.1 from 0"),
        *("told invoked 1.1", "invoke 1.1 from 0", "at 0 invoked"),
        *DONE_TOLD,
    ]


def test_who_returns_early_is_waited_for_by_nobody(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [ends(0)], [], [ends(1)], script=Restarts(0))
    assert run.to_end() == "done"
    assert run.later == DONE_TOLD


def test_a_script_without_restarts_fails_with_the_cause_and_its_consequences(
    tmp_path: Path,
) -> None:
    """An error of the wire waits for the death that explains it."""
    turns = [[dies(0, RAISED, "WireError: 1 is gone")], [], [], [dies(1, RAISED, "ValueError: no")]]
    run = Supervised(tmp_path, *turns, script=Restarts(0))
    with pytest.raises(RunFailed) as failure:
        run.to_end()
    assert str(failure.value) == (
        "worker 1 raised ValueError: no (no restart, as --max-restarts 0 allows)\n\n"
        "Traceback ...\nValueError: no\nalso: worker 0 raised WireError: 1 is gone"
    )
    assert run.later == ["told 0 raised", "told 1 raised, a death"]


def test_the_end_of_a_scripts_lifetime_is_no_death(tmp_path: Path) -> None:
    run = Supervised(tmp_path, [dies(0, Outcome.LIFETIME)], script=Restarts(0))
    assert run.to_end() == AGAIN
    assert run.later[:3] == ["kill worker-1", "told 0 lifetime", "told 1 cancelled"]


def test_who_returned_before_the_kill_that_a_lost_channel_brought_ended_well(
    tmp_path: Path,
) -> None:
    run = Supervised(tmp_path, script=Restarts(0))
    run.channel.failure = WireError("the channel is gone")
    run.platform.late["worker-0"] = ends(0)
    with pytest.raises(RunFailed) as failure:
        run.to_end()
    assert str(failure.value) == (
        "the channel failed: WireError: the channel is gone "
        "(no restart, as --max-restarts 0 allows)"
    )
    assert run.later == [
        *("kill worker-0", "kill worker-1", "told 0 returned", "told 1 cancelled"),
    ]


def test_a_script_is_ended_at_once_when_it_is_to_stop_and_what_it_told_is_heard(
    tmp_path: Path,
) -> None:
    """A death at that moment is nobody's: Ctrl-C reaches the workers, too."""
    run = Supervised(tmp_path, [stop, dies(0)], script=Restarts(0), list_every_s=1000.0)
    run.platform.late["worker-1"] = together(says(1, took(0)), dies(1, Outcome.CANCELLED))
    assert run.to_end() == "stopped"
    assert run.later == [
        *("kill worker-1", "at 0 step", "told 0 killed", "told 1 cancelled"),
    ]
    assert run.clock.now == run.starts[0][0]


def test_a_script_that_waits_with_its_start_stops_without_it(tmp_path: Path) -> None:
    turns = [[dies(0)], [], [dies(0)], [], [stop]]
    run = Supervised(tmp_path, *turns, script=Restarts(0), lives=3)
    assert run.to_end() == "stopped"
    assert len(run.starts) == 4, "of two generations"


# --- heartbeats


@pytest.mark.parametrize("replays", [True, False])
def test_a_worker_that_falls_silent_is_fenced_before_it_is_ended(
    tmp_path: Path, replays: bool
) -> None:
    waits = {"kind": BEAT, "waits": [1]}
    seconds: list[Turn] = [[], *[[says(0, waits)], *[[]] * 19] * 7]
    last = [DONE] if replays else []
    run = Supervised(tmp_path, LEVEL, *seconds, *last, replays=replays, heartbeat_s=1.0)
    assert run.to_end() == ("done" if replays else AGAIN)
    begins, ends_it = run.later[:3], run.later[3:]
    assert begins == ["tell asked-1-0 999999999", "tell fenced-1-0 999999999", "kill worker-1"]
    if replays:
        again = ["told 1 silent, a death", "at 0 again", "told invoked 1.1", "invoke 1.1 from 0"]
        assert ends_it == [*again, *DONE_TOLD]
    else:
        assert ends_it[0] == "kill worker-0"
        assert sorted(ends_it[1:3]) == ["told 0 cancelled", "told 1 silent, a death"]


def test_who_is_not_waited_for_any_more_is_not_asked_any_more(tmp_path: Path) -> None:
    there: list[bool] = []

    def sees(run: Supervised) -> None:
        there.append(bool(run.channel.stored([asked(1, 0)])))

    waits = says(0, {"kind": BEAT, "waits": [1]})
    beats: list[Turn] = [[sees], *[[says(1, {"kind": BEAT, "waits": []})], *[[]] * 19] * 7]
    run = Supervised(tmp_path, LEVEL, [waits], [], *beats, [sees], DONE, heartbeat_s=1.0)
    assert run.to_end() == "done"
    assert there == [True, False]
    assert run.later == ["tell asked-1-0 999999999", *DONE_TOLD]


# --- a generation that warms up while another one trains

AHEAD = "successor"
#: How three successors of workers start, who had each one attempt; the third rank had none.
WARMING = [
    "at 0 warm",
    "told invoked 0.1",
    "invoke 0.1 from go",
    "told invoked 1.1",
    "invoke 1.1 from go",
    "told invoked 2.0",
    "invoke 2.0 from go",
    "at 0 warming",
]
WARM = [warms(0, 1), warms(1, 1), warms(2, 0)]
STOPPED = [ends(0, "stopped"), ends(1, "stopped")]


def test_workers_end_once_all_of_the_next_generation_are_warm_and_those_go_on_at_the_boundary(
    tmp_path: Path,
) -> None:
    run = Supervised(
        tmp_path,
        LEVEL,
        [change_to(3, warm=True)],
        WARM[:2],
        WARM[2:],
        whole(4, then="stopped"),
        STOPPED,
        [ends(rank, of=AHEAD) for rank in range(3)],
    )
    assert run.to_end() == "done"
    assert run.later == [
        *WARMING,
        f"tell stop {FOREVER}",
        *commits(4),
        "3 workers from 4, warm",
        "at 4 begin",
        f"tell go {FOREVER}",
        *trims(4),
        *DONE_TOLD,
        *DONE_TOLD,
        "told 2 returned",
    ]
    assert run.listener.generations == [(0, 0), (1, 4)]


def test_old_messages_stay_until_all_of_the_next_generation_have_the_same_state(
    tmp_path: Path,
) -> None:
    run = Supervised(
        tmp_path,
        LEVEL,
        [change_to(3, warm=True)],
        WARM,
        whole(4, then="stopped"),
        STOPPED,
        [begins(0, 1), begins(1, 1)],
        [sees_messages_of_before, begins(2, 0)],
        [sees_messages_of_before],
        [ends(rank, of=AHEAD) for rank in range(3)],
    )
    assert run.to_end() == "done"
    assert [one for one in run.log if one in ("there", "gone")] == ["there", "gone"]
    assert run.workload.opened == {0: False, 1: False}


def test_a_worker_of_the_next_generation_with_another_state_fails_the_run(tmp_path: Path) -> None:
    run = Supervised(
        tmp_path,
        LEVEL,
        [change_to(3, warm=True)],
        WARM,
        whole(4, then="stopped"),
        STOPPED,
        [begins(0, 1), begins(1, 1), begins(2, 0, "another"), sees_messages_of_before],
    )
    with pytest.raises(
        RunFailed,
        match=r"worker 2 loaded another state before step 4 .* 0 loaded .*another and the same",
    ):
        run.to_end()
    assert run.log.count("there") == 1
    assert run.workload.opened == {0: False, 1: False}


def test_a_change_whose_workers_cannot_warm_up_is_refused_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    dead = [dies(2, RAISED, "ValueError: no", of=AHEAD)]
    run = Supervised(
        tmp_path, LEVEL, [change_to(3, warm=True)], dead, dead, *[[]] * 3, dead, [], DONE
    )
    assert run.to_end() == "done"
    assert f"tell stop {FOREVER}" not in run.log
    refused = next(one for one in run.log if one.startswith("refused"))
    assert (
        refused == "refused: the next generation's worker 2 raised ValueError: no as it warmed up"
    )
    assert run.log.count("told 2 raised, a death") == 3
    assert run.later[-2:] == DONE_TOLD
    assert [one for one in run.log if "kill" in one] == ["kill successor-0", "kill successor-1"]


def test_a_stop_ends_those_who_warm_up_at_once(tmp_path: Path) -> None:
    run = Supervised(
        tmp_path,
        LEVEL,
        [change_to(3, warm=True)],
        WARM[:2],
        [stop],
        [],
        whole(4, "stopped"),
        STOPPED,
    )
    assert run.to_end() == "stopped"
    assert [one for one in run.log if "kill" in one] == [f"kill successor-{n}" for n in range(3)]
    assert run.log.index("kill successor-2") < run.log.index(f"tell stop {FOREVER}")
    assert f"tell go {FOREVER}" not in run.log


def test_one_that_dies_after_it_was_told_to_go_starts_again_from_the_boundary(
    tmp_path: Path,
) -> None:
    run = Supervised(
        tmp_path,
        LEVEL,
        [change_to(3, warm=True)],
        WARM,
        whole(4, then="stopped"),
        STOPPED,
        [dies(1, of=AHEAD)],
        [ends(rank, of=AHEAD) for rank in range(3)],
    )
    assert run.to_end() == "done"
    at = run.log.index("told 1 killed, a death")
    assert run.log[at + 1 : at + 4] == ["at 4 again", "told invoked 1.2", "invoke 1.2 from 4"]
