"""A run of a cut model ends in the uncut one's weights, bit for bit, over every kind of channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.parts.redis_server import RedisServer
from torch import nn

import dayfly
from tests.runs import small

pytestmark = pytest.mark.long

MICRO_BATCHES = 3


def model() -> nn.Module:
    """Statistics move; nothing is drawn, as draws are those of layers if the model is cut."""
    return nn.Sequential(
        nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.Linear(32, 5)
    )


def grouped(parameters: Any) -> torch.optim.Optimizer:
    every = list(parameters)
    groups = [
        {"params": [p for p in every if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01)


@pytest.fixture(scope="module")
def weights(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """The final weights of a run with these settings."""

    def run(**settings: Any) -> bytes:
        job = small.job(data, model=model, optimizer=grouped, clip_norm=0.5, batch_size=30)
        done = dayfly.train(
            job,
            epochs=2,
            run_dir=tmp_path_factory.mktemp("run") / "here",
            micro_batches=MICRO_BATCHES,
            progress=False,
            **settings,
        )
        return (done.directory / "weights.safetensors").read_bytes()

    return run


@pytest.fixture(scope="module")
def uncut(weights: Callable[..., bytes]) -> Callable[[int], bytes]:
    """What so many workers end in."""
    return cache(lambda workers: weights(workers=workers))


@pytest.fixture
def redis() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.mark.parametrize(
    "settings",
    [
        {"cut": (1, 2, 4), "schedule": "1f1b"},
        {"cut": (2,), "replicas": 2},
        {"cut": (2, 3), "uplink_mb_per_s": 20.0},
        pytest.param(  # the two above at once
            {"cut": (2,), "replicas": 2, "schedule": "1f1b", "uplink_mb_per_s": 20.0},
            marks=pytest.mark.slow,
        ),
        {"cut": (3,), "replicas": 2, "channel": "tcp://"},
        {"cut": (3,), "imitate": "aws-lambda", "stage_memory_mib": (1769, 3538)},
    ],
    ids=str,
)
def test_cut_runs_end_in_the_uncut_ones_weights(
    settings: dict[str, Any], weights: Callable[..., bytes], uncut: Callable[[int], bytes]
) -> None:
    assert weights(**settings) == uncut(settings.get("replicas", 1))


def test_so_they_do_over_redis(
    redis: str, weights: Callable[..., bytes], uncut: Callable[[int], bytes]
) -> None:
    assert weights(cut=(3,), replicas=2, schedule="1f1b", channel=redis) == uncut(2)
