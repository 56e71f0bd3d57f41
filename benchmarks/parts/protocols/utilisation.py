"""Computing's share of the time over a slow link, with streaming and without: real and virtual.

Real runs at the link's rate and latency stand beside virtual time. Computing is imitated: a layer
waits for as long as a step is to compute. So the share does not depend on how fast the machine's
cores are; messages, sums, codecs and the outer optimizer are real, and wait for each other. Beside
it is an epoch of the small GPT, which computes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from benchmarks.parts.protocols import gpt
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

_STREAMED = {**gpt.DILOCO, "fragments": 8, "overlap": 4}
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


@dataclass(frozen=True, kw_only=True)
class _Case:
    """What is measured.

    Args:
        method: over the link.
        length: elements of what it sums.
        compute_s: of a worker, in a step.
    """

    method: Method
    length: int
    compute_s: float

    def step_s(self, runs: Runs, steps: int) -> float:
        """Returns seconds a step in virtual time, with messages as long as the codec makes them.

        Args:
            runs: of the workers.
            steps: of the run, which is one epoch.
        """
        codec = self.method.settings.get("compress")
        form = None if codec is None else CODECS[codec]().form(_BLOCKS)
        each = 4.0 if form is None else form[1][0] / _BLOCKS
        exchange = Exchange(length=self.length, contribution=each, total=each)
        rounds = steps // self.method.k
        return self.method.round_s(runs, exchange, rounds, self.compute_s, LINK) / self.method.k


def _imitated(workers: int, name: str, steps: int, **settings: Any) -> _Case:
    method = Method(name=name, task=task(workers, steps), settings=settings)
    return _Case(method=method, length=PARAMETERS, compute_s=STEP_S)


def _cases(runs: Runs) -> list[_Case]:
    """With as many steps as make some 20 seconds."""
    local = {"sync": "local-sgd", "k": _K}
    diloco, streamed = {**local, **gpt.DILOCO}, {**local, **_STREAMED}
    made = [
        _imitated(runs.workers, "bsp", 8),
        _imitated(runs.workers, "average k 10", 4 * _K, **local),
        _imitated(runs.workers, "nesterov k 10", 4 * _K, **diloco),
        _imitated(runs.workers, "nesterov k 10 F 8 T 4", 8 * _K, **streamed),
        _imitated(runs.workers, "the same int8", 8 * _K, **streamed, compress="int8"),
    ]
    for one in gpt.CHOSEN:
        if one.name == gpt.PLAIN or one.streaming is not None:
            name = f"gpt {one.name.removeprefix('nesterov ')}"
            method = replace(one, name=name, settings={**one.settings, "epochs": 1})
            compute_s = one.task.pass_s(runs.scratch, gpt.BATCH // runs.workers)
            made.append(_Case(method=method, length=gpt.parameters(), compute_s=compute_s))
    return made


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a method: its share in virtual time, and of a real run of each seed."""
    return [_row(runs, seeds, case) for case in _cases(runs)]


def choose(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """Fragments and overlaps."""
    tried = []
    for fragments in (4, 8):
        for overlap in (1, 2, 4):
            how = {**_STREAMED, "fragments": fragments, "overlap": overlap}
            name = f"nesterov k {_K} F {fragments} T {overlap}"
            tried.append(_imitated(runs.workers, name, 8 * _K, sync="local-sgd", k=_K, **how))
    return [_row(runs, seeds, case) for case in tried]


def _row(runs: Runs, seeds: Sequence[int], case: _Case) -> Json:
    capped = {
        "uplink_mb_per_s": LINK.mb_per_s,
        "downlink_mb_per_s": LINK.mb_per_s,
        "latency_ms": LINK.latency_ms,
    }
    came = [case.method.train(runs, seed, **capped) for seed in seeds]
    steps = came[0].steps
    shares = [
        computed / stepping
        for one in came
        for computed, stepping in zip(one.computed_s, one.stepping_s, strict=True)
    ]
    virtual_s = case.step_s(runs, steps)
    return {
        "method": case.method.name,
        "seeds": len(seeds),
        "steps": steps,
        "virtual_step_s": virtual_s,
        "virtual": case.compute_s / virtual_s,
        **spread("step_s", [max(one.stepping_s) / steps for one in came]),
        **spread("real", shares),
    }


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    step = columns(["method"], ["steps", "step", "virtual", "share", "", "virtual"])
    for row in rows:
        real = {f"real{end}": 100 * row[f"real{end}"] for end in ("", "_min", "_max")}
        cells = [str(row["steps"]), number(1e3 * row["step_s"], 0)]
        cells += [number(1e3 * row["virtual_step_s"], 0), *shown(real, "real", 1)]
        step.add_row(row["method"], *cells, number(100 * row["virtual"], 1))
    return framed(
        f"{4e-6 * PARAMETERS:.1f} MB of parameters, {workers} workers that compute for "
        f"{STEP_S:g} s a step, at {LINK.mb_per_s:g} MB/s and {LINK.latency_ms:g} ms a request; "
        "gpt: an epoch of the small one",
        step,
        "step: in ms; share: of computing, in %, in the time from a worker's first step to the end "
        f"of its last round, and least to most of all workers of {rows[0]['seeds']} runs",
    )
