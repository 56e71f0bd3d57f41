"""`dayfly bench scaling`: how long a run stands still while its plan changes.

    old generation   ... step s-2 | step s-1 | checkpoint
    new generation   start, warm up                       read | step s ...
                                             |===== stall =====|

One run of a model of `--mb` MB changes between two numbers of workers, again and again. A stall
lasts from the end of the last step of the old generation to the beginning of the first step of the
new one, as the run's events have them. Each function has `--cpu` cores, and starts `--cold-start`
seconds later than here.

With `--lifetime` nothing changes but that functions live so long: runs of so many steps without
and with that lifetime take turns, and what the lifetime costs is the ratio of their times.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import nn

import dayfly
from benchmarks.parts.arguments import new_parser
from benchmarks.parts.machine import machine, machine_line
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.spread import columns, framed, say, shown, spread
from dayfly.errors import DayflyError, RequestError, RunFailed
from dayfly.life.sessions import Session
from dayfly.runs.changes import Changes
from dayfly.runs.events import Events
from dayfly.runs.steering import scale, stop
from dayfly.specs.events import Event, GenerationBegun, StepTold

#: Features of a sample, and samples of a step and of an epoch: the model is what counts.
_WIDTH, _BATCH, _SAMPLES = 256, 16, 1600
#: Epochs: more than a run gets through until its last change.
_EPOCHS = 10_000
_TIMEOUT_S = 300.0


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measures; the result has the stalls, and the steps that were computed twice.

    Args:
        args: options after the bench's name.

    Raises:
        RequestError: an option cannot be meant.
        RunFailed: the run fails, or does not change.
    """
    asked = _arguments(args)
    if asked.lifetime is not None:
        return _lifetimes(asked)
    on_what = machine()
    with Session.open() as session:
        scratch = scratch_of(session)
        directory = scratch / "run"
        sizes = list(islice(cycle([asked.to, asked.workers]), asked.changes))
        asking = _Asking(directory, sizes)
        dayfly.train(
            _job(asked.mb, scratch),
            workers=asked.workers,
            cpu_cores=asked.cpu,
            cold_start_s=asked.cold_start,
            run_dir=directory,
            progress=False,
            listeners=[asking],
        )
        asking.check()
        found = stalls(Events.read(directory / "events"))
        if len(found) != asked.changes:
            raise RunFailed(f"of {asked.changes} changes the events tell {len(found)}")
    return {
        "machine": on_what,
        "workers": [asked.workers, asked.to],
        "cpu_cores": asked.cpu,
        "cold_start_s": asked.cold_start,
        "model_mb": asked.mb,
        "changes": asked.changes,
        **spread("stall_s", [one.stall_s for one in found]),
        **spread("step_s", [one.step_s for one in found]),
    }


def _lifetimes(asked: argparse.Namespace) -> dict[str, Any]:
    """What a lifetime costs: runs of equal steps, without and with it by turns."""
    on_what = machine()
    ratios: list[float] = []
    figures: dict[str, list[float]] = {name: [] for name in _OF_LIVES}
    with Session.open() as session:
        scratch = scratch_of(session)
        for number in range(asked.rounds):
            took_s: dict[float | None, float] = {}
            for lifetime_s in (None, asked.lifetime):
                say(f"round {number + 1} of {asked.rounds}: lifetime {lifetime_s or 'unlimited'}")
                directory = scratch / f"run-{number}-{lifetime_s}"
                run = dayfly.train(
                    _job(asked.mb, scratch, epochs=asked.epochs),
                    workers=asked.workers,
                    cpu_cores=asked.cpu,
                    cold_start_s=asked.cold_start,
                    lifetime_s=lifetime_s,
                    run_dir=directory,
                    progress=False,
                )
                if run.result.status != "done":
                    raise RunFailed(f"{directory}: {run.result.error}")
                took_s[lifetime_s] = run.result.train_s or 0.0
            found = stalls(Events.read(directory / "events"), renewals=True)
            ratios.append(took_s[asked.lifetime] / took_s[None])
            figures["train_s"].append(took_s[asked.lifetime])
            figures["hand_overs"].append(len(found))
            figures["stalled_s"].append(sum(one.stall_s for one in found))
            figures["deaths"].append(run.result.restarts)
            figures["billed_s"].append(run.result.billed_s)
    return {
        "machine": on_what,
        "workers": [asked.workers],
        "cpu_cores": asked.cpu,
        "cold_start_s": asked.cold_start,
        "model_mb": asked.mb,
        "lifetime_s": asked.lifetime,
        "rounds": asked.rounds,
        **spread("ratio", ratios),
        **{key: value for name in _OF_LIVES for key, value in spread(name, figures[name]).items()},
    }


#: What is told of runs of functions that live for some time.
_OF_LIVES = {
    "train_s": "training, seconds",
    "hand_overs": "hand-overs of all workers",
    "stalled_s": "stalls of all hand-overs together, seconds",
    "deaths": "deaths",
    "billed_s": "billed, seconds of functions",
}


def table(result: Mapping[str, Any]) -> Table:
    """Returns the result for a person."""
    rows = columns(["seconds" if "stall_s" in result else ""], ["median", "spread"])
    cpu = "" if result["cpu_cores"] is None else f", {result['cpu_cores']:g} cores a function"
    cold = f", cold starts of {result['cold_start_s']:g} s" if result["cold_start_s"] else ""
    what = f"a model of {result['model_mb']:g} MB over files{cpu}{cold}"
    if "stall_s" in result:
        for name, words in (("stall_s", "stall of a change"), ("step_s", "a step before it")):
            rows.add_row(words, *shown(result, name, 2))
        few, many = result["workers"]
        heading = f"{result['changes']} changes between {few} and {many} workers, {what}"
    else:
        rows.add_row("time over that without a lifetime", *shown(result, "ratio", 3))
        for name, words in _OF_LIVES.items():
            rows.add_row(words, *shown(result, name, 1))
        heading = (
            f"{result['rounds']} rounds of {result['workers'][0]} workers that live for "
            f"{result['lifetime_s']:g} s, {what}"
        )
    return framed(f"{heading}\n{machine_line(result['machine'])}", rows)


class Stall:
    """A change of plan. stall_s: between two steps. step_s: of the last step before."""

    def __init__(self, last: StepTold, first: StepTold) -> None:
        self.stall_s = first.began_s - (last.began_s + last.step_s)
        self.step_s = last.step_s


def stalls(events: Events, *, renewals: bool = False) -> list[Stall]:
    """Returns the stall of each change of plan, as rank 0 tells its steps.

    Args:
        events: of a run.
        renewals: of the generations that went on by the same plan, instead.

    Raises:
        RunFailed: a step was computed more than once.
    """
    steps: dict[int, StepTold] = {}
    for event in events.workers.get(0, ()):
        if isinstance(event, StepTold) and event.computed:
            if event.step in steps:
                raise RunFailed(f"step {event.step} was computed twice")
            steps[event.step] = event
    changed = [
        one.first_step
        for one in events.coordinator
        if isinstance(one, GenerationBegun) and one.number and (one.changes is None) is renewals
    ]
    return [Stall(steps[step - 1], steps[step]) for step in changed if step in steps]


class _Asking:
    """A listener that asks for one size after another once training has begun, then for a stop."""

    def __init__(self, directory: Path, sizes: Sequence[int]) -> None:
        self._directory = directory
        self._sizes = sizes
        self._failure: DayflyError | None = None
        self._thread = threading.Thread(target=self._ask, name="bench-asks")
        self._begun = False

    def __call__(self, source: str, event: Event) -> None:
        if not self._begun and isinstance(event, StepTold):
            self._begun = True
            self._thread.start()

    def check(self) -> None:
        """Raises what hindered it."""
        if self._begun:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _ask(self) -> None:
        run = str(self._directory)
        try:
            for number, workers in enumerate(self._sizes):
                say(f"change {number + 1} of {len(self._sizes)}")
                scale(run, Changes(workers=workers), _TIMEOUT_S)
        except DayflyError as error:
            self._failure = error
        finally:
            with suppress(DayflyError):  # it may have ended
                stop(run, _TIMEOUT_S)


def _job(mb: float, scratch: Path, epochs: int = _EPOCHS) -> dayfly.Job:
    """A model of so many MB: two layers, all of whose weights are in one of them, about."""
    hidden = max(1, round(mb * 1e6 / 4 / (_WIDTH + 10)))
    random = np.random.default_rng(0)
    data = scratch / "noise.npz"
    x = random.standard_normal((_SAMPLES, _WIDTH), dtype=np.float32)
    np.savez(data, x_train=x, y_train=random.integers(0, 10, _SAMPLES))
    return dayfly.Job(
        model=partial(_model, hidden),
        data=data,
        loss=nn.functional.cross_entropy,
        optimizer=_optimizer,
        batch_size=_BATCH,
        epochs=epochs,
    )


def _model(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(_WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def _optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("scaling", "Seconds that a run stands still while its plan changes.")
    parser.add_argument("--changes", type=int, default=20, help="how many (20)")
    parser.add_argument("--workers", type=int, default=2, help="at first (2)")
    parser.add_argument("--to", type=int, default=3, help="and after every other change (3)")
    parser.add_argument("--mb", type=float, default=45.0, help="of the model's weights (45)")
    parser.add_argument("--cpu", type=float, help="cores of a function (not limited)")
    parser.add_argument("--cold-start", type=float, help="seconds (as here)")
    parser.add_argument("--lifetime", type=float, help="seconds; nothing else changes then")
    parser.add_argument("--rounds", type=int, default=5, help="with --lifetime (5)")
    parser.add_argument("--epochs", type=int, default=5, help="of a run with --lifetime (5)")
    asked = parser.parse_args(args)
    if min(asked.rounds, asked.epochs) < 1:
        raise RequestError("--rounds and --epochs are from 1")
    if min(asked.changes, asked.workers, asked.to) < 1 or asked.workers == asked.to:
        raise RequestError("--changes, --workers and --to are from 1, and the latter two differ")
    if asked.mb <= 0:
        raise RequestError(f"--mb {asked.mb:g}: give a size above 0")
    return asked
