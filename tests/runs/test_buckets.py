"""A model of several buckets: they overlap the backward pass, and deaths leave the same bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.life.faults import Fault
from tests.runs import small

pytestmark = pytest.mark.long

#: Sums of 30 steps of 2.6 MB.
BUDGET_MIB = 48


def wide() -> nn.Module:
    """Three layers: 20 KB, 2.3 MB and 0.4 MB of gradients, in three buckets."""
    return nn.Sequential(
        nn.Linear(12, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Linear(400, 1400), nn.ReLU(),
        nn.Dropout(0.2), nn.Linear(1400, 5), nn.Linear(5, 5),
    )  # fmt: skip


def train(data: Path, directory: Path, workers: int, **more: Any) -> dayfly.Run:
    return dayfly.train(
        small.job(data, model=wide, epochs=1, **more.pop("job", {})),
        workers=workers,
        run_dir=directory,
        progress=False,
        log_budget_mib=BUDGET_MIB,
        **more,
    )


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dayfly.Run]:
    @cache
    def run(workers: int) -> dayfly.Run:
        return train(data, tmp_path_factory.mktemp("buckets"), workers)

    return run


def test_it_goes_out_in_buckets_while_it_computes(alone: Callable[[int], dayfly.Run]) -> None:
    records = small.events(alone(2).directory, "worker-0")
    spans = [record["spans"] for record in records if record["kind"] == "step"]
    early = [s for s in spans if s.get("upload") and s["upload"][0][0] < s["compute"][-1][1]]
    assert early, spans


@pytest.mark.parametrize(
    "place",
    [
        "grad-put-part",
        "grad-reduce",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("grad-put-sum", "grad-get")),
    ],
)
def test_deaths_between_buckets_leave_the_same_bits(
    place: str, data: Path, alone: Callable[[int], dayfly.Run], tmp_path: Path
) -> None:
    """A place is passed once for each bucket; the first is where the worker dies."""
    faults = [Fault(1, 2, place), Fault(0, 4, place), Fault(1, 5, "computed")]
    run = train(data, tmp_path, 2, faults=faults)
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(alone(2))
    assert small.recomputed(run.directory, 2) <= small.died_in(faults)


def test_an_exception_in_a_step_ends_the_worker_at_once(data: Path, tmp_path: Path) -> None:
    """Its peers wait for the buckets of that step; it must not, or nobody would ever know."""
    rare = float(np.sort(np.load(data)["x_train"][:, 0])[-5])

    def fails(x: torch.Tensor) -> torch.Tensor:
        if x[0] >= rare:
            raise ValueError("no more")
        return x

    with pytest.raises(dayfly.RunFailed, match="no more"):
        train(data, tmp_path, 2, job={"transform": fails})
