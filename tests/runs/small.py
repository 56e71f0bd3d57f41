"""A small job for tests of runs: everything that could differ after a restart is in it."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import dayfly
from dayfly.life.faults import Fault

SAMPLES, BATCH, EPOCHS = 200, 20, 3
#: Of the training tenths; the rest is split off for validation.
STEPS_AN_EPOCH = 9
STEPS = STEPS_AN_EPOCH * EPOCHS
#: With this log budget, 1 MiB, a checkpoint is made every few steps.
SETTINGS: dict[str, Any] = {"log_budget_mib": 1, "progress": False}


def model() -> nn.Module:
    """BatchNorm's statistics move, dropout draws random numbers."""
    return nn.Sequential(
        nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 5)
    )


def plain_model() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 5))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def cosine(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + 0.1 * torch.randn_like(x)


class Slowly:
    """A transform by which steps last: a function's first one, and those that follow.

    Who has seen a long step ends in order when two such, and half a second, are left of its life,
    or half of its life is. With short steps behind a long one, so much of that is to spare for a
    machine that holds a function up.

    samples: of a function in a step. transform: what is done to each besides. until: a file; once
    it is there, nothing lasts any more.
    """

    def __init__(
        self,
        first_s: float,
        then_s: float,
        *,
        samples: int = BATCH // 2,
        transform: Callable[[torch.Tensor], torch.Tensor] = noisy,
        until: Path | None = None,
    ) -> None:
        self.first_s, self.then_s, self.samples = first_s, then_s, samples
        self.transform, self.until = transform, until
        self.seen = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if "DAYFLY_SESSION" in os.environ and not (self.until and self.until.exists()):
            self.seen += 1  # in a function, which began with none
            step_s = self.first_s if self.seen <= self.samples else self.then_s
            time.sleep(step_s / self.samples)
        return self.transform(x)


def macro_f1(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """No mean over samples: 1 of a class that is always and only found, their mean."""
    predicted, classes = outputs.argmax(1), range(outputs.shape[1])
    found = [int(((predicted == c) & (targets == c)).sum()) for c in classes]
    sizes = [int((predicted == c).sum() + (targets == c).sum()) for c in classes]
    return sum(2 * f / s if s else 0.0 for f, s in zip(found, sizes, strict=True)) / len(found)


def write_data(directory: Path) -> Path:
    """Points of five noisy clusters, as one .npz; returns its path."""
    random = np.random.default_rng(7)
    y = random.integers(0, 5, SAMPLES)
    x = (random.normal(size=(5, 12))[y] + 0.7 * random.normal(size=(SAMPLES, 12))).astype("float32")
    path = directory / "clusters.npz"
    np.savez(path, x_train=x, y_train=y)
    return path


def job(data: Path, **changes: Any) -> dayfly.Job:
    given: dict[str, Any] = {
        "model": model,
        "data": data,
        "loss": nn.functional.cross_entropy,
        "optimizer": adam,
        "scheduler": cosine,
        "transform": noisy,
        "clip_norm": 1.0,
        "metrics": {"macro_f1": macro_f1},
        "batch_size": BATCH,
        "epochs": EPOCHS,
        **changes,
    }
    if "batch_per_worker" in changes and "batch_size" not in changes:
        del given["batch_size"]
    return dayfly.Job(**given)


def slow_job(data: Path, step_s: float = 0.1) -> dayfly.Job:
    """Steps last until a file `fast` is beside the data."""
    return job(data, transform=Slowly(step_s, step_s, until=data.with_name("fast")))


def lasting_job(data: Path) -> dayfly.Job:
    """As `slow_job`, with a minute for what others do meanwhile."""
    return slow_job(data, 2.0)


def bits(run: dayfly.Run | Path) -> tuple[bytes, str]:
    """What two equal runs share: the final weights, byte for byte, and the history."""
    directory = run if isinstance(run, Path) else run.directory
    history = json.loads((directory / "history.json").read_text())["epochs"]
    return (directory / "weights.safetensors").read_bytes(), json.dumps(history)


def check_deaths_and_more_epochs(
    made: Callable[..., dayfly.Job], directory: Path, second: int
) -> None:
    """Asserts equal bits: two epochs with a death in step 2 and in step `second`, then a third.

    made: takes `epochs=`, which are two otherwise. Run b is left in the directory.
    """
    given: dict[str, Any] = {"workers": 2, "progress": False}
    whole = dayfly.train(made(epochs=3), run_dir=directory / "a", **given)
    faults = [Fault(1, 2, IN_EVERY_STEP[0]), Fault(0, second, IN_EVERY_STEP[3])]
    run = dayfly.train(made(), run_dir=directory / "b", faults=faults, **given)
    assert run.result.restarts == 2
    on = dayfly.resume(directory / "b", epochs=3, progress=False)
    assert bits(on) == bits(whole)


def history(run: dayfly.Run) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((run.directory / "history.json").read_text())
    return whole


def events(directory: Path, name: str) -> list[dict[str, Any]]:
    lines = (directory / "events" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def recomputed(directory: Path, workers: int) -> set[tuple[int, int]]:
    """(worker, step) of gradients that were reported more than once."""
    computed = Counter(
        (rank, record["step"])
        for rank in range(workers)
        for record in events(directory, f"worker-{rank}")
        if record["kind"] == "step" and record["computed"]
    )
    return {place for place, times in computed.items() if times > 1}


def died_in(faults: list[Fault]) -> set[tuple[int, int]]:
    """(worker, step) in which faults may hit: a checkpoint is written beside later steps."""
    beside = range(STEPS_AN_EPOCH)
    return {
        (fault.worker, fault.step + later)
        for fault in faults
        for later in (beside if fault.point in ("written", "told") else range(1))
    }


#: Places of a step that every worker passes.
IN_EVERY_STEP = (
    "compute",
    "computed",
    "grad-put-part",
    "grad-fetch",
    "grad-reduce",
    "grad-put-sum",
    "grad-drop",
    "grad-get",
    "reduced",
    "applied",
)
#: As well, in the steps of local SGD; those of the wire and after it, once a round.
IN_LOCAL_STEPS = ("stepped", "kept")
#: As well, in the last step of an epoch.
AT_EPOCH_ENDS = (
    "evaluated",
    "gathered",
    "val-put-part",
    "val-fetch",
    "val-reduce",
    "val-put-sum",
    "val-get",
    "epoch",
)
#: As well, when the checkpoint before a step is written.
AT_CHECKPOINTS = ("checkpoint", "written", "told")


def random_faults(workers: int, deaths: int, seed: int, checkpoint_steps: list[int]) -> list[Fault]:
    """Different places, each killed once; every fifth death takes the zygote with it."""
    random = np.random.default_rng(seed)
    places = [(step, place) for step in range(STEPS) for place in IN_EVERY_STEP]
    ends = range(STEPS_AN_EPOCH - 1, STEPS, STEPS_AN_EPOCH)
    places += [(step, place) for step in ends for place in AT_EPOCH_ENDS] * 3
    places += [(step, place) for step in checkpoint_steps for place in AT_CHECKPOINTS] * 3
    chosen = random.permutation(sorted(set(places)))[: deaths * 3]
    faults: dict[tuple[int, int, str], Fault] = {}
    for step, place in chosen:
        worker = int(random.integers(workers))
        what = "zygote" if len(faults) % 5 == 4 else "self"
        faults[worker, int(step), str(place)] = Fault(worker, int(step), str(place), what)
    return list(faults.values())[:deaths]


def change_record(directory: Path, **changes: Any) -> dict[str, Any]:
    """The run's record with these fields changed, as a version wrote it that knew no digest."""
    file = directory / "run.json"
    record: dict[str, Any] = json.loads(file.read_text()) | changes
    record.pop("whole", None)
    file.write_text(json.dumps(record))
    return record
