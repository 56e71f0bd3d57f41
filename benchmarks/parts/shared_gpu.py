"""LeNet on 1, 2, 4, 8 functions of one GPU: samples a second, and how busy the GPU is.

As KubeML asks it (section 4.6): a small model leaves most of a GPU idle, so that more functions on
it train more samples a second, until it is busy. Every function has a batch of the same size.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import nn

import dayfly
from benchmarks.parts.spread import columns, framed, number, say
from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.life.platforms.gpus import gpus_of_this_machine

Json = dict[str, Any]

FUNCTIONS = (1, 2, 4, 8)
_A_FUNCTION = 64  # samples of a batch
_STEPS, _QUICK_STEPS = 600, 24
#: First steps that are not measured, as a share of all.
_WARM_SHARE = 6
_EVERY_S = 0.2
_QUERY = "utilization.gpu,memory.used"


def lenet() -> nn.Module:
    """LeNet-5 for (N, 1, 28, 28), 61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


@dataclass(slots=True)
class Watched:
    """What nvidia-smi said: (Unix seconds, percent of the time that it was busy, MiB taken)."""

    seen: list[tuple[float, float, float]] = field(default_factory=list)

    def between(self, begin: float, end: float) -> tuple[float | None, float | None]:
        """The mean of the percents, and the most MiB; None if nothing was seen then."""
        within = [(busy, mib) for at, busy, mib in self.seen if begin <= at <= end]
        if not within:
            return None, None
        return fmean(busy for busy, _ in within), max(mib for _, mib in within)


def parse(line: str) -> tuple[float, float]:
    """Percent and MiB of a line of nvidia-smi's, such as `37, 1204`."""
    busy, mib = line.split(",")
    return float(busy), float(mib)


def gpu_to_measure() -> str:
    """The GPU that functions get here. Raises RequestError if there is none, or no nvidia-smi."""
    found = gpus_of_this_machine()
    if not found:
        raise RequestError("--gpu: this machine has no GPU that torch can use; leave it out")
    if len(found) > 1:
        raise RequestError(
            f"--gpu measures one GPU, and this machine has {len(found)}: set CUDA_VISIBLE_DEVICES "
            f"to one of them, such as {found[0]}"
        )
    if shutil.which("nvidia-smi") is None:
        raise RequestError("--gpu needs nvidia-smi, which tells how busy a GPU is: install it")
    return found[0]


def _look(gpu: str) -> tuple[float, float]:
    """Ask once. A process a look, as the lines of one that goes on may be held back on their way.

    gpu: a number counts as CUDA counts, so if nvidia-smi's order is another, set CUDA_DEVICE_ORDER
    to PCI_BUS_ID. Raises RunFailed if it does not tell.
    """
    command = ["nvidia-smi", f"--id={gpu}", f"--query-gpu={_QUERY}"]
    command += ["--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return parse(done.stdout)
    except ValueError as error:
        said = (done.stdout + done.stderr).strip()
        raise RunFailed(f"nvidia-smi does not tell how busy GPU {gpu} is: {said!r}") from error


@contextmanager
def watching(gpu: str | None) -> Iterator[Watched]:
    """Ask nvidia-smi several times a second; None: nobody. Raises RunFailed as `_look` does."""
    watched, over = Watched(), threading.Event()
    if gpu is None:
        yield watched
        return

    def watch() -> None:
        while not over.wait(_EVERY_S):
            busy, mib = _look(gpu)
            watched.seen.append((time.time(), busy, mib))

    with ThreadPoolExecutor(1, thread_name_prefix="dayfly-nvidia-smi") as pool:
        watcher = pool.submit(watch)
        try:
            yield watched
        finally:
            over.set()
        watcher.result()


def measure(functions: Sequence[int], gpu: str | None, scratch: Path, *, quick: bool) -> list[Json]:
    """A row a number of functions. gpu: whose share they have; None: on the CPU, for tests."""
    rows = []
    for count in functions:
        rows.append(_row(count, gpu, _QUICK_STEPS if quick else _STEPS, scratch))
        busy = number(rows[-1]["busy_percent"], 0) or "?"
        say(f"{count} functions: {rows[-1]['samples_per_s']:.4g} samples/s, {busy} % busy")
    return rows


def _row(count: int, gpu: str | None, steps: int, scratch: Path) -> Json:
    data = scratch / f"data-{count}"
    data.mkdir()
    random = np.random.default_rng(0)
    for part, batches in (("train", steps), ("val", 1)):
        samples = batches * count * _A_FUNCTION
        x = random.standard_normal((samples, 1, 28, 28), dtype=np.float32)
        np.save(data / f"x_{part}.npy", x)
        np.save(data / f"y_{part}.npy", random.integers(0, 10, samples))
    job = Job(
        model=lenet,
        data=data,
        loss=nn.functional.cross_entropy,
        optimizer=_sgd,
        batch_size=count * _A_FUNCTION,
        epochs=1,
    )
    with watching(gpu) as watched:
        run = dayfly.train(
            job,
            workers=count,
            gpu_share=None if gpu is None else 1 / count,
            run_dir=scratch / f"run-{count}",
            progress=False,
        )
    lines = (run.directory / "events" / "worker-0.jsonl").read_text().splitlines()
    taken = [record for record in map(json.loads, lines) if record["kind"] == "step"]
    shutil.rmtree(data)
    shutil.rmtree(run.directory)
    warm = steps // _WARM_SHARE
    # The last step is followed by a validation, and not measured.
    begin, end = taken[warm]["at"], taken[-2]["at"]
    busy, mib = watched.between(begin, end)
    measured = len(taken) - 2 - warm
    return {
        "functions": count,
        "gpu_share": None if gpu is None else 1 / count,
        "batch_size": job.batch_size,
        "steps": measured,
        "samples_per_s": measured * job.batch_size / (end - begin),
        "busy_percent": busy,
        "gpu_memory_mib": mib,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """For a person."""
    made = columns([], ["functions", "samples/s", "over one's", "GPU busy %", "GPU memory MiB"])
    for row in rows:
        made.add_row(
            str(row["functions"]),
            f"{row['samples_per_s']:.4g}",
            f"{row['samples_per_s'] / rows[0]['samples_per_s']:.2f}",
            number(row["busy_percent"], 0),
            number(row["gpu_memory_mib"], 0),
        )
    heading = f"LeNet on functions of one GPU, {_A_FUNCTION} samples a function and step"
    return framed(heading, made)
