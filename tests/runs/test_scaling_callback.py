"""A callback changes the plan: at its boundary, once, whoever dies, and after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.callbacks import Callback
from dayfly.errors import RunFailed
from dayfly.life.faults import Fault
from dayfly.runs.changes import Changes
from dayfly.runs.deciders import Boundary, Decider, Decision, Decisions
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator, small
from tests.runs.test_deciders import Dies
from tests.runs.test_resume import resume
from tests.runs.test_scaling import generations

FIRST = small.STEPS_AN_EPOCH


class Says(Decider):
    name = "says"

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def decide(self, boundary: Boundary) -> Decision | None:
        return self.decision


def test_changes_are_stored_and_the_first_of_each_setting_counts(tmp_path: Path) -> None:
    several = [
        Says(Decision(changes=Changes(workers=3))),
        Says(Decision(changes=Changes(workers=4, memory_mib=2048))),
    ]
    decisions = Decisions(FileStore(tmp_path), several, "job", Dies(""))
    both = Changes(workers=3, memory_mib=2048)
    for _ in range(2):  # the second is read
        assert decisions.at(Boundary(step=9, history=[])) == Decision(changes=both)
    last = Boundary(step=18, history=[], last=True)
    assert decisions.at(last) == Decision(), "there is nothing left to change"
    ends = [Says(Decision("enough")), *several]
    found = Decisions(FileStore(tmp_path), ends, "job", Dies("")).at(Boundary(step=9, history=[]))
    assert found == Decision("enough")


class Scales(Callback):
    """More workers after the first epoch, and the same in every epoch after it."""

    def on_epoch_end(self, run: Any, record: dict[str, Any]) -> None:
        run.scale(workers=3)


def job(data: Path) -> dayfly.Job:
    return small.job(data, callbacks=[Scales()])


@pytest.fixture(scope="module")
def scaled(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dayfly.Run:
    """A run that grows, with nothing in its way."""
    directory = tmp_path_factory.mktemp("scaled")
    return dayfly.train(job(data), workers=2, run_dir=directory, **small.SETTINGS)


@pytest.mark.long
@pytest.mark.quick
def test_a_run_grows_at_the_boundary_whoever_dies(
    scaled: dayfly.Run, data: Path, tmp_path: Path
) -> None:
    begun = generations(scaled)
    assert [(one["workers"], one["first_step"]) for one in begun] == [(2, 0), (3, FIRST)]
    assert (begun[1]["changes"], begun[1]["request"]) == ("--workers 3 in place of 2", None)
    assert (scaled.result.workers, scaled.result.steps) == (3, small.STEPS)
    faults = [
        Fault(0, FIRST - 1, "epoch"),
        Fault(1, FIRST - 1, "decided"),
        Fault(0, FIRST, "written"),
        Fault(2, FIRST, "computed"),
    ]
    run = dayfly.train(job(data), workers=2, run_dir=tmp_path, faults=faults, **small.SETTINGS)
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(scaled)
    assert [one["first_step"] for one in generations(run)] == [0, FIRST]


@pytest.mark.long
@pytest.mark.parametrize(
    "place",
    # test_deciders.py has what was decided, and the next test a checkpoint that was committed.
    [
        "answered",
        *(pytest.param(place, marks=pytest.mark.slow) for place in ("decided", "committed")),
    ],
)
def test_a_resume_repeats_what_was_decided(
    place: str, scaled: dayfly.Run, data: Path, tmp_path: Path
) -> None:
    """Also where the coordinator died between the checkpoint and the new plan."""
    coordinator.killed(
        data=data,
        run_dir=tmp_path,
        workers=2,
        log_budget_mib=1,
        faults=[Fault(COORDINATOR, FIRST, place)],
        job="tests.runs.test_scaling_callback:job",
    )
    result = resume(tmp_path)
    assert (result["status"], result["workers"]) == ("done", 3)
    assert small.bits(tmp_path) == small.bits(scaled)


@pytest.mark.long
def test_what_is_given_at_the_resume_counts_more(data: Path, tmp_path: Path) -> None:
    coordinator.killed(
        data=data,
        run_dir=tmp_path,
        workers=2,
        log_budget_mib=1,
        faults=[Fault(COORDINATOR, FIRST, "committed")],
        job="tests.runs.test_scaling_callback:job",
    )
    resume(tmp_path, "--workers", "1")
    run = dayfly.load(tmp_path)
    begun = [(one["workers"], one["first_step"]) for one in generations(run)]
    assert begun == [(2, 0), (1, FIRST), (3, 2 * FIRST)], "the next epoch is asked about"


class Wrong(Callback):
    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes = changes

    def on_epoch_end(self, run: Any, record: dict[str, Any]) -> None:
        run.scale(**self.changes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"workers": 21}, "a batch of 20 cannot be shared by 21 workers"),
        ({"worker": 2}, "there is no setting worker: do you mean workers"),
        ({}, "nothing is to change"),
    ],
)
def test_what_cannot_be_fails_in_the_callback(
    changes: dict[str, Any], wrong: str, data: Path, tmp_path: Path
) -> None:
    asked = small.job(data, callbacks=[Wrong(**changes)])
    with pytest.raises(RunFailed, match=wrong) as failed:
        dayfly.train(asked, run_dir=tmp_path, **small.SETTINGS)
    assert "callback Wrong failed in on_epoch_end" in str(failed.value)
