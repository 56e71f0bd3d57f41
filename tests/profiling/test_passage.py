"""All layers as the only stage of a pipeline, to be timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dayfly
from dayfly.runs.profiling.layers import Layers
from dayfly.runs.profiling.passes import MICRO_BATCHES, OneStage, one_stage
from dayfly.training.replica import Replica
from dayfly.training.synchronous import Synchronous
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.collectives import collective
from dayfly.wire.engine import Engine
from tests.profiling import jobs

BATCH = torch.randn(6, 8, 8), torch.arange(6)


class Alone:
    """A worker with its engine."""

    def __init__(self, job: dayfly.Job, directory: Path) -> None:
        torch.manual_seed(0)
        self.job = job
        self.replica = Replica(job)
        self.flat = Synchronous(job, self.replica).flat
        self.layers = Layers.of(job, self.replica.model)
        namespace = Namespace("passage", 0)
        self.channel = FileChannel.make(
            directory, namespace, senders=1, budget_bytes=2**20, ahead_bytes=2**16
        )
        self.engine = Engine(self.channel, collective("ring", None, 1), 0, 1, timeout_s=10.0)

    def staged(self, batch: Any) -> Any:
        return one_stage(self.job, self.layers, self.engine, self.flat, batch)


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    made = Alone(jobs.job(), tmp_path)
    yield made
    made.engine.close()
    made.channel.close()


def test_it_computes_the_batch(alone: Alone) -> None:
    """As often as it passes, each time with its part of the weight."""
    staged = OneStage(alone.job, alone.layers, alone.engine, alone.flat)
    assert staged.passes(BATCH) > 0
    once = [gradient.clone() for gradient in alone.flat.gradients]
    loss = nn.functional.cross_entropy(alone.replica.model(BATCH[0]), BATCH[1])
    wanted = torch.autograd.grad(loss, alone.flat.parameters)
    for found, gradient in zip(once, wanted, strict=True):
        torch.testing.assert_close(found.view_as(gradient), gradient)
    assert MICRO_BATCHES > 1
    assert staged.passes(BATCH) > 0
    for before, after in zip(once, alone.flat.gradients, strict=True):
        assert torch.equal(before, after), "and leaves nothing behind"


def test_only_of_what_can_be_cut(alone: Alone, tmp_path: Path) -> None:
    assert alone.staged(BATCH)() > 0
    assert alone.staged([*BATCH, BATCH[0]]) is None
    assert alone.staged({"x": BATCH[0]}) is None
    other = Alone(jobs.job(model=jobs.Whole), tmp_path / "other")
    assert other.staged(BATCH) is None
    other.engine.close()
    other.channel.close()
