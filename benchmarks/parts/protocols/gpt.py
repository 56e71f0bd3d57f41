"""A small GPT over a slow link: local SGD, outer optimizers and their compression beside bsp.

It learns letters of Python's standard library, of so little text that bsp comes to a plateau: its
validation loss hardly falls in the last quarter of its epochs, and the table says by how much. That
loss is of equal parts of all modules that are held out, so that it differs little between seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from examples.charlm import ALPHABET, beginning, encoded, standard_library
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from benchmarks.parts.protocols.beside import Link, Method, compare, tables
from benchmarks.parts.protocols.trained import Runs, Task
from benchmarks.parts.spread import framed
from dayfly.job import Job
from dayfly.models import gpt, parameters_of

Json = dict[str, Any]
_WINDOW, _WIDTH, _LAYERS, _HEADS, _DROPOUT = 24, 64, 1, 4, 0.2
BATCH, _STEPS_AN_EPOCH, _EPOCHS, _WARM_UP_STEPS = 96, 60, 15, 50
_TRAIN_CHARACTERS, _VALIDATION_CHARACTERS = 24_000, 24_000
PLAIN = "bsp"
LINKS = (Link(mb_per_s=70.0, latency_ms=20.0), Link(mb_per_s=10.0, latency_ms=20.0))
#: DiLoCo's outer optimizer, the same with less momentum, as there are few rounds, and SparseLoCo's.
DILOCO = {"outer": "nesterov", "outer_lr": 0.7, "outer_momentum": 0.9}
_NESTEROV = {**DILOCO, "outer_momentum": 0.5}
_SPARSELOCO = {"outer": "momentum", "outer_lr": 1.0, "outer_momentum": 0.01}


class Letters(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows x (T,) of a text, and y (T,): the letter that follows each of x's.

    Args:
        text: (n,) uint8.
        windows: so many, each from anywhere, others in each epoch; None: one after another.
    """

    def __init__(self, text: torch.Tensor, windows: int | None) -> None:
        self._text, self._windows = text.long(), windows

    def __len__(self) -> int:
        return self._windows or (len(self._text) - 1) // _WINDOW

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = index * _WINDOW
        if self._windows is not None:
            at = int(torch.randint(len(self._text) - _WINDOW, ()))
        window = self._text[at : at + _WINDOW + 1]
        return window[:-1], window[1:]


def _middles(files: Sequence[Path], characters: int) -> torch.Tensor:
    """Equal parts of all files, each from its middle, encoded (characters,)."""
    each = -(-characters // len(files))
    texts = [encoded(file.read_bytes()) for file in files]
    parts = [text[max(0, (len(text) - each) // 2) :][:each] for text in texts]
    return torch.cat(parts)[:characters]


def _data() -> tuple[Letters, Letters]:
    train, validation = standard_library()
    return (
        Letters(beginning(train, _TRAIN_CHARACTERS), _STEPS_AN_EPOCH * BATCH),
        Letters(_middles(validation, _VALIDATION_CHARACTERS), None),
    )


def _adamw(rate: float, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), weight_decay=0.1)


def _share(step: int) -> float:
    """Of the rate: it rises evenly, and falls to 0 in half a cosine."""
    if step < _WARM_UP_STEPS:
        return (step + 1) / _WARM_UP_STEPS
    done = (step - _WARM_UP_STEPS) / (_EPOCHS * _STEPS_AN_EPOCH - _WARM_UP_STEPS)
    return 0.5 + 0.5 * math.cos(math.pi * min(done, 1.0))


def _cosine(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, _share)


def _model() -> nn.Module:
    return gpt(
        vocabulary=len(ALPHABET),
        window=_WINDOW,
        layers=_LAYERS,
        width=_WIDTH,
        heads=_HEADS,
        dropout=_DROPOUT,
        tied=True,
    )


def parameters() -> int:
    """Returns how many it has."""
    return parameters_of(_model())


def _job(rate: float, scratch: Path) -> Job:
    return Job(
        model=_model,
        data=_data,
        loss=F.cross_entropy,
        optimizer=partial(_adamw, rate),
        scheduler=_cosine,
        scheduler_every="step",
        clip_norm=1.0,
        batch_size=BATCH,
        epochs=_EPOCHS,
    )


def _batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randint(len(ALPHABET), (count, _WINDOW + 1))
    return x[:, :-1], x[:, 1:]


@cache
def task(rate: float) -> Task:
    """The GPT with an inner learning rate."""
    facts = {
        "model": [_WINDOW, _WIDTH, _LAYERS, _HEADS, _DROPOUT],
        "characters": [_TRAIN_CHARACTERS, _VALIDATION_CHARACTERS],
        "steps": [BATCH, _STEPS_AN_EPOCH, _EPOCHS],
        "rate": rate,
    }
    return Task(name="gpt", facts=facts, make=partial(_job, rate), batch=_batch)


def _method(name: str, rate: float, **settings: Any) -> Method:
    return Method(name=name, task=task(rate), settings=settings)


def _local(name: str, rate: float, k: int, **settings: Any) -> Method:
    return _method(name, rate, sync="local-sgd", k=k, **settings)


#: Chosen by `choose`, with other seeds than those that are reported. F: fragments; T: overlap.
_PLAIN_RATE, _RATE = 3e-3, 5e-3
CHOSEN = (
    _method(PLAIN, _PLAIN_RATE),
    _local("average k 15", _RATE, 15),
    _local("nesterov k 15", _RATE, 15, **_NESTEROV),
    _local("nesterov k 15 F 2 T 10", _RATE, 15, **_NESTEROV, fragments=2, overlap=10),
    _local("nesterov k 15 int4", _RATE, 15, **_NESTEROV, compress="int4"),
    _local("sparseloco k 15 topk:0.05", _RATE, 15, **_SPARSELOCO, compress="topk:0.05"),
)


def _choices() -> list[Method]:
    """What can be tried: bsp's learning rate, then ks, outer settings and the others' rates."""
    made = [_method(f"bsp rate {rate:g}", rate) for rate in (2e-3, 3e-3, 5e-3, 8e-3)]
    for k in (15, 30):
        made.append(_local(f"average k {k}", _RATE, k))
        for momentum in (0.5, 0.9):
            how: Json = {**DILOCO, "outer_momentum": momentum}
            made.append(_local(f"nesterov {momentum:g} k {k}", _RATE, k, **how))
            how["compress"] = "int4"
            made.append(_local(f"nesterov {momentum:g} int4 k {k}", _RATE, k, **how))
    for k, rate in ((10, _RATE), (15, _RATE), (20, _RATE), (15, 3e-3), (15, 8e-3)):
        how = {**_SPARSELOCO, "compress": "topk:0.05"}
        made.append(_local(f"sparseloco topk:0.05 k {k} rate {rate:g}", rate, k, **how))
    for overlap in (5, 10, 14):
        how = {**_NESTEROV, "fragments": 2, "overlap": overlap}
        made.append(_local(f"nesterov k 15 F 2 T {overlap}", _RATE, 15, **how))
    return made


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """bsp, and what was chosen beside it."""
    return _rows(runs, seeds, CHOSEN[0], CHOSEN[1:])


def choose(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """What can be chosen, beside bsp."""
    return _rows(runs, seeds, CHOSEN[0], _choices())


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    heading = (
        f"GPT of {rows[0]['parameters']} parameters, {workers} workers, {_EPOCHS} epochs of "
        f"{_STEPS_AN_EPOCH} steps of {BATCH} windows; medians and extremes of "
        f"{rows[0]['seeds']} seeds"
    )
    return framed(heading, *tables(list(map(dict, rows)), PLAIN, LINKS))


def _rows(runs: Runs, seeds: Sequence[int], plain: Method, others: Sequence[Method]) -> list[Json]:
    compute_s = plain.task.pass_s(runs.scratch, BATCH // runs.workers)
    elements = parameters()
    found = compare(runs, plain, [plain, *others], seeds, elements, compute_s, LINKS)
    return [{"parameters": elements, "compute_ms": 1e3 * compute_s, **row} for row in found]
