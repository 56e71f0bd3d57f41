"""Hybrid asynchronous: some workers lag one step behind, by a schedule that nothing changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import dayfly
from dayfly.data.npy_arrays import load_arrays
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs import coordinator
from dayfly.runs.changes import Changes
from dayfly.runs.settings import Settings
from dayfly.runs.spans import FaultPoints
from dayfly.runs.steering import scale, stop
from dayfly.training.order import Epochs, permuted
from dayfly.training.randomness import SPLIT, WEIGHTS, seeded
from dayfly.wire.collectives.k_reduce import contributing, k_reduce, reading
from dayfly.wire.schedule import Schedule
from tests.runs import small
from tests.runs.test_scaling import Asking, generations

pytestmark = pytest.mark.long

#: Aggregators of three workers.
K, WORKERS = 2, 3
HAP: dict[str, Any] = {"sync": "hap", "workers": WORKERS, "aggregators": K}
#: Rank 0 wants a checkpoint in every step.
OFTEN: dict[str, Any] = {"checkpoint_every_s": 1e-6}
_MOST_S = 60.0


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dayfly.Run]:
    """The run of `small.job` on so many workers, so many of them aggregators, undisturbed."""

    @cache
    def run(workers: int, aggregators: int, shares: tuple[int, ...] = ()) -> dayfly.Run:
        settings = {**HAP, "workers": workers, "aggregators": aggregators, "shares": shares}
        directory = tmp_path_factory.mktemp("whole")
        return dayfly.train(small.job(data), run_dir=directory, progress=False, **settings)

    return run


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@pytest.mark.parametrize(
    "shares", [(1, 1, 1), pytest.param((1, 2, 3), marks=pytest.mark.quick), (0, 1, 2)]
)
def test_gradients_of_those_that_lag_are_of_the_weights_one_step_before(
    shares: tuple[int, ...], data: Path, tmp_path: Path
) -> None:
    """The formula in one process; at an epoch's first step all weights are equal."""
    job = small.job(
        data,
        model=small.plain_model,
        optimizer=sgd,
        transform=None,
        scheduler=None,
        clip_norm=None,
        metrics={},
        seed=3,
    )
    run = dayfly.train(job, run_dir=tmp_path, progress=False, shares=shares, **HAP)
    model, losses = by_formula(data, shares, seed=3)
    np.testing.assert_allclose(small.history(run)["step_loss"], losses, rtol=0, atol=1e-5)
    for trained, plain in zip(run.model().parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(trained, plain, rtol=0, atol=1e-5)


def by_formula(data: Path, shares: tuple[int, ...], seed: int) -> tuple[nn.Module, list[float]]:
    """The weights at the end, and the loss of each step."""
    arrays = load_arrays(data)
    validation = small.SAMPLES // 10
    training = small.SAMPLES - validation
    with seeded(WEIGHTS, seed):
        now = small.plain_model()
    before, optimizer = copy.deepcopy(now), sgd(now.parameters())
    epochs, losses = Epochs(training, small.BATCH, seed), []
    for step in range(small.STEPS):
        total = 0.0
        optimizer.zero_grad()
        for rank in range(WORKERS):
            model = now if rank < K or epochs.begins_epoch(step) else before
            (own,) = epochs.slices(range(step, step + 1), rank, WORKERS, weights=shares)
            if not shares[rank]:
                assert not len(own), "it is standalone"
                continue
            rows = permuted(own + validation, small.SAMPLES, SPLIT, seed)
            x, y = (torch.from_numpy(arrays[name][rows]) for name in ("x_train", "y_train"))
            loss = nn.functional.cross_entropy(model(x), y) * (len(own) / small.BATCH)
            found = torch.autograd.grad(loss, list(model.parameters()))
            for parameter, gradient in zip(now.parameters(), found, strict=True):
                parameter.grad = gradient + (0 if parameter.grad is None else parameter.grad)
            total += loss.item()
        before = copy.deepcopy(now)
        optimizer.step()
        losses.append(total)
    return now, losses


def test_checkpoints_at_every_other_step_change_no_bits(
    data: Path, whole: Callable[..., dayfly.Run], tmp_path: Path
) -> None:
    """A wish is granted a step later than it is made, so there are no more."""
    many = dayfly.train(small.job(data), run_dir=tmp_path, progress=False, **OFTEN, **HAP)
    taken = checkpoints(many)
    assert {2, 4, 6, 8} <= set(taken)
    assert not [step for step in checkpoints(whole(WORKERS, K)) if step % small.STEPS_AN_EPOCH]
    assert small.bits(many) == small.bits(whole(WORKERS, K))


def checkpoints(run: dayfly.Run) -> list[int]:
    found = small.events(run.directory, "coordinator")
    return [event["step"] for event in found if event["kind"] == "checkpoint"]


class _Points:
    """Collects the names of fault points."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def at(self, step: int, point: str) -> None:
        self.names.append(point)


def points(rank: int, workers: int, aggregators: int) -> list[str]:
    """All places of an iteration where a worker may die, by its schedules."""
    made: Sequence[Schedule]
    if rank < aggregators:
        made = [k_reduce(aggregators).schedule(rank, workers, 100)]
    else:
        made = [one(aggregators).schedule(rank, workers, 100) for one in (contributing, reading)]
    found = _Points()
    told = FaultPoints(found, 0)  # type: ignore[arg-type]
    for op in (op for schedule in made for op in schedule):
        told.after(op)
    return list(dict.fromkeys(["compute", "computed", *found.names, "reduced", "applied"]))


@pytest.mark.parametrize(
    ("workers", "aggregators", "shares"),
    [
        (2, 1, ()),
        # One that only sums has its formula above.
        pytest.param(2, 1, (0, 1), marks=pytest.mark.slow),
        pytest.param(3, 2, (), marks=pytest.mark.slow),
        pytest.param(3, 2, (0, 0, 1), marks=pytest.mark.slow),  # the case of two has all roles
        pytest.param(4, 1, (), marks=pytest.mark.slow),
    ],
)
def test_deaths_at_every_operation_leave_the_same_bits(
    workers: int,
    aggregators: int,
    shares: tuple[int, ...],
    data: Path,
    whole: Callable[..., dayfly.Run],
    tmp_path: Path,
) -> None:
    reference = whole(workers, aggregators, shares)
    faults = [
        Fault(rank, 1 + 2 * number + (number >= 4), point)
        for rank in (aggregators - 1, aggregators)
        for number, point in enumerate(points(rank, workers, aggregators))
    ]
    settings = {**HAP, "workers": workers, "aggregators": aggregators, "shares": shares}
    run = dayfly.train(small.job(data), run_dir=tmp_path, faults=faults, progress=False, **settings)
    assert run.result.restarts == len(faults), "every planned death happened, once"
    assert small.bits(run) == small.bits(reference)


def test_deaths_at_checkpoints_in_lagging_steps_and_at_ends_of_epochs(
    data: Path, whole: Callable[..., dayfly.Run], tmp_path: Path
) -> None:
    """Checkpoints are made before steps 2, 4 and so on, which rank 1 computes from the lag."""
    end = small.STEPS_AN_EPOCH - 1
    faults = [
        Fault(0, 2, "checkpoint"),
        Fault(1, 2, "compute"),
        Fault(1, 4, "checkpoint"),
        Fault(1, 4, "grad-put-part"),
        Fault(0, 6, "applied"),
        Fault(1, end, "applied"),
        Fault(1, end, "val-get"),
        Fault(0, 2 * end + 1, "evaluated"),
    ]
    settings = {**HAP, **OFTEN, "workers": 2, "aggregators": 1, "progress": False}
    run = dayfly.train(small.job(data), run_dir=tmp_path, faults=faults, **settings)
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(whole(2, 1))


@pytest.mark.parametrize(
    "compress",
    [
        "topk:0.1",
        # What is kept of a contribution, topk's case covers.
        pytest.param("int8", marks=pytest.mark.slow),
    ],
)
def test_what_was_not_sent_is_kept_through_deaths_and_checkpoints(
    compress: str, data: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {**HAP, "compress": compress, "progress": False}
    whole = dayfly.train(small.job(data, epochs=2), run_dir=tmp_path / "whole", **given)
    faults = [Fault(2, 3, "computed"), Fault(1, 5, "grad-put-sum"), Fault(2, 7, "applied")]
    run = dayfly.train(
        small.job(data, epochs=2), run_dir=tmp_path / "run", faults=faults, **given, **OFTEN
    )
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(whole)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "LOOK_EVERY_S", 0.05)


@pytest.mark.usefixtures("looks_often")
def test_a_stop_and_a_change_in_mid_epoch_leave_the_same_bits(
    data: Path, whole: Callable[..., dayfly.Run], tmp_path: Path
) -> None:
    """A checkpoint within an epoch has what the lagging workers computed from."""

    def changes_then_stops(run: str) -> None:
        scale(run, Changes(checkpoint_every_s=30.0), _MOST_S)
        stop(run, _MOST_S)

    stopping = Asking(tmp_path, changes_then_stops)
    stopped = stopping.train(data, **HAP)
    assert stopping.answer is None
    assert stopped.result.status == "stopped"
    ended = stopped.result.steps
    file = next((stopped.directory / "checkpoint").rglob("part-*"))
    kept = {n for one in file.parent.glob("part-*") for n in safetensors.torch.load_file(one)}
    assert any(name.startswith("lag.") for name in kept) == bool(ended % small.STEPS_AN_EPOCH)
    assert len(generations(stopped)) == 2
    run = dayfly.resume(stopped.directory, progress=False)
    assert small.bits(run) == small.bits(whole(WORKERS, K))


def test_a_loss_that_is_no_number_ends_all_workers_with_the_cause(
    data: Path, tmp_path: Path
) -> None:
    job = small.job(
        data, optimizer=lambda p: torch.optim.SGD(p, lr=1e30), clip_norm=None, scheduler=None
    )
    with pytest.raises(dayfly.RunFailed, match=r"the loss became (nan|inf) in step \d+"):
        dayfly.train(job, run_dir=tmp_path, progress=False, **HAP)
    result = json.loads((tmp_path / "run.json").read_text())
    assert result["status"] == "failed"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": 3}, "--sync hap needs --aggregators: how many of the workers sum, 1 to 2"),
        ({"workers": 3, "aggregators": 4}, "--sync hap --aggregators 4: give 1 to 2"),
        (
            {"workers": 3, "aggregators": 3},
            "that is --sync bsp --collective k-reduce --aggregators 3",
        ),
        ({"aggregators": 1}, "give --workers 2 or more"),
        ({**HAP, "collective": "ring"}, "sums by k-reduce, and --collective ring was given"),
        ({**HAP, "compress": "powersgd"}, "cannot have --compress powersgd"),
        ({**HAP, "compress": "significance:0.1"}, "goes by learning rates"),
        ({**HAP, "precision": "fp16"}, "give --precision bf16"),
        ({**HAP, "virtual_workers": 4}, "which knows no leaves of a batch"),
        ({**HAP, "k": 4}, "--sync hap takes no --k"),
        ({"aggregators": 1, "cut": (1,)}, "--sync hap cannot have --cut"),
        ({**HAP, "shares": (1, 1, 0)}, "worker 2 would train nothing and sum nothing for others"),
        ({**HAP, "shares": (0, 0, 0)}, "leaves nobody to train"),
        ({**HAP, "shares": (0, 1, -1)}, "give whole numbers from 0"),
        ({"sync": "bsp", "workers": 2, "shares": (0, 1)}, "by --sync hap --aggregators 1"),
    ],
)
def test_what_hap_cannot_be_with_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Settings(**{"sync": "hap", **asked})


def test_a_change_to_hap_or_from_it_has_the_collective_of_the_protocol() -> None:
    hap = Settings(workers=3, collective="overlapped").changed(sync="hap", aggregators=1)
    assert hap.algorithm == "k-reduce"
    assert hap.changed(sync="bsp").aggregators is None
