"""The coordinator is killed at eight places; `--resume` ends with the same bits."""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dayfly
from dayfly.life.faults import Fault
from dayfly.wire.keys import COORDINATOR
from tests.cli import command
from tests.runs import coordinator, small

pytestmark = pytest.mark.long

#: Whichever step it is that gets there first: when checkpoints are trimmed is a matter of time.
ANY = -1
#: Where the coordinator dies: (step, place), with a worker's death before it where that is needed.
PLACES: list[tuple[int, str, list[Fault]]] = [
    (0, "begin", []),
    (0, "invoked", []),
    (13, "step", []),
    (0, "again", [Fault(1, 5, "grad-reduce")]),
    (ANY, "commit", []),
    (ANY, "committed", []),
    (ANY, "trim", []),
    (small.STEPS, "save", []),
]
#: Of places side by side the suite has one; test_kills.py kills at each write of the results.
BETWEEN = {"begin", "invoked", "committed", "trim", "save"}


def life_s(events: Path) -> Iterator[float]:
    """How long each life's workers were heard of."""
    times: dict[int, list[float]] = defaultdict(list)
    for file in events.glob("worker-*.jsonl"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            times[record["generation"]].append(record["at"])
    for heard in times.values():
        yield max(heard) - min(heard)


def resume(directory: Path, *flags: str) -> dict[str, Any]:
    """As `dayfly train --resume` does and prints it."""
    done = command.here("train", "--resume", directory, "--json", *flags, cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    return command.last_json(done.stdout)


def killed(data: Path, directory: Path, faults: list[Fault], **more: Any) -> None:
    """A run on two workers whose coordinator dies, as the last of the faults says."""
    coordinator.killed(
        data=data, run_dir=directory, workers=2, log_budget_mib=1, faults=faults, **more
    )


@pytest.mark.parametrize(
    ("step", "place", "before"),
    [pytest.param(*one, marks=pytest.mark.slow if one[1] in BETWEEN else ()) for one in PLACES],
    ids=lambda value: str(value)[:12],
)
def test_resume_after_a_kill_of_the_coordinator(
    step: int,
    place: str,
    before: list[Fault],
    data: Path,
    undisturbed: Callable[[int], dayfly.Run],
    tmp_path: Path,
) -> None:
    reference = undisturbed(2)
    steps = range(small.STEPS + 1) if step == ANY else [step]
    killed(data, tmp_path, [*before, *(Fault(COORDINATOR, step, place) for step in steps)])

    result = resume(tmp_path)

    assert result["status"] == "done"
    assert result["steps"] == small.STEPS
    assert small.bits(tmp_path) == small.bits(reference)
    lived_s = sum(life_s(tmp_path / "events"))
    assert lived_s * 0.9 <= result["wall_s"], "a killed life counts until the last heard of it"


def test_resume_of_a_finished_run_returns_it_as_it_is(
    undisturbed: Callable[[int], dayfly.Run],
) -> None:
    run = undisturbed(2)
    before = {path: path.stat().st_mtime_ns for path in run.directory.rglob("*")}
    assert resume(run.directory)["val_loss"] == run.result.val_loss
    assert {path: path.stat().st_mtime_ns for path in run.directory.rglob("*")} == before


def test_a_run_that_is_being_run_is_not_resumed(data: Path, tmp_path: Path) -> None:
    process = coordinator.start(data=data, run_dir=tmp_path, workers=1, epochs=10_000)
    try:
        while not (tmp_path / "events").exists():
            assert process.poll() is None, process.communicate()
            os.sched_yield()
        with pytest.raises(dayfly.RequestError, match=f"run by process {process.pid}"):
            dayfly.resume(tmp_path, progress=False)
    finally:
        process.kill()
        process.communicate()


def test_resume_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(dayfly.RequestError, match=r"holds no run: it has no run\.json"):
        dayfly.resume(tmp_path, progress=False)


@pytest.mark.quick
def test_a_run_goes_on_with_another_number_of_workers(data: Path, tmp_path: Path) -> None:
    killed(data, tmp_path, [Fault(COORDINATOR, 20, "step")])
    result = resume(tmp_path, "--workers", "3")
    assert (result["workers"], result["steps"]) == (3, small.STEPS)


def test_a_damaged_checkpoint_is_refused_and_named(data: Path, tmp_path: Path) -> None:
    killed(data, tmp_path, [Fault(COORDINATOR, 20, "step")])
    before = (tmp_path / "run.json").read_bytes()
    committed = json.loads((tmp_path / "checkpoint" / "latest.json").read_text())
    part = next(tmp_path / one["object"] for one in committed["parts"] if "part-0" in one["object"])
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(dayfly.RequestError, match=f"{part.name} .* was damaged"):
        dayfly.resume(tmp_path, progress=False)
    assert (tmp_path / "run.json").read_bytes() == before


def constant(optimizer: Any) -> Any:
    """A scheduler that does not depend on how long the run is."""
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def test_a_run_that_is_done_goes_on_to_more_epochs_with_the_same_bits(
    data: Path, tmp_path: Path
) -> None:
    """The arrays were removed; they are taken again, and known by their digest."""
    own = shutil.copy(data, tmp_path / "own.npz")
    job = small.job(own, scheduler=constant)
    longer = dayfly.train(
        replace(job, epochs=4), workers=2, run_dir=tmp_path / "longer", **small.SETTINGS
    )
    first = dayfly.train(
        replace(job, epochs=2), workers=2, run_dir=tmp_path / "run", **small.SETTINGS
    )
    assert first.result.epochs == 2
    assert not (tmp_path / "run" / "data").exists()
    with pytest.raises(dayfly.RequestError, match="--epochs 1: the run has done 2 epochs already"):
        dayfly.resume(first.directory, epochs=1, progress=False)

    random = np.random.default_rng(1)
    np.savez(own, x_train=random.normal(size=(200, 12)).astype("f4"), y_train=np.arange(200) % 5)
    with pytest.raises(dayfly.RequestError, match="differ from those that the run began with"):
        dayfly.resume(first.directory, epochs=4, progress=False)
    assert not (tmp_path / "run" / "data").exists()
    assert dayfly.resume(first.directory, progress=False).result == first.result

    shutil.copy(data, own)
    result = resume(first.directory, "--epochs", "4")
    assert (result["epochs"], result["steps"]) == (4, 4 * small.STEPS_AN_EPOCH)
    assert small.bits(first.directory) == small.bits(longer)
    assert [one["epoch"] for one in dayfly.resume(first.directory).history] == [1, 2, 3, 4]


def test_what_a_scheduler_has_no_steps_for_is_refused_on_resume_too(
    data: Path, tmp_path: Path
) -> None:
    def one_cycle(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 1)

    run = dayfly.train(
        small.job(data, scheduler=one_cycle, epochs=1), run_dir=tmp_path, progress=False
    )
    with pytest.raises(dayfly.RequestError, match="scheduler fails after epoch 2 of 3"):
        dayfly.resume(run.directory, epochs=3, progress=False)


def test_a_damaged_event_is_found_before_anything_is_written(data: Path, tmp_path: Path) -> None:
    run = dayfly.train(small.job(data, epochs=1), run_dir=tmp_path / "run", progress=False)
    file = run.directory / "events" / "coordinator.jsonl"
    first, *others = file.read_text().splitlines(keepends=True)
    # Its last line was cut short by a kill, which nobody mends before all is read.
    file.write_text("".join(["{no record}\n", *others, first[:-9]]))

    def content() -> dict[Path, bytes]:
        return {one: one.read_bytes() for one in run.directory.rglob("*") if one.is_file()}

    before = content()
    with pytest.raises(dayfly.RequestError, match=r"coordinator.jsonl, line 1 is no JSON"):
        dayfly.resume(run.directory, epochs=2, progress=False)
    assert content() == before
