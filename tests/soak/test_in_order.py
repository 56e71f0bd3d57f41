"""Events of a soak, one after another: a run is asked for them, and its events say what came."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.soak.budgets import budget
from tests.soak.in_order import InOrder, Planned, epochs, planned
from tests.soak.plan import LEAVES
from tests.soak.summary import first_difference

_ENDED = {
    "kind": "ended",
    "death": False,
    "used": {
        "function": "worker-0",
        "attempt": 0,
        "memory_mib": None,
        "init_s": 0.0,
        "run_s": 1.0,
        "outcome": "returned",
    },
}


class Told:
    """A run that tells what the test makes it tell."""

    def __init__(self, directory: Path, *kinds: Any) -> None:
        self.directory = directory / "run"
        (self.directory / "events").mkdir(parents=True)
        self.held = directory / "held"
        events = [
            Planned(number + 1, kind, gap_s=0.0, draw=0.0, workers=7)
            for number, kind in enumerate(kinds)
        ]
        self.said: list[str] = []
        self.soak = InOrder(events, self.directory, self.held, self.said.append)
        self.process: Any = None

    def tells(self, of: str, **event: Any) -> None:
        with (self.directory / "events" / f"{of}.jsonl").open("a") as file:
            file.write(json.dumps({"at": 1.0, **event}) + "\n")

    def step(self, step: int) -> None:
        event = {"loss": 1.0, "computed": True, "step_s": 0.1, "spans": {}}
        self.tells("worker-0", kind="step", step=step, **event)

    def generation(self, number: int, request: int | None) -> None:
        event = {"number": number, "first_step": 0, "workers": 4, "request": request}
        self.tells("coordinator", kind="generation", **event)

    def look(self, *, stepped: bool = True) -> None:
        self.soak.look(self.process, stepped=stepped, now=1e9)

    def asked(self) -> list[int]:
        files = sorted((self.directory / "control").glob("*"))
        return [json.loads(file.read_text())["changes"]["workers"] for file in files]


def test_events_follow_from_the_seed_and_each_resize_changes_the_size() -> None:
    events = planned(1, 1000, 4)
    assert events == planned(1, 1000, 4) != planned(2, 1000, 4)
    assert [one.number for one in events] == list(range(1, 1001))
    kinds = [one.kind for one in events]
    assert all(kinds.count(kind) > 30 for kind in ("kill", "resize", "hand-over", "coordinator"))
    sizes = [4, *(one.workers for one in events if one.kind == "resize")]
    assert all(before != after for before, after in pairwise(sizes))
    assert set(sizes) == set(range(1, LEAVES + 1))
    assert epochs(1000) * 9 == 2 * 9 + 2997, "three steps an event"


def test_one_resize_at_a_time_is_asked_for_again_if_it_is_refused(tmp_path: Path) -> None:
    run = Told(tmp_path, "resize", "resize")
    run.tells("coordinator", kind="begun", asked_at=1.0)
    run.generation(0, None)
    run.look()
    assert run.asked() == [], "nothing happens before the first step"
    run.step(0)
    run.look()
    run.look()
    assert run.asked() == [7]
    run.tells("coordinator", kind="change", request=0, refused="its functions died")
    run.look()
    assert run.asked() == [7, 7]
    assert run.soak.missing() == "the run was over before event 2 of 2"
    run.generation(1, 1)
    run.look()
    assert run.asked() == [7, 7, 7]
    assert run.soak.missing() == (
        "the run was over before event 2 (resize to 7), from step 1 to the end"
    )
    run.generation(2, 2)
    run.look()
    assert run.soak.missing() is None


def test_a_resize_that_is_always_refused_is_wrong(tmp_path: Path) -> None:
    run = Told(tmp_path, "resize")
    run.step(0)
    for request in range(10):
        run.look()
        assert run.soak.wrong is None
        run.tells("coordinator", kind="change", request=request, refused="no room")
    run.look()
    assert run.soak.wrong == (
        "refused 10 times, event 1 (resize to 7), from step 1 to the end: no room"
    )


def test_a_hand_over_counts_for_one_event(tmp_path: Path) -> None:
    run = Told(tmp_path, "hand-over", "hand-over", "hand-over")
    run.tells("coordinator", kind="begun", asked_at=1.0)
    run.generation(0, None)  # a life's first generation is none
    run.step(0)
    run.look()
    run.tells("coordinator", **_ENDED, result={"status": "done"})
    run.look()
    assert run.soak.missing() == "the run was over before event 2 of 3"
    run.tells("coordinator", **_ENDED, result={"status": "handed over"})
    run.look()
    assert run.soak.missing() == "the run was over before event 3 of 3"
    run.generation(1, None)  # successors of all workers
    run.look()
    run.look()
    assert "event 3" in str(run.soak.missing())
    assert run.soak.counts["renewal"] == 1


def test_steps_are_held_up_while_they_are_ahead_of_the_events(tmp_path: Path) -> None:
    run = Told(tmp_path, "hand-over", "hand-over")
    assert run.held.exists()
    run.step(1)
    run.look()  # one of two events is under way
    assert not run.held.exists()
    run.step(20)  # of 27
    run.look()
    assert run.held.exists()


def test_after_three_kills_a_step_is_waited_for(tmp_path: Path) -> None:
    run = Told(tmp_path, *["coordinator"] * 5)
    run.step(0)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        run.process = process
        run.look()
        assert run.soak.counts["coordinator"] == 1, "nothing more is done to one that is dead"
        for _ in range(4):
            run.look(stepped=False)
        assert run.soak.counts["coordinator"] == 3
        run.look(stepped=True)
        assert run.soak.counts["coordinator"] == 4
    assert run.soak.during(range(2)).count("kill of the coordinator") == 4
    assert run.soak.during(range(2, 3)) == "none"


@pytest.mark.parametrize(
    ("losses", "epochs_told", "expected"),
    [
        ([1.0, None, 3.0], [{"loss": 1.0}], None),
        ([1.0, 2.0, 4.0], [{"loss": 2.0}], range(2, 3)),
        ([1.0, 2.0, 3.0], [{"loss": 2.0}], range(9)),
    ],
    ids=["a report is lost", "a step", "an epoch"],
)
def test_the_first_difference_is_found(
    tmp_path: Path, losses: list[float | None], epochs_told: list[Any], expected: range | None
) -> None:
    for name, whole in (
        ("one", {"step_loss": losses, "epochs": epochs_told}),
        ("two", {"step_loss": [1.0, 2.0, 3.0], "epochs": [{"loss": 1.0}]}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "history.json").write_text(json.dumps(whole))
    found = first_difference(tmp_path / "one", tmp_path / "two", 9)
    assert (None if found is None else found[1]) == expected


def test_budgets_follow_from_the_seed() -> None:
    plans = [budget(1, number) for number in range(50)]
    assert plans == [budget(1, number) for number in range(50)]
    assert {plan.settings["workers"] for plan in plans} == {1, 2, 3}
    assert any(fault.worker >= 0 for plan in plans for fault in plan.faults)
    assert 15 < sum(any(fault.worker < 0 for fault in plan.faults) for plan in plans) < 35
