"""Computing's share of the time over a slow link, with streaming and without: real and virtual.

Real runs at the link's rate and latency stand beside virtual time. Computing is imitated: a layer
waits for as long as a step is to compute. So the share does not depend on how fast the machine's
cores are; messages, sums, codecs and the outer optimizer are real, and wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from benchmarks.parts.protocols.beside import Link, Method
from benchmarks.parts.protocols.trained import Runs, Task
from benchmarks.parts.protocols.virtual import Exchange
from benchmarks.parts.spread import columns, framed, number, shown, spread
from dayfly.job import Job
from dayfly.wire.codec import CODECS

Json = dict[str, Any]
LINK = Link(mb_per_s=10.0, latency_ms=20.0)
#: What a step computes, in seconds; layers, inputs and outputs of each, and outputs of the last.
STEP_S = 0.25
_LAYERS, _WIDTH, _CLASSES = 16, 400, 10
#: Of all layers.
PARAMETERS = (_LAYERS - 1) * _WIDTH * (_WIDTH + 1) + (_WIDTH + 1) * _CLASSES
_SAMPLES_EACH, _K = 4, 10
_OUTER = {"outer": "nesterov", "outer_lr": 0.7, "outer_momentum": 0.9}
#: Elements of a codec's form in which a scale of a block is whole.
_BLOCKS = 1 << 12


class Computing(nn.Module):
    """Passes on what it gets; in training that takes `STEP_S`."""

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Returns what it gets."""
        if self.training:
            time.sleep(STEP_S)
        return x_BD


def _model() -> nn.Module:
    sizes = [_WIDTH] * _LAYERS + [_CLASSES]
    return nn.Sequential(Computing(), *(nn.Linear(*pair) for pair in pairwise(sizes)))


def _rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    x = torch.randn(count, _WIDTH, generator=made)
    return x, torch.randint(_CLASSES, (count,), generator=made)


def _data(samples: int, validated: int) -> tuple[Any, Any]:
    rows = torch.utils.data.TensorDataset
    return rows(*_rows(samples)), rows(*_rows(validated))


def _job(workers: int, steps: int, _: Path) -> Job:
    batch = _SAMPLES_EACH * workers
    return Job(
        model=_model,
        data=partial(_data, batch * steps, batch),
        loss=F.cross_entropy,
        optimizer=partial(torch.optim.SGD, lr=0.01),
        batch_size=batch,
        epochs=1,
    )


@cache
def task(workers: int, steps: int) -> Task:
    """An epoch of so many steps, which compute for `STEP_S` each."""
    facts = {"model": [_LAYERS, _WIDTH], "steps": steps, "step_s": STEP_S}
    return Task(name="utilisation", facts=facts, make=partial(_job, workers, steps), batch=_rows)


def _methods(workers: int) -> list[Method]:
    """With as many steps as make some 20 seconds."""

    def method(name: str, steps: int, **settings: Any) -> Method:
        return Method(name=name, task=task(workers, steps), settings=settings)

    local = {"sync": "local-sgd", "k": _K}
    diloco = {**local, **_OUTER}
    streamed = {**diloco, "fragments": 8, "overlap": 2}
    return [
        method("bsp", 8),
        method("average k 10", 4 * _K, **local),
        method("nesterov k 10", 4 * _K, **diloco),
        method("nesterov k 10 F 8 T 2", 8 * _K, **streamed),
        method("nesterov k 10 F 8 T 2 int8", 8 * _K, **streamed, compress="int8"),
    ]


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a method: its share in virtual time, and of a real run of each seed."""
    return [_row(runs, seeds, method) for method in _methods(runs.workers)]


def choose(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """The last but one of `measure` with other fragments and overlaps."""
    streamed = _methods(runs.workers)[-2]
    tried = [
        replace(
            streamed,
            name=f"nesterov k {_K} F {fragments} T {overlap}",
            settings={**streamed.settings, "fragments": fragments, "overlap": overlap},
        )
        for fragments in (4, 8)
        for overlap in (1, 2, 4)
    ]
    return [_row(runs, seeds, method) for method in tried]


def virtual(runs: Runs, method: Method) -> float:
    """Returns computing's share in virtual time, with messages as long as its codec makes them."""
    steps = method.task.facts["steps"]
    form = CODECS[method.settings["compress"]]().form(_BLOCKS) if method.rests else None
    each = 4.0 if form is None else form[1][0] / _BLOCKS
    exchange = Exchange(length=PARAMETERS, contribution=each, total=each)
    round_s = method.round_s(runs, exchange, steps // method.k, STEP_S, LINK)
    return method.k * STEP_S / round_s


def _row(runs: Runs, seeds: Sequence[int], method: Method) -> Json:
    capped = {
        "uplink_mb_per_s": LINK.mb_per_s,
        "downlink_mb_per_s": LINK.mb_per_s,
        "latency_ms": LINK.latency_ms,
    }
    came = [method.train(runs, seed, **capped) for seed in seeds]
    shares = [
        computed / stepping
        for one in came
        for computed, stepping in zip(one.computed_s, one.stepping_s, strict=True)
    ]
    return {
        "method": method.name,
        "seeds": len(seeds),
        "steps": came[0].steps,
        "virtual": virtual(runs, method),
        **spread("real", shares),
        "steps_s": [max(one.stepping_s) / one.steps for one in came],
    }


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    found = columns(["method"], ["steps", "s a step", "virtual, %", "real, %", "least to most"])
    for row in rows:
        real = {f"real{end}": 100 * row[f"real{end}"] for end in ("", "_min", "_max")}
        step_s = number(min(row["steps_s"]), 2)
        cells = [row["method"], str(row["steps"]), step_s, number(100 * row["virtual"], 1)]
        found.add_row(*cells, *shown(real, "real", 1))
    return framed(
        f"{4e-6 * PARAMETERS:.1f} MB of parameters, {workers} workers that compute for "
        f"{STEP_S:g} s a step, at {LINK.mb_per_s:g} MB/s and {LINK.latency_ms:g} ms a request",
        found,
        "computing's share of the time from the first step to the end of the last round, of the "
        f"workers of {rows[0]['seeds']} runs",
    )
