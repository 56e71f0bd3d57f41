"""The message log stays within its budget, on a model whose gradients are large."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from torch import nn

import dayfly
from dayfly.runs.log_budget import RoundBytes, channel_plan, log_rounds
from dayfly.runs.settings import Settings
from dayfly.wire.segments import pool
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


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.long
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
    # On a disk, notes of the file system about where the pieces are come on top.
    assert watcher.most <= budget_mib * MIB + MIB
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


@pytest.mark.parametrize(
    ("fragments", "compress", "rounds"),
    [(None, "none", 24), (8, "none", 7), (8, "int8", 7), (28, "none", 2)],
)
def test_the_log_holds_fewer_rounds_of_more_exchanges(
    fragments: int | None, compress: str, rounds: int
) -> None:
    """Of two workers' 256 slots each, a fourth is for sums: 64 // (1 + 8) = 7 rounds of 8 of them,
    however they travel, and at least 2, as one is ahead."""
    asked = Settings(
        workers=2, sync="local-sgd", k=28, outer="nesterov", fragments=fragments,
        compress=compress, log_budget_mib=1,
    )  # fmt: skip
    sums, url = RoundBytes.of_sums(17_472, 2), "file:///dev/shm/dayfly-none"
    assert log_rounds(asked, url, channel_plan(asked, url, sums), sums) == rounds


def test_fragments_that_the_log_has_no_room_for_are_refused() -> None:
    """64 sums of a worker have room, and 81 are of each of two rounds that may be under way."""
    asked = Settings(
        workers=2, sync="local-sgd", k=80, outer="nesterov", fragments=80, log_budget_mib=1
    )
    sums, url = RoundBytes.of_sums(17_472, 2), "file:///dev/shm/dayfly-none"
    with pytest.raises(dayfly.RequestError, match=r"64 sums .* have 162: raise --log-budget"):
        log_rounds(asked, url, channel_plan(asked, url, sums), sums)


def deep() -> nn.Module:
    """A million parameters: 4 MB of gradients a step."""
    return nn.Sequential(
        nn.Linear(12, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 5)
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="memory cgroups need root here")
@pytest.mark.parametrize("touched", [True, False])
@pytest.mark.long
def test_the_log_is_not_charged_to_functions(
    touched: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """144 MB are logged without a checkpoint, half by each of two functions of 70 MiB of their own.

    The control: where the coordinator leaves the pages untouched, functions die of them.
    """
    job = small.job(data, model=deep, optimizer=small.sgd, scheduler=None, epochs=4)
    with pytest.raises(dayfly.RequestError, match=r"at least \d+ MiB") as refused:
        dayfly.train(job, workers=2, memory_mib=1, run_dir=tmp_path / "none", progress=False)
    (least_mib,) = re.findall(r"at least (\d+) MiB", str(refused.value))
    if not touched:
        monkeypatch.setattr(pool, "touch", lambda fd, at, size: None)
    assert (deaths(job, int(least_mib) + 70, tmp_path / "run") == 0) is touched


def deaths(job: dayfly.Job, memory_mib: int, directory: Path) -> int:
    """How often functions ran out of memory in a run that logs all of its steps."""
    try:
        run = dayfly.train(
            job,
            workers=2,
            memory_mib=memory_mib,
            log_budget_mib=400,
            run_dir=directory,
            progress=False,
        )
    except dayfly.RunFailed as failed:
        if "ran out of memory" not in str(failed):
            raise
        return 3
    kinds = [event["kind"] for event in small.events(run.directory, "coordinator")]
    assert kinds.count("checkpoint") == 1, "only at the end"
    return run.result.restarts
