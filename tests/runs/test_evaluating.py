"""`run.test` and `run.predict`: figures and outputs of one process, by functions, whatever dies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.life.faults import Fault
from dayfly.runs.recorder import Recorder
from dayfly.wire.stores import open_store
from tests.runs import small, staged

Undisturbed = Callable[[int], dayfly.Run]


@pytest.fixture(scope="module")
def x(data: Path) -> Any:
    with np.load(data) as arrays:
        return arrays["x_train"]


class Unlabelled(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, x: Any) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.x[index])


def own(run: dayfly.Run, x: Any) -> torch.Tensor:
    """What one process gives of the samples, in the blocks that validation has."""
    with torch.no_grad():
        blocks = [run.model()(torch.from_numpy(x[at : at + 16])) for at in range(0, len(x), 16)]
    return torch.cat(blocks)


@pytest.mark.long
@pytest.mark.quick
def test_a_test_of_the_jobs_data_is_the_last_validation(undisturbed: Undisturbed) -> None:
    run = undisturbed(2)
    last = run.history[-1]
    found = run.test(workers=3, progress=False)
    assert found == {
        "loss": last["val_loss"],
        "accuracy": last["val_accuracy"],
        "macro_f1": last["macro_f1"],
    }
    record = run.evaluations[-1]
    assert (record["kind"], record["samples"], record["workers"]) == ("test", 20, 3)
    assert record["values"] == found
    assert record["cost_usd"] > 0


@pytest.mark.long
def test_outputs_are_in_order_though_functions_die(undisturbed: Undisturbed, x: Any) -> None:
    run = undisturbed(2)
    faults = [Fault(0, 0, "evaluated"), Fault(1, 0, "gathered")]
    found = run.predict(x, faults=faults, progress=False)
    assert torch.equal(found, own(run, x))
    assert run.evaluations[-1]["restarts"] == 2


@pytest.mark.long
def test_samples_without_targets_come_from_a_dataset(undisturbed: Undisturbed, x: Any) -> None:
    run = undisturbed(2)
    found = run.predict(Unlabelled(x[:21]), workers=1, progress=False)
    assert torch.equal(found, own(run, x[:21]))


@pytest.mark.slow  # a product: cut models validate in test_pipeline_deaths, predict is above
def test_a_cut_model_is_tested_in_its_stages(data: Path, x: Any, tmp_path: Path) -> None:
    run = staged.train(data, tmp_path / "run", 2)
    last = run.history[-1]
    assert run.test(progress=False)["macro_f1"] == last["macro_f1"]
    root = (staged.STAGES - 1) * 2
    faults = [Fault(root, 0, "gathered-0"), Fault(1, 0, "eval-0-0")]
    assert torch.equal(run.predict(x, faults=faults, progress=False), own(run, x))


@pytest.mark.slow  # a product: where nothing is kept, all start again, as in test_rollback
def test_over_sockets_all_start_again(undisturbed: Undisturbed, x: Any) -> None:
    run = undisturbed(2)
    fault = Fault(1, 0, "evaluated")
    found = run.predict(x, channel="tcp://", faults=[fault], progress=False)
    assert torch.equal(found, own(run, x))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run, x: run.test(x), "targets are needed"),
        (lambda run, x: run.test((x, np.zeros(3, "int64"))), "has 200 rows"),
        (lambda run, x: run.predict(x[:, :3]), "cannot be multiplied"),
        (lambda run, x: run.predict([1, 2, 3]), "fails on one batch"),
        (lambda run, x: run.predict(3), "the data is a int"),
        (lambda run, x: run.predict("missing.npy"), "cannot be read"),
        (lambda run, x: run.predict(x * np.nan), "NaN or infinity in row 0"),
        (lambda run, x: run.test(compress="bf16"), "compress is for training"),
        (lambda run, x: run.test(worker=3), "do you mean workers"),
    ],
)
@pytest.mark.long
def test_what_does_not_fit_is_refused(
    undisturbed: Undisturbed, x: Any, call: Callable[[dayfly.Run, Any], Any], words: str
) -> None:
    with pytest.raises(dayfly.RequestError, match=words):
        call(undisturbed(2), x)


@pytest.mark.long
def test_a_run_in_a_store_is_evaluated_below_its_url_and_nothing_is_left(
    data: Path, x: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who has its URL alone; also if Ctrl-C ends it."""
    url = f"file://{tmp_path}/store"
    run = dayfly.train(small.job(data), store=url, run_dir=tmp_path / "run", **small.SETTINGS)
    shutil.rmtree(run.directory)
    monkeypatch.chdir(tmp_path)  # where the copy is made
    store = open_store(url)
    (folder,) = store.folders()
    loaded = dayfly.load(f"{url}/{folder}")
    before = {one.name for one in store.list()}
    fault = Fault(1, 0, "evaluated")
    found = loaded.predict(x[:30], workers=2, faults=[fault], progress=False)
    assert torch.equal(found, own(loaded, x[:30]))
    assert loaded.evaluations[-1]["restarts"] == 1
    assert {one.name for one in store.list()} == before
    with interrupted(monkeypatch) as seen, pytest.raises(KeyboardInterrupt):
        loaded.test(workers=2, progress=False)
    assert any("/evaluated/test-" in name for name in seen), "it was under way"
    assert {one.name for one in store.list()} == before
    assert len(loaded.evaluations) == 1


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Ctrl-C once functions run; gets the files that are in `store` then."""
    seen: set[str] = set()
    invoked = Recorder.invoked

    def then_interrupted(recorder: Recorder, *args: Any) -> None:
        invoked(recorder, *args)
        seen.update(str(one) for one in Path.cwd().glob("store/**/*"))
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Recorder, "invoked", then_interrupted)
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, heard)
        monkeypatch.setattr(Recorder, "invoked", invoked)


def two_headed(model: nn.Module, batch: Any) -> tuple[torch.Tensor, Any]:
    outputs = model(batch["features"])
    return nn.functional.cross_entropy(outputs, batch["label"]), outputs


def named(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
    outputs = model(batch["features"])
    return {"scores": outputs, "class": outputs.argmax(1)}


class Named(Unlabelled):
    def __getitem__(self, index: int) -> Any:
        return {"features": torch.from_numpy(self.x[index]), "label": index % 5}


class Nameless(Unlabelled):
    def __getitem__(self, index: int) -> Any:
        return {"features": torch.from_numpy(self.x[index])}


@pytest.fixture(scope="module")
def own_step(x: Any, tmp_path_factory: pytest.TempPathFactory) -> dayfly.Run:
    job = dayfly.Job(
        model=small.model,
        data=lambda: (Named(x), Named(x[:40])),
        step=two_headed,
        infer=named,
        optimizer=small.adam,
        batch_size=small.BATCH,
    )
    directory = tmp_path_factory.mktemp("own") / "run"
    return dayfly.train(job, run_dir=directory, progress=False)


@pytest.mark.long
def test_infer_gives_outputs_of_batches_without_targets(own_step: dayfly.Run, x: Any) -> None:
    found = own_step.predict(Nameless(x[:40]), progress=False)
    scores = own(own_step, x[:40])
    assert torch.equal(found["scores"], scores)
    assert torch.equal(found["class"], scores.argmax(1))
    assert own_step.test(progress=False)["loss"] == own_step.history[-1]["val_loss"]


@pytest.mark.long
def test_a_run_without_weights_says_so(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run = dayfly.Run(tmp_path, undisturbed(2).job, undisturbed(2).result)
    for call in (run.model, run.test, run.predict):
        with pytest.raises(dayfly.RequestError, match="has no weights yet"):
            call()
