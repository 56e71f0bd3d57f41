"""Logistic regression and a linear SVM over sparse rows: MLLess's filter beside none.

`significance:0` sends all that is not 0, exactly: what a sparse model saves without being filtered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
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
FEATURES, _SAMPLES, _BATCH, _EPOCHS = 20_000, 8_000, 256, 12
#: A tenth of the samples is split off for validation.
_STEPS_AN_EPOCH = math.ceil(_SAMPLES * 9 // 10 / _BATCH)
#: Loss and learning rate at the beginning; it falls to 0 in half a cosine.
_KINDS = {
    "lr": (logistic_regression, logistic_loss, 24.0),
    "svm": (linear_svm, hinge_loss, 24.0),
}
#: V of the filter, of `CHOICES`, by `choose` with other seeds than those that are reported: the one
#: with the fewest bytes of those that come to the target.
CHOSEN = {"lr": 0.1, "svm": 0.1}
CHOICES = (0.03, 0.1, 0.3)
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


def measure(kind: str, runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a method. kind: `lr` or `svm`."""
    return _rows(kind, runs, seeds, (EXACT, _filter(CHOSEN[kind])))


def choose(kind: str, runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """The same of every V, to choose by."""
    return _rows(kind, runs, seeds, tuple(map(_filter, CHOICES)))


def table(kind: str, rows: Sequence[Json], workers: int) -> Table:
    """For a person."""
    heading = (
        f"{kind} over sparse rows of {FEATURES} features, {workers} workers, {_EPOCHS} epochs of "
        f"{_STEPS_AN_EPOCH} steps;\nmedians and extremes of {rows[0]['seeds']} seeds"
    )
    return framed(heading, *tables(rows, PLAIN, LINKS))


def _filter(threshold: float) -> str:
    return f"significance:{threshold:g}"


def _rows(kind: str, runs: Runs, seeds: Sequence[int], filters: Sequence[str]) -> list[Json]:
    one = task(kind)
    plain = Method(name=PLAIN, task=one)
    others = [Method(name=name, task=one, settings={"compress": name}) for name in filters]
    compute_s = one.pass_s(runs.scratch, _BATCH // runs.workers)
    found = compare(runs, plain, [plain, *others], seeds, FEATURES + 1, compute_s, LINKS)
    return [{"compute_ms": 1e3 * compute_s, **row} for row in found]
