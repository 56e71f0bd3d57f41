"""A model whose training needs three times a function's memory trains in stages.

P parameters, momentum, base B (interpreter and torch), limit M of a function, slack e

one function needs     B + P + P (gradients) + P (momentum)  = 3 M    so  P = M - B/3
a quarter of it needs  B + 3 P/4 + e  =  3/4 B + 3/4 M + e  <= M      so  M >= 3 B + 4 e

The command's own process tries all stages, and stays below M, too.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from math import isqrt
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.life.faults import Fault
from dayfly.life.platforms.footprint import LEAST_OWN_BYTES
from tests.runs import small

MIB = 2**20
#: For two layers' gradients beside the buffer, activations, threads, and what is imported late.
SLACK_MIB = 120
#: Layers of more than 32 MiB, whose memory glibc gives back whenever it is freed.
LAYERS, STAGES = 28, 4
SAMPLES, BATCH, STEPS = 24, 8, 3

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="memory cgroups need root here"),
    pytest.mark.alone,  # its checkpoints are gigabytes
    # In seconds: tests/training/test_paged.py, tests/stages/test_build.py and test_footprint.py.
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


class Wide(nn.Module):
    """A linear layer that is made in no time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width, width), 0.5 / width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


def wide(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, width), *(Wide(width) for _ in range(LAYERS)), nn.Linear(width, 5)
    )


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A few samples."""
    random = np.random.default_rng(7)
    x = random.normal(size=(SAMPLES, 12)).astype("float32")
    y = random.integers(0, 5, SAMPLES)
    path = tmp_path / "few.npz"
    np.savez(path, x_train=x, y_train=y, x_val=x, y_val=y)
    return path


def held_bytes() -> int:
    """What this process holds of its own, and in shared memory."""
    found = re.findall(r"Rss(?:Anon|Shmem):\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * sum(map(int, found))


@contextmanager
def grown_mib() -> Iterator[list[float]]:
    """Watches by how much this process's own memory grows; the most is the list's only item.

    Pages of mapped files do not count, as under a limit: the kernel takes them back there. It knows
    no peak without them (VmHWM has all), so a thread looks every few milliseconds.
    """
    before, most, over = held_bytes(), [0.0], Event()

    def watch() -> None:
        while not over.wait(0.002):
            most[0] = max(most[0], (held_bytes() - before) / MIB)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def base_mib(data: Path, directory: Path) -> int:
    """What a function takes before it does anything."""
    with pytest.raises(dayfly.RequestError, match=r"at least \d+ MiB") as refused:
        dayfly.train(small.job(data), memory_mib=1, run_dir=directory, progress=False)
    (least_mib,) = re.findall(r"at least (\d+) MiB", str(refused.value))
    return int(least_mib) - LEAST_OWN_BYTES // MIB


def test_a_model_of_three_times_the_memory(few: Path, tmp_path: Path) -> None:
    base = base_mib(few, tmp_path / "none")
    limit = 3 * base + 4 * SLACK_MIB
    parameters_mib = limit - base / 3
    width = isqrt(int(parameters_mib * MIB / 4 / LAYERS)) + 1
    needed_mib = base + 3 * LAYERS * width**2 * 4 / MIB
    assert needed_mib >= 3 * limit
    job = dayfly.Job(
        model=lambda: wide(width),
        data=few,
        loss=nn.functional.cross_entropy,
        optimizer=momentum,
        batch_size=BATCH,
        epochs=1,
    )
    each = LAYERS // STAGES
    settings: dict[str, Any] = {"memory_mib": limit, "progress": False, "micro_batches": 2}
    try:
        with grown_mib() as grown:
            run = dayfly.train(
                job,
                run_dir=tmp_path / "cut",
                cut=[1 + stage * each for stage in range(1, STAGES)],
                faults=[Fault(2, 1, "backward-0")],
                **settings,
            )
        ended = [e for e in small.events(run.directory, "coordinator") if e["kind"] == "ended"]
        with pytest.raises(dayfly.RunFailed, match="ran out of memory"):
            dayfly.train(job, run_dir=tmp_path / "whole", **settings)
    finally:
        for name in ("whole", "cut"):  # gigabytes
            shutil.rmtree(tmp_path / name, ignore_errors=True)
    assert (run.result.steps, run.result.restarts) == (STEPS, 1)
    assert sum(e["used"]["outcome"] == "killed" for e in ended) == 1
    assert len(ended) == STAGES + 1
    # A cgroup's peak counts the pages of files that were read and written, too, which the kernel
    # takes back at the limit: so it may be the limit, and nobody was killed.
    assert parameters_mib / STAGES < grown[0] <= limit - base
    assert all(base < e["peak_mib"] <= limit for e in ended)
