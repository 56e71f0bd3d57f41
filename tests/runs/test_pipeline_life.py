"""Lifetimes, lost coordinators, stops and other cuts of a model in stages: the same bits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dayfly
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.runs import launch
from dayfly.runs.job_record import Record
from dayfly.runs.log_budget import RoundBytes
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import Shipped
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator, small, staged
from tests.runs.staged import Undisturbed

pytestmark = pytest.mark.long


@pytest.mark.quick
def test_two_die_together_one_of_them_again_and_the_zygote(
    data: Path, undisturbed_stages: Undisturbed, tmp_path: Path
) -> None:
    faults = [
        Fault(1, 5, "forward-2"),
        Fault(2, 5, "forward-1"),
        Fault(1, 5, "backward-1"),
        Fault(0, 14, "backward-3", "zygote"),
    ]
    run = staged.train(data, tmp_path, 1, faults=faults)
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(undisturbed_stages(1))
    assert not staged.redone_by_peers(run, faults, 1)


def killed(data: Path, directory: Path, replicas: int, step: int, place: str) -> None:
    """A run whose coordinator dies there."""
    coordinator.killed(
        data=data,
        run_dir=directory,
        replicas=replicas,
        cut=staged.CUT,
        micro_batches=staged.MICRO_BATCHES,
        log_budget_mib=1,
        faults=[Fault(COORDINATOR, step, place)],
    )


def test_a_coordinator_killed_in_mid_run(
    data: Path, undisturbed_stages: Undisturbed, tmp_path: Path
) -> None:
    killed(data, tmp_path, 2, 13, "step")
    dayfly.resume(tmp_path, progress=False)
    assert small.bits(tmp_path) == small.bits(undisturbed_stages(2))


@pytest.mark.slow
def test_functions_that_live_10_s(data: Path, tmp_path: Path) -> None:
    """With steps for 5 s of it: 2.2 s and a few of 0.6 s."""
    job = small.job(data, epochs=1)
    slower = small.Slowly(2.2, 0.6, samples=small.BATCH)
    slowly = small.job(data, epochs=1, transform=slower)
    settings = {**staged.SETTINGS, "replicas": 1}
    reference = dayfly.train(job, run_dir=tmp_path / "undisturbed", **settings)
    run = dayfly.train(slowly, run_dir=tmp_path / "short", lifetime_s=10.0, **settings)
    assert small.bits(run) == small.bits(reference)
    assert run.result.restarts == 0, "hand-overs are planned, no deaths"
    ended = [e for e in small.events(run.directory, "coordinator") if e["kind"] == "ended"]
    assert sum(e["result"]["status"] == "handed over" for e in ended) >= staged.STAGES
    assert {e["used"]["outcome"] for e in ended} == {"returned"}, "nobody outlived its lifetime"


def plain(data: Path, **changes: Any) -> dayfly.Job:
    """What has the same bits in stages and not: without dropout and clipping."""
    return small.job(data, model=five_layers, clip_norm=None, **changes)


def five_layers() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 48), nn.BatchNorm1d(48), nn.Tanh(), nn.Linear(48, 24), nn.Linear(24, 5)
    )


def stopped_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ctrl-C, as soon as a checkpoint of that step or a later one is committed."""
    committed = checkpoints.commit

    def commit(store: FileStore, at: int, parts: Any) -> Any:
        made = committed(store, at, parts)
        if at >= step:
            monkeypatch.setattr(checkpoints, "commit", committed)
            os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(checkpoints, "commit", commit)


def cut_of(directory: Path) -> list[int]:
    """In which stages the run's checkpoint says that it is."""
    store = FileStore(directory)
    latest = checkpoints.latest(store)
    assert latest is not None
    tree, _ = checkpoints.read(store, latest)
    cut: list[int] = tree["cut"]
    assert checkpoints.stages(latest) == len(cut) + 1
    return cut


@pytest.mark.slow  # `runs/test_scaling.py` changes the cut of a run that goes on
def test_a_run_goes_on_in_other_stages(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncut, in three stages, in two, uncut; stopped by Ctrl-C in between."""
    how: dict[str, Any] = {"micro_batches": 4, "checkpoint_every_s": 0.05, "progress": False}
    hurry = tmp_path / "hurry"  # else 36 steps last 14 s, so that they can be stopped
    job = plain(data, epochs=4, transform=small.Slowly(0.4, 0.4, until=hurry))
    hurry.touch()
    reference = dayfly.train(job, workers=2, run_dir=tmp_path / "undisturbed", **how)
    hurry.unlink()
    directory = tmp_path / "run"
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        stopped_at(monkeypatch, 3)
        with pytest.raises(KeyboardInterrupt):
            dayfly.train(job, workers=2, run_dir=directory, **how)
        assert cut_of(directory) == []

        stopped_at(monkeypatch, 7)
        with pytest.raises(KeyboardInterrupt):
            dayfly.resume(directory, cut=(1, 3), replicas=2, workers=6, progress=False)
        assert cut_of(directory) == [1, 3]

        stopped_at(monkeypatch, 12)
        with pytest.raises(KeyboardInterrupt):
            dayfly.resume(directory, cut=(2,), replicas=2, workers=4, progress=False)
        assert cut_of(directory) == [2]
    finally:
        signal.signal(signal.SIGINT, heard)
    hurry.touch()
    run = dayfly.resume(directory, cut=(), replicas=None, workers=2, progress=False)
    assert small.bits(run)[0] == small.bits(reference)[0]
    # What is measured is summed in the order of micro-batches, and the weights are not of it.
    for found, expected in zip(
        *(small.history(r)["epochs"] for r in (run, reference)), strict=True
    ):
        assert found == pytest.approx(expected, rel=1e-5)


class Lost(BaseException):
    """The coordinator is gone."""


@pytest.mark.parametrize("written", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_recutting_may_be_interrupted_anywhere(
    written: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once before the new parts are committed, once behind it and before the record is written."""
    killed(data, tmp_path, 1, 13, "step")

    def lost(*_: Any, **__: Any) -> Any:
        raise Lost

    with monkeypatch.context() as patch:
        if written:
            patch.setattr(launch, "JobCoordinator", lost)
        else:
            patch.setattr(checkpoints, "commit", lost)
        with pytest.raises(Lost):
            dayfly.resume(tmp_path, cut=(3,), workers=2, replicas=1, progress=False)
    assert cut_of(tmp_path) == ([3] if written else [1, 3])
    assert json.loads((tmp_path / "run.json").read_text())["settings"]["cut"] == [1, 3]
    run = dayfly.resume(tmp_path, progress=False)
    assert run.result.workers == 3
    assert run.result.steps == small.STEPS


def plateau(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


def test_a_target_ends_a_run_early_whoever_dies(data: Path, tmp_path: Path) -> None:
    """With a scheduler that goes by the validation loss, and gradients clipped over all stages."""
    job = small.job(data, scheduler=plateau, epochs=8)
    settings = {**staged.SETTINGS, "replicas": 1, "target_accuracy": 0.5}
    reference = dayfly.train(job, run_dir=tmp_path / "undisturbed", **settings)
    faults = [Fault(1, 4, "reduced"), Fault(2, small.STEPS_AN_EPOCH - 1, "epoch")]
    run = dayfly.train(job, run_dir=tmp_path / "run", faults=faults, **settings)
    assert run.result.restarts == len(faults)
    assert run.result.steps == reference.result.steps < 8 * small.STEPS_AN_EPOCH
    assert small.bits(run) == small.bits(reference)


def test_the_best_weights_of_stages_are_the_same_whoever_dies(data: Path, tmp_path: Path) -> None:
    """By max of the training loss: those of the first of two epochs."""
    job = small.job(data, scheduler=plateau, epochs=2)
    settings = {**staged.SETTINGS, "replicas": 1, "keep": "best", "monitor": "train_loss"}
    settings["mode"] = "max"
    reference = dayfly.train(job, run_dir=tmp_path / "undisturbed", **settings)
    first = small.STEPS_AN_EPOCH
    faults = [Fault(1, first - 1, "decided"), Fault(2, first, "written"), Fault(0, first, "told")]
    run = dayfly.train(job, run_dir=tmp_path / "run", faults=faults, **settings)
    assert run.result.restarts == len(faults)
    assert run.best_epoch == reference.best_epoch == 1
    kept = [(one.directory / "best.safetensors").read_bytes() for one in (run, reference)]
    assert kept[0] == kept[1] != (run.directory / "weights.safetensors").read_bytes()
    assert small.bits(run) == small.bits(reference)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({"cut": (1, 3), "replicas": 2}, {"cut": (2,)}, (4, 2)),
        ({"cut": (1, 3), "replicas": 2}, {"cut": (2,), "workers": 2}, (2, 1)),
        ({"cut": (1,), "replicas": 2}, {"replicas": 3}, (6, 3)),
        ({"workers": 4}, {"cut": (2,)}, (2, 1)),
        ({"cut": (1, 3), "replicas": 2}, {"cut": (), "workers": 3}, (3, None)),
    ],
)
def test_another_cut_keeps_the_replicas_unless_others_are_given(
    before: dict[str, Any], changes: dict[str, Any], after: tuple[int, int | None]
) -> None:
    record = Record(
        run_id="run",
        settings=Settings(**before),
        shipped=Shipped("job", None),
        parts=(),
        samples=1,
        round_bytes=RoundBytes.of_sums(1, 2),
    )
    changed = record.next_life(None, **changes).settings
    assert (changed.workers, changed.replicas) == after
