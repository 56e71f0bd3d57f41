"""Callbacks decide at boundaries, hear of events, and keep weights, whoever dies."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from rich.console import Console

import dayfly
from dayfly.callbacks import Callback, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from dayfly.callbacks.monitor import Monitor
from dayfly.errors import RequestError, RunFailed
from dayfly.life.faults import Fault
from dayfly.runs import api
from dayfly.runs.display import Lines
from dayfly.specs.events import EpochTold
from dayfly.wire.keys import COORDINATOR
from tests.runs import small
from tests.runs.test_resume import killed, resume

FIRST = small.STEPS_AN_EPOCH
PROTOCOLS: list[dict[str, Any]] = [{}, {"sync": "local-sgd", "k": 4}]
NAN = math.nan


def records(*values: float | None) -> list[dict[str, Any]]:
    return [{"epoch": n, "x": value} for n, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("values", "mode", "delta", "every", "found"),
    [
        ([], "min", 0, 1, (None, 0)),
        ([3, 2, 2, 2.5], "min", 0, 1, (2, 2)),  # of equal ones the first
        ([1, 2, 3], "max", 0, 1, (3, 0)),
        ([NAN, 5, NAN, 4], "min", 0, 1, (4, 0)),  # NaN never improves
        ([None, 5, None, 6], "min", 0, 2, (2, 1)),  # validations count, not epochs
        ([5, None], "min", 0, 1, (1, 1)),  # JSON's NaN
        ([1.0, 0.95, 0.85], "min", 0.1, 1, (3, 0)),
        ([1.0, 0.95, 0.91], "min", 0.1, 1, (1, 2)),
    ],
)
def test_the_best_epoch(
    values: list[float | None], mode: str, delta: float, every: int, found: tuple[Any, int]
) -> None:
    assert Monitor.of("x", mode).best(records(*values), delta, every) == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"keep": "all"}, "--keep 'all' is not known: give one of best"),
        ({"monitor": "val_loss"}, "--monitor val_loss is for --keep best and --patience"),
        ({"mode": "max"}, "--mode max is for --keep best"),
        ({"keep": "best", "mode": "most"}, "--mode 'most' is not known"),
        ({"keep": "best", "monitor": "f1"}, "monitor 'f1': say whether less or more"),
        ({"keep": "best", "monitor": "f1", "mode": "max"}, "--monitor f1: the history has train_l"),
        ({"patience": 0}, "--patience 0: give"),
        ({"target_loss": NAN}, "--target-loss nan: give"),
        ({"log": ("excel",)}, "--log excel: give one of csv, jsonl"),
        ({"log": ("csv:",)}, "--log csv:: give one of"),
        ({"log": ("csv:nowhere/log.csv",)}, "nowhere is no directory"),
        ({"callbacks": EarlyStopping()}, "callbacks are EarlyStopping: give a list"),
        ({"callbacks": [EarlyStopping]}, "a callback is the class EarlyStopping: give an object"),
        ({"callbacks": [print]}, "a callback is builtin_function_or_method"),
        ({"callbacks": [EarlyStopping("f1", mode="max")]}, "EarlyStopping: monitor f1: the hist"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_starts(
    given: dict[str, Any], words: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=words):
        dayfly.train(small.job(data), run_dir=tmp_path / "run", progress=False, **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"min_delta": -1}, {"mode": "best"}])
def test_early_stopping_is_checked_where_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        EarlyStopping(**wrong)


class Told(Callback):
    """Notes what it is told, and stops after the second epoch."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_run_start(self, run: Any) -> None:
        self.told.append(("start", len(run.history)))

    def on_epoch_end(self, run: Any, record: dict[str, Any]) -> None:
        assert run.history[-1] == record
        self.told.append(("epoch", record["epoch"]))
        if record["epoch"] == 2:
            run.keep("second")
            run.stop("enough")

    def on_event(self, run: Any, event: Any) -> None:
        if isinstance(event, EpochTold):
            self.told.append(("event", event.epoch))

    def on_run_end(self, run: Any) -> None:
        assert (run.directory / "weights.safetensors").is_file()
        self.told.append(("end", run.result.status, run.result.stop_reason))


@pytest.mark.long
@pytest.mark.quick
def test_a_callback_is_told_in_order_and_decides(data: Path, tmp_path: Path) -> None:
    told = Told()
    faults = [Fault(0, FIRST - 1, "epoch"), Fault(1, 2 * FIRST - 1, "decided")]
    run = dayfly.train(
        small.job(data, callbacks=[LearningRateMonitor()]),
        workers=2,
        run_dir=tmp_path / "run",
        faults=faults,
        callbacks=[told],
        **small.SETTINGS,
    )
    assert run.result.restarts == 2
    assert (run.stop_reason, run.result.steps) == ("enough", 2 * FIRST)
    asked = [one for one in told.told if one[0] != "event"]
    assert asked == [("start", 0), ("epoch", 1), ("epoch", 2), ("end", "done", "enough")]
    assert {one[1] for one in told.told if one[0] == "event"} == {1, 2}
    assert told.told[-1][0] == "end", "all is heard by then"
    kept = (run.directory / "kept" / "second.safetensors").read_bytes()
    assert kept == (run.directory / "weights.safetensors").read_bytes()
    rates = [0.01 * (1 + math.cos(math.pi * n / small.EPOCHS)) / 2 for n in range(2)]
    assert [one["lr"] for one in run.history] == pytest.approx(rates)


class Fails(Callback):
    """Raises in one of its methods."""

    def __init__(self, method: str, *, optional: bool) -> None:
        super().__init__(optional=optional)
        self.method = method

    def _called(self, method: str) -> None:
        if method == self.method:
            raise ValueError(f"no {method} today")

    def on_run_start(self, run: Any) -> None:
        self._called("on_run_start")

    def on_epoch_end(self, run: Any, record: dict[str, Any]) -> None:
        self._called("on_epoch_end")

    def on_event(self, run: Any, event: Any) -> None:
        self._called("on_event")

    def on_run_end(self, run: Any) -> None:
        self._called("on_run_end")


@pytest.mark.long
@pytest.mark.parametrize("method", ["on_run_start", "on_epoch_end", "on_event", "on_run_end"])
def test_one_that_raises_fails_the_run_with_its_traceback(
    method: str, data: Path, tmp_path: Path
) -> None:
    callbacks = [Fails(method, optional=False)]
    with pytest.raises(RunFailed) as failed:
        dayfly.train(small.job(data), run_dir=tmp_path / "run", progress=False, callbacks=callbacks)
    text = str(failed.value)
    assert text.startswith(f"callback Fails failed in {method}:\nTraceback")
    assert f"ValueError: no {method} today" in text
    assert "in _called" in text
    run = dayfly.load(tmp_path / "run")
    assert (run.result.status, run.stop_reason) == ("failed", None)


@pytest.mark.long
def test_an_optional_one_is_switched_off_and_that_is_said(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(api, "_display", lambda _: Lines(Console(file=shown, width=200)))
    methods = ["on_run_start", "on_epoch_end", "on_event", "on_run_end"]
    callbacks = [Fails(method, optional=True) for method in methods]
    run = dayfly.train(small.job(data), run_dir=tmp_path / "run", callbacks=callbacks)
    assert (run.result.status, run.result.steps) == ("done", small.STEPS)
    for method in methods:
        words = f"callback Fails failed in {method}, and is switched off: ValueError: no {method}"
        assert shown.getvalue().count(words) == 1


class Outside(Callback):
    """Decides where nothing can be decided."""

    def on_event(self, run: Any, event: Any) -> None:
        run.stop()


def test_nothing_is_decided_outside_of_a_boundary(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"run\.stop was called outside of on_epoch_end"):
        dayfly.train(
            small.job(data), run_dir=tmp_path / "run", progress=False, callbacks=[Outside()]
        )


def kept_by(data: Path, directory: Path, **given: Any) -> dayfly.Run:
    settings = {"workers": 2, "keep": "best", "monitor": "train_loss", **small.SETTINGS, **given}
    return dayfly.train(small.job(data), run_dir=directory, **settings)


def best_bits(directory: Path) -> bytes:
    return (directory / "best.safetensors").read_bytes()


@pytest.fixture(scope="module")
def reference(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dayfly.Run:
    """With nothing in its way, max of the training loss."""
    return kept_by(data, tmp_path_factory.mktemp("undisturbed"), mode="max")


@pytest.mark.long
@pytest.mark.quick
@pytest.mark.parametrize("more", PROTOCOLS, ids=["bsp", "local-sgd"])
def test_the_best_weights_are_those_of_the_best_epoch_whoever_dies(
    more: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    """max of the training loss: the first epoch is the best, and later ones do not replace it."""
    more = {**more, "mode": "max"}
    reference = kept_by(data, tmp_path / "undisturbed", **more)
    assert reference.best_epoch == 1
    first = dayfly.train(
        small.job(data, epochs=1, scheduler=small.cosine),
        workers=2,
        run_dir=tmp_path / "first",
        **{name: more[name] for name in more if name != "mode"},
        **small.SETTINGS,
    )
    weights = (first.directory / "weights.safetensors").read_bytes()
    assert best_bits(reference.directory) == weights
    best = safetensors.torch.load(weights)
    state = reference.model().state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in best.items())
    faults = [
        Fault(0, FIRST - 1, "epoch"),
        Fault(1, FIRST - 1, "decided"),
        Fault(0, FIRST, "checkpoint"),
        Fault(1, FIRST, "written"),
    ]
    run = kept_by(data, tmp_path / "run", faults=faults, **more)
    assert run.result.restarts == len(faults)
    assert best_bits(run.directory) == weights
    assert (small.bits(run), run.best_epoch) == (small.bits(reference), 1)


#: After a commit, a kill comes just before the next thing: test_resume.py has one there, too.
_BESIDE = [pytest.param(place, marks=pytest.mark.slow) for place in ("commit", "committed")]


@pytest.mark.long
@pytest.mark.parametrize("place", ["answered", "keep", *_BESIDE])
def test_a_coordinator_that_dies_around_it_keeps_the_same_weights(
    place: str, data: Path, reference: dayfly.Run, tmp_path: Path
) -> None:
    settings = {"keep": "best", "monitor": "train_loss", "mode": "max"}
    fault = Fault(COORDINATOR, FIRST, place)
    killed(data, tmp_path / "run", [fault], **settings)
    result = resume(tmp_path / "run")
    assert (result["status"], result["best_epoch"]) == ("done", 1)
    assert best_bits(tmp_path / "run") == best_bits(reference.directory)
    assert small.bits(tmp_path / "run") == small.bits(reference)


@pytest.mark.long
def test_the_last_epoch_may_be_the_best_and_others_are_kept_by_name(
    data: Path, tmp_path: Path
) -> None:
    run = kept_by(data, tmp_path / "run", callbacks=[ModelCheckpoint(every_n_epochs=2)])
    assert run.best_epoch == small.EPOCHS
    assert best_bits(run.directory) == (run.directory / "weights.safetensors").read_bytes()
    assert [one.name for one in (run.directory / "kept").iterdir()] == ["epoch-2.safetensors"]


@pytest.mark.long
def test_patience_ends_a_run_and_holds_on_resume(data: Path, tmp_path: Path) -> None:
    run = dayfly.train(
        small.job(data, epochs=4),
        run_dir=tmp_path / "run",
        patience=1,
        monitor="train_loss",
        mode="max",
        **small.SETTINGS,
    )
    assert (run.stop_reason, run.result.epochs) == ("early-stopping", 2)
    with pytest.raises(RequestError, match=r"ended after 2 epochs .*, and what ended it"):
        dayfly.resume(run.directory, epochs=6)
    assert dayfly.resume(run.directory, progress=False).result.epochs == 2
    again = dayfly.resume(run.directory, patience=2, progress=False)
    assert (again.stop_reason, again.result.epochs) == ("early-stopping", 3)
