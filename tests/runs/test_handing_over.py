"""A coordinator that comes to the end of its lifetime hands the run over to another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.life.commits import Checkpoint
from dayfly.life.control import Request, ask
from dayfly.runs.job_coordinator import JobCoordinator
from dayfly.wire.stores.files import FileStore
from tests.runs import small

pytestmark = pytest.mark.long


@pytest.fixture
def ends_at_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a coordinator that has a lifetime is up with the first checkpoint."""
    committed = JobCoordinator.committed

    def last(coordinator: JobCoordinator, checkpoint: Checkpoint) -> None:
        committed(coordinator, checkpoint)
        if coordinator._record.settings.coordinator_lifetime_s is not None:
            coordinator._hand_over_s = 0.0

    monkeypatch.setattr(JobCoordinator, "committed", last)


def handed_over(data: Path, directory: Path, until: Path, **more: Any) -> dayfly.Run:
    """Steps last until the file is there, so that the run is not done first."""
    return dayfly.train(
        small.job(data, transform=small.Slowly(0.3, 0.3, until=until)),
        workers=2,
        run_dir=directory,
        **{
            **small.SETTINGS,
            "checkpoint_every_s": 0.5,
            "coordinator_lifetime_s": 1e6,
            **more,
        },
    )


@pytest.mark.usefixtures("ends_at_a_checkpoint")
def test_the_next_one_ends_with_the_same_bits(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    until = tmp_path / "fast"
    first = handed_over(data, tmp_path / "run", until)
    assert first.result.status == "handing over"
    assert 0 < first.result.steps < small.STEPS
    until.touch()

    while (run := dayfly.resume(tmp_path / "run", progress=False)).result.status == "handing over":
        pass
    assert small.bits(run) == small.bits(undisturbed(2))


@pytest.mark.usefixtures("ends_at_a_checkpoint")
def test_a_stop_that_is_asked_for_between_two_is_heard_by_the_next(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "run"
    first = handed_over(data, directory, tmp_path / "never")
    monkeypatch.undo()
    ask(FileStore(directory), Request(kind="stop"))
    second = dayfly.resume(directory, progress=False)
    assert second.result.status == "stopped"
    assert second.result.steps <= first.result.steps + 15, "a look is due every 2 s"


def test_every_one_comes_a_step_further_however_short_its_lifetime(
    data: Path, tmp_path: Path
) -> None:
    never = tmp_path / "never"
    first = handed_over(data, tmp_path / "run", never, coordinator_lifetime_s=0.001)
    assert first.result.status == "handing over"
    assert first.result.steps >= 1
