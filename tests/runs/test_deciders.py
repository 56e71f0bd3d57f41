"""What decides about a run is asked once at each boundary, stored before it counts, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault, Faults
from dayfly.runs.deciders import Boundary, Decider, Decision, Decisions, TargetAccuracy
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import small
from tests.runs.test_resume import killed, resume

#: Reached in the first of three epochs, by both protocols.
TARGET = 0.9
FIRST = small.STEPS_AN_EPOCH
PROTOCOLS: list[dict[str, Any]] = [{}, {"sync": "local-sgd", "k": 4}]


class Moody(Decider):
    """Answers otherwise each time that it is asked."""

    name = "moody"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def decide(self, boundary: Boundary) -> Decision | None:
        self.asked.append(boundary.step)
        return Decision("mood") if len(self.asked) % 2 else None


class Dies(Faults):
    """The coordinator, dying at a place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def at(self, step: int, place: str) -> None:
        if place == self._place:
            raise KeyboardInterrupt


def at(step: int, *accuracies: float | None) -> Boundary:
    return Boundary(step=step, history=[{"val_accuracy": one} for one in accuracies])


@pytest.mark.parametrize(
    ("accuracies", "ends"),
    [([0.6], False), ([0.7], True), ([0.9, None], False), ([None, 0.9], True), ([0.9, 0.6], False)],
)
def test_a_target_is_of_the_epoch_that_ended(accuracies: list[float | None], ends: bool) -> None:
    found = TargetAccuracy(0.7).decide(at(9, *accuracies))
    assert found == (Decision("target-accuracy") if ends else None)


def test_what_was_decided_is_not_asked_again(tmp_path: Path) -> None:
    store, moody, nobody = (
        FileStore(tmp_path),
        Moody(),
        Faults((), COORDINATOR, FileStore(tmp_path)),
    )
    for _ in range(2):  # the second is a resumed run's
        decisions = Decisions(store, [moody], "job", nobody)
        assert decisions.at(at(9, 0.5)) == Decision("mood")
        assert decisions.at(at(18, 0.5, 0.6)) == Decision()
        assert moody.asked == [9, 18]
    # Another target, or a changed job, is another question.
    another = Decisions(store, [TargetAccuracy(0.5), moody], "job", nobody)
    assert another.at(at(9, 0.5)) == Decision("target-accuracy"), "of reasons the first"
    assert Decisions(store, [moody], "other", nobody).at(at(18, 0.5, 0.6)) == Decision()
    assert moody.asked == [9, 18, 9, 18], "all are asked"
    # What the last epoch keeps is another question, and the run ends there anyway.
    last = Boundary(step=18, history=at(18, 0.5, 0.6).history, last=True)
    assert Decisions(store, [moody], "other", nobody).at(last) == Decision()
    assert moody.asked[-2:] == [18, 18]
    assert not Decisions(store, [], "job", nobody)


@pytest.mark.parametrize(("place", "asked"), [("ask", 1), ("decide", 2), ("decided", 1)])
def test_a_death_before_it_is_stored_asks_again_and_none_after(
    place: str, asked: int, tmp_path: Path
) -> None:
    store, moody = FileStore(tmp_path), Moody()
    with pytest.raises(KeyboardInterrupt):
        Decisions(store, [moody], "job", Dies(place)).at(at(9, 0.5))
    Decisions(store, [moody], "job", Dies("")).at(at(9, 0.5))
    assert len(moody.asked) == asked


def test_a_damaged_decision_is_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    decisions = Decisions(store, [Moody()], "job", Dies(""))
    decisions.at(at(9, 0.5))
    (file,) = (tmp_path / "decisions").iterdir()
    file.write_text("{")
    with pytest.raises(RequestError, match=rf"{file.name} in .*is no JSON: .*remove it"):
        decisions.at(at(9, 0.5))


def train(
    data: Path, directory: Path, more: dict[str, Any], validate_every: int, **given: Any
) -> dayfly.Run:
    settings = {**small.SETTINGS, **more, "target_accuracy": TARGET, **given}
    job = small.job(data, validate_every=validate_every)
    return dayfly.train(job, workers=2, run_dir=directory, **settings)


@pytest.fixture(scope="module")
def ended(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dayfly.Run:
    """A run that reaches the target, with nothing in its way."""
    return train(data, tmp_path_factory.mktemp("ended"), {}, 1)


@pytest.mark.long
@pytest.mark.quick
@pytest.mark.parametrize("more", PROTOCOLS, ids=["bsp", "local-sgd"])
def test_workers_that_die_around_a_decision_leave_the_same_bits_and_end(
    more: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    """For pipelines: `test_a_target_ends_a_run_early_whoever_dies`."""
    end = 2 * FIRST  # nothing is measured before
    reference = train(data, tmp_path / "undisturbed", more, 2)
    assert (reference.result.steps, reference.stop_reason) == (end, "target-accuracy")
    first, last = FIRST - 1, end - 1
    faults = [
        Fault(1, first, "epoch"),  # in an epoch after which the run goes on
        Fault(0, first, "decided"),
        Fault(0, last, "epoch"),
        Fault(1, last, "decided"),
        Fault(0, end, "written"),  # its part of the last checkpoint, which it did not tell
    ]
    run = train(data, tmp_path / "run", more, 2, faults=faults)
    assert run.result.restarts == len(faults)
    assert (run.result.steps, run.stop_reason) == (end, "target-accuracy")
    assert small.bits(run) == small.bits(reference)
    told = [one for one in small.events(run.directory, "coordinator") if one["kind"] == "decided"]
    assert [(one["step"], one["reason"]) for one in told] == [(end, "target-accuracy")]


@pytest.mark.long
@pytest.mark.parametrize(
    "place",
    # Before it is stored: the pure test above covers that. After the commit: the next test.
    [
        pytest.param("decide", marks=pytest.mark.slow),
        "answered",
        pytest.param("committed", marks=pytest.mark.slow),
    ],
)
def test_a_coordinator_that_dies_around_a_decision_leaves_the_same_bits_and_end(
    place: str, data: Path, ended: dayfly.Run, tmp_path: Path
) -> None:
    killed(data, tmp_path, [Fault(COORDINATOR, FIRST, place)], target_accuracy=TARGET)
    result = resume(tmp_path)
    assert (result["status"], result["stop_reason"]) == ("done", "target-accuracy")
    assert result["steps"] == FIRST
    assert small.bits(tmp_path) == small.bits(ended)


@pytest.mark.long
def test_another_target_is_asked_for_anew(data: Path, tmp_path: Path) -> None:
    killed(data, tmp_path, [Fault(COORDINATOR, FIRST, "committed")], target_accuracy=TARGET)
    run = dayfly.resume(tmp_path, target_accuracy=1.0, progress=False)
    assert (run.result.steps, run.stop_reason) == (small.STEPS, None)
