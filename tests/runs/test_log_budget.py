"""The message log stays within its budget, on a model whose gradients are large."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from torch import nn

import dayfly
from tests.runs import small

MIB = 2**20


def wide() -> nn.Module:
    """20 million parameters: 80 MB of gradients a step."""
    return nn.Sequential(
        nn.Linear(12, 4000), nn.ReLU(), nn.Linear(4000, 4000), nn.ReLU(), nn.Linear(4000, 1000)
    )


def large_job(data: Path) -> dayfly.Job:
    return small.job(data, model=wide, optimizer=small.sgd, scheduler=None, epochs=1)


class Watcher:
    """The most bytes that the channel's directory ever held, looked at all the time."""

    def __init__(self, directory: Path) -> None:
        self.most = 0
        self._directory = directory
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, _size(str(self._directory)))


def _size(directory: str) -> int:
    """Bytes that the files below take, holes aside; what vanishes meanwhile counts as nothing."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                is_file = entry.is_file(follow_symlinks=False)
                total += 512 * entry.stat().st_blocks if is_file else _size(entry.path)
    return total


@pytest.mark.parametrize("workers", [2, 3])
def test_the_log_stays_within_its_budget(workers: int, data: Path, tmp_path: Path) -> None:
    """4 steps fit, at 77 MiB each, besides what is being contributed: 9 steps need trims."""
    budget_mib = (4 + workers - 1) * 78
    channel = tmp_path / "channel"
    with Watcher(channel) as watcher:
        run = dayfly.train(
            large_job(data),
            workers=workers,
            channel=f"file://{channel}",
            log_budget_mib=budget_mib,
            run_dir=tmp_path / "run",
            progress=False,
        )
    assert run.result.steps == small.STEPS_AN_EPOCH
    assert watcher.most > 2 * 76 * MIB, "the log was filled"
    assert watcher.most <= budget_mib * MIB
    checkpoints = [
        e for e in small.events(run.directory, "coordinator") if e["kind"] == "checkpoint"
    ]
    assert len(checkpoints) >= 3, "checkpoints were forced"


def test_a_budget_that_holds_no_step_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(dayfly.RequestError, match=r"message log may take 100 MiB.*--log-budget"):
        dayfly.train(
            large_job(data),
            workers=3,
            log_budget_mib=100,
            run_dir=tmp_path / "run",
            progress=False,
        )
    assert not (tmp_path / "run").exists()
