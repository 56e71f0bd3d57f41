"""Logistic regression and a linear SVM over sparse rows: MLLess's filter beside none.

`significance:0` sends all that is not 0, exactly: what a sparse model saves without being filtered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import nn

from benchmarks.parts.protocols.beside import Link, Method, compare, tables
from benchmarks.parts.protocols.trained import Runs, Task
from benchmarks.parts.sparse_rows import write_sparse
from benchmarks.parts.spread import framed
from dayfly.data.libsvm_text import LIBSVMFile
from dayfly.job import Job
from dayfly.models import (
    hinge_loss,
    linear_svm,
    logistic_loss,
    logistic_regression,
    sign_accuracy,
)

Json = dict[str, Any]
FEATURES, _SAMPLES, _BATCH, _EPOCHS = 20_000, 8_000, 256, 20
#: A tenth of the samples is split off for validation.
_STEPS_AN_EPOCH = math.ceil(_SAMPLES * 9 // 10 / _BATCH)
#: Loss and learning rate at the beginning; it falls to 0 in half a cosine.
_KINDS = {
    "lr": (logistic_regression, logistic_loss, 32.0),
    "svm": (linear_svm, hinge_loss, 30.0),
}
#: V of the filter, of `CHOICES`, by the seeds from `CHOOSING` on: the one with the fewest bytes to
#: the target of those that reach it with every seed.
CHOSEN = {"lr": 0.7, "svm": 0.7}
CHOICES = (0.1, 0.3, 0.7, 1.5, 3.0)
EXACT = "significance:0"
PLAIN = "none"
#: Redis in the functions' network, and slower ways to it.
LINKS = tuple(Link(mb_per_s=rate, latency_ms=1.0) for rate in (70.0, 10.0, 2.0))


def _sgd(rate: float, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate)


def _cosine(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _EPOCHS)


def _job(kind: str, scratch: Path) -> Job:
    path = scratch / "sparse.libsvm"
    if not path.exists():
        write_sparse(path, FEATURES, _SAMPLES)
    model, loss, rate = _KINDS[kind]
    return Job(
        model=partial(model, FEATURES),
        data=LIBSVMFile(path, features=FEATURES),
        loss=loss,
        optimizer=partial(_sgd, rate),
        scheduler=_cosine,
        batch_size=_BATCH,
        epochs=_EPOCHS,
        metrics={"accuracy": sign_accuracy},
    )


def _batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(count, FEATURES), torch.randint(2, (count,))


def task(kind: str) -> Task:
    """Logistic regression (`lr`) or a linear SVM (`svm`)."""
    facts = {
        "features": FEATURES,
        "samples": _SAMPLES,
        "batch": _BATCH,
        "epochs": _EPOCHS,
        "rate": _KINDS[kind][2],
    }
    return Task(name=kind, facts=facts, make=partial(_job, kind), batch=_batch)


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a model and method."""
    filters = {kind: (EXACT, _filter(v)) for kind, v in CHOSEN.items()}
    return _rows(runs, seeds, filters)


def choose(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """The same of every V, to choose by."""
    filters = {kind: tuple(map(_filter, CHOICES)) for kind in _KINDS}
    return _rows(runs, seeds, filters)


def table(rows: Sequence[Json], workers: int) -> Table:
    """For a person."""
    heading = (
        f"sparse rows of {FEATURES} features, {workers} workers, {_EPOCHS} epochs of "
        f"{_STEPS_AN_EPOCH} steps; medians and extremes of {rows[0]['seeds']} seeds"
    )
    parts: list[Table | str] = []
    for kind, of_kind in groupby(rows, lambda row: row["model"]):
        parts += [f"\n{kind}", *tables(list(of_kind), PLAIN, LINKS)]
    return framed(heading, *parts)


def _filter(threshold: float) -> str:
    return f"significance:{threshold:g}"


def _rows(runs: Runs, seeds: Sequence[int], filters: Mapping[str, Sequence[str]]) -> list[Json]:
    rows = []
    for kind, some in filters.items():
        one = task(kind)
        plain = Method(name=PLAIN, task=one)
        others = [Method(name=name, task=one, settings={"compress": name}) for name in some]
        compute_s = one.pass_s(runs.scratch, _BATCH // runs.workers)
        elements = FEATURES + 1
        methods = [plain, *others]
        found = compare(runs, plain, methods, seeds, elements, compute_s, LINKS)
        rows += [{"model": kind, "compute_ms": 1e3 * compute_s, **row} for row in found]
    return rows
