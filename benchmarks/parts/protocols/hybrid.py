"""FasDL's hybrid asynchronous protocol beside K-REDUCE and LambdaML's sums (figures 11 and 12).

Loss by samples is of real runs of the digits' CNN; a step's seconds are in virtual time, at the
rates of the links below. All have the same functions, so a run's dollars go with its seconds;
requests to the store are beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import nn

from benchmarks.parts.protocols.beside import Link, Method
from benchmarks.parts.protocols.trained import Runs, Task
from benchmarks.parts.protocols.virtual import Exchange, step_s
from benchmarks.parts.spread import columns, framed, number, shown, spread
from dayfly.cli.demo import demo_job
from dayfly.job import Job
from dayfly.models import digits_cnn, parameters_of

Json = dict[str, Any]
#: Validation loss up to which time is counted.
TARGET = 0.1
#: FasDL's S3 (section V), and a slower way.
LINKS = (Link(mb_per_s=70.0, latency_ms=40.0), Link(mb_per_s=2.0, latency_ms=40.0))
_BATCH = 64


def digits(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images (count, 1, 8, 8) and labels (count,), of noise, to time passes with.

    Args:
        count: of samples.
    """
    return torch.rand(count, 1, 8, 8), torch.randint(10, (count,))


def sgd(
    rate: float, parameters: Iterable[nn.Parameter], momentum: float = 0.9
) -> torch.optim.Optimizer:
    """Returns SGD with momentum.

    Args:
        rate: learning rate.
        parameters: of the model.
        momentum: 0: none.
    """
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def _job(rate: float, _: Path) -> Job:
    return replace(demo_job(), optimizer=partial(sgd, rate))


@cache
def task(rate: float) -> Task:
    """The demo's job with a learning rate."""
    facts = {"batch": _BATCH, "rate": rate}
    return Task(name="digits", facts=facts, make=partial(_job, rate), batch=digits)


#: Learning rates by protocol, of `_RATES`: by `choose`, with other seeds than are reported.
_RATE = {"bsp": 0.1, "hap": 0.03}
_RATES = (0.1, 0.05, 0.03)


def _method(how: str, k: int, rate: float, name: str) -> Method:
    if not k:
        return Method(name=name, task=task(rate), settings={"collective": how})
    sync = "hap" if how == "hap" else "bsp"
    settings = {"collective": "k-reduce", "aggregators": k, "sync": sync}
    return Method(name=name, task=task(rate), settings=settings)


def _methods(workers: int) -> list[Method]:
    """LambdaML's two sums, k-reduce with half of the workers, and the hybrid protocol."""
    made = [_method("scatter-reduce", 0, _RATE["bsp"], "scatter-reduce")]
    for how, rate in (("k-reduce", _RATE["bsp"]), ("hap", _RATE["hap"])):
        several = dict.fromkeys((1, workers // 2))
        made += [_method(how, k, rate, f"{how} K {k}") for k in several]
    return made


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a way to sum."""
    return _rows(runs, seeds, _methods(runs.workers))


def choose(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """Learning rates of scatter-reduce, which has the curve of k-reduce, and of hap."""
    hows = (("scatter-reduce", 0), ("hap", 1))
    tried = [_method(how, k, rate, f"{how} rate {rate:g}") for how, k in hows for rate in _RATES]
    return _rows(runs, seeds, tried)


def _rows(runs: Runs, seeds: Sequence[int], methods: Sequence[Method]) -> list[Json]:
    n = runs.workers
    compute_s = methods[0].task.pass_s(runs.scratch, _BATCH // n)
    exchange, rows = Exchange(length=parameters_of(digits_cnn())), []
    plain: list[Json] = []
    for method in methods:
        steps_s = [
            step_s(
                [exchange],
                [compute_s] * n,
                bytes_per_s=1e6 * link.mb_per_s,
                latency_s=link.latency_ms / 1e3,
                aggregators=method.settings.get("aggregators"),
                lag=method.settings.get("sync") == "hap",
            )
            for link in LINKS
        ]
        of_seeds: list[Json] = []
        for at, seed in enumerate(seeds):
            came = method.train(runs, seed)
            epoch = came.reached(TARGET)
            one: Json = {"best": came.best, "epoch": epoch, "requests": came.requests / came.steps}
            one["accuracy"] = came.accuracies[-1]
            if epoch is not None:
                steps = came.steps * epoch / len(came.losses)
                for number_, seconds in enumerate(steps_s):
                    one[f"seconds_{number_}"] = took = steps * seconds
                    base = (plain[at] if plain else one).get(f"seconds_{number_}")
                    one[f"sooner_{number_}"] = None if base is None else base / took
            of_seeds.append(one)
        plain = plain or of_seeds
        row: Json = {"method": method.name, "seeds": len(seeds), "steps_s": steps_s}
        row |= {"reached": sum(one["epoch"] is not None for one in of_seeds), "of_seeds": of_seeds}
        for name in of_seeds[0]:
            if all(one.get(name) is not None for one in of_seeds):
                row |= spread(name, [one[name] for one in of_seeds])
        rows.append({"compute_ms": 1e3 * compute_s, **row})
    return rows


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    losses = columns(["method"], ["least loss", "least to most", "accuracy", "epoch", "requests"])
    seconds = columns(["method"], ["MB/s", "step ms", "s", "sooner", "least to most"])
    for row in rows:
        epoch = f"{row['epoch']:g}" if "epoch" in row else f"{row['reached']} of {row['seeds']}"
        accuracy, requests = number(100 * row["accuracy"], 1), number(row["requests"], 0)
        losses.add_row(row["method"], *shown(row, "best", 4), accuracy, epoch, requests)
    for at, link in enumerate(LINKS):
        for row in rows:
            cells = [row["method"], f"{link.mb_per_s:g}", number(1e3 * row["steps_s"][at], 1)]
            if f"sooner_{at}" in row:
                cells += [number(row[f"seconds_{at}"], 1), *shown(row, f"sooner_{at}", 2)]
            seconds.add_row(*cells)
        seconds.add_section()
    return framed(
        f"digits' CNN, {workers} workers; medians and extremes of {rows[0]['seeds']} seeds",
        losses,
        f"epoch: the first whose validation loss is at most {TARGET:g}; requests of a step",
        seconds,
        f"to that loss, in virtual time, {LINKS[0].latency_ms:g} ms a request; sooner: than "
        "scatter-reduce",
    )
