"""`dayfly bench compression`: how much worse a model gets, and how much less travels.

    for each model, for each seed:
        none  bf16  int8  powersgd  topk:0.01  topk:0.01:exact  significance:0.7

All of a seed train the same job: the same first weights, batches, order, split of the data and
number of steps. So a seed's difference to `none` is of compression alone; what seeds do to the
result of `none` is beside it, to be compared with.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from rich import box
from rich.table import Table
from torch import nn

import dayfly
from benchmarks.parts.machine import machine
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.sparse_rows import write_sparse
from dayfly.cli.demo import demo_job
from dayfly.data.libsvm_text import LIBSVMFile
from dayfly.job import Job
from dayfly.life.sessions import Session
from dayfly.models import wide_mlp
from dayfly.runs.display import StandardError
from dayfly.specs.compression import compression
from dayfly.training.replica import build_model

METHODS = (
    *("none", "bf16", "int8", "powersgd"),
    *("topk:0.01", "topk:0.01:exact", "significance:0.7"),
)
_SEEDS, _QUICK_SEEDS = 5, 2
_QUICK_EPOCHS = 3
_MEASURES = ("val_accuracy", "val_loss", "train_loss")


def _flat_mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), *wide_mlp(width=512, features=64))


def _momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _wide_job() -> Job:
    """A smaller wide_mlp, on the demo's data: 564 thousand parameters."""
    return replace(demo_job(), model=_flat_mlp, optimizer=_momentum)


_FEATURES, _SAMPLES, _BATCH = 20_000, 6_000, 128


def _linear() -> nn.Module:
    return nn.Linear(_FEATURES, 2)


def _plain_sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=2.0)


def _sparse_job(scratch: Path) -> Job:
    """Logistic regression of two classes over a LIBSVM file: 40 thousand parameters."""
    path = scratch / "sparse.libsvm"
    if not path.exists():
        write_sparse(path, _FEATURES, _SAMPLES)
    return Job(
        model=_linear,
        data=LIBSVMFile(path, features=_FEATURES),
        loss=nn.functional.cross_entropy,
        optimizer=_plain_sgd,
        batch_size=_BATCH,
        epochs=20,
    )


#: Makes a model's job; files of its data go into a directory.
JOBS: dict[str, Callable[[Path], Job]] = {
    "digits-cnn": lambda scratch: demo_job(),
    "wide-mlp": lambda scratch: _wide_job(),
    "sparse-lr": _sparse_job,
}


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measure; returns the result, see `benchmarks/README.md`. Raises RunFailed if a run fails."""
    asked = _arguments(args)
    seeds = asked.seeds or (_QUICK_SEEDS if asked.quick else _SEEDS)
    for method in asked.methods:
        compression(method)
    on_what = machine()
    rows = []
    with Session.open() as session:
        scratch = scratch_of(session)
        for name in asked.models:
            job = JOBS[name](scratch)
            if asked.quick:
                job = replace(job, epochs=_QUICK_EPOCHS)
            found: dict[str, list[dict[str, float]]] = {method: [] for method in asked.methods}
            for seed in range(seeds):
                for method in asked.methods:
                    one = _train(job, asked.workers, method, seed, scratch / "run")
                    found[method].append(one)
                    StandardError().print(
                        f"{name}, seed {seed + 1} of {seeds}, {method}: accuracy "
                        f"{one['val_accuracy']:.4f}, loss {one['val_loss']:.4f}",
                        highlight=False,
                    )
            parameters = sum(p.numel() for p in build_model(job).parameters())
            rows += [
                {"model": name, "parameters": parameters, **_row(method, found)} for method in found
            ]
    return {
        "machine": on_what,
        "workers": asked.workers,
        "seeds": seeds,
        "quick": asked.quick,
        "rows": rows,
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    on_what = result["machine"]
    shown = Table(
        title=f"{result['workers']} workers, {result['seeds']} seeds: mean±deviation\ntorch "
        f"{on_what['torch']} on {on_what['cores']} cores of {on_what['cpu']}, load before: "
        f"{on_what['load']}",
        title_justify="left",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        caption="acc., loss: of validation; less, more: than the first with the same seed\n"
        "KB: what a worker uploads in a step; ratio: the first's over it\n"
        "ms: a step over files in memory, where nothing is gained by sending less",
        caption_justify="left",
    )
    shown.add_column("", overflow="fold")  # a long name takes two lines before a number is cut
    for title in ("acc. %", "less", "loss", "more", "KB", "ratio", "ms"):
        shown.add_column(title, justify="right", no_wrap=True)
    for name in dict.fromkeys(row["model"] for row in result["rows"]):
        shown.add_row(name)
        for row in result["rows"]:
            if row["model"] == name:
                shown.add_row(
                    f" {row['compress']}",
                    _spread([100 * one for one in row["val_accuracy"]], 1),
                    _spread([-100 * one for one in row["val_accuracy_more"]], 1),
                    _spread(row["val_loss"], 3),
                    _spread(row["val_loss_more"], 3),
                    f"{row['step_kb_up']:.1f}",
                    f"{row['ratio']:.1f}",
                    f"{row['step_ms']:.1f}",
                )
    return shown


def _row(method: str, found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """All seeds of a method beside those of the first one."""
    ours, whole = found[method], next(iter(found.values()))
    row: dict[str, Any] = {"compress": method}
    for name in _MEASURES:
        row[name] = [one[name] for one in ours]
        row[f"{name}_more"] = [a[name] - b[name] for a, b in zip(ours, whole, strict=True)]
    for name in ("step_kb_up", "step_ms"):
        row[name] = fmean(one[name] for one in ours)
    row["ratio"] = fmean(one["step_kb_up"] for one in whole) / row["step_kb_up"]
    return row


def _train(job: Job, workers: int, method: str, seed: int, run_dir: Path) -> dict[str, float]:
    """One run; it is removed."""
    done = dayfly.train(
        job, workers=workers, compress=method, seed=seed, run_dir=run_dir, progress=False
    )
    result, last = done.result, done.history[-1]
    shutil.rmtree(done.directory)
    return {
        **{name: float(last[name]) for name in _MEASURES},
        "step_kb_up": result.bytes_up / result.steps / workers / 1000,
        "step_ms": 1000 * (result.step_s or 0.0),
    }


def _spread(values: Sequence[float], digits: int) -> str:
    """Mean and deviation; without a minus before a zero."""
    deviation = stdev(values) if len(values) > 1 else 0.0
    return f"{fmean(values):z.{digits}f}±{deviation:.{digits}f}"


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("dayfly bench compression")
    parser.add_argument("--models", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument(
        "--methods",
        nargs="+",
        default=METHODS,
        metavar="METHOD",
        help="what --compress takes; the others are compared with the first (default: all)",
    )
    parser.add_argument("--workers", type=int, default=4, metavar="N")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"default: {_SEEDS}")
    parser.add_argument(
        "--quick", action="store_true", help=f"{_QUICK_EPOCHS} epochs, {_QUICK_SEEDS} seeds"
    )
    return parser.parse_args(args)
