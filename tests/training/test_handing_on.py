"""What a protocol begins with if another one wrote the run checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.checkpoints import CheckpointError, Writer, share_of
from dayfly.runs.keeping import told_of
from dayfly.runs.protocols.handing_on import (
    OUTER,
    STREAMED,
    WAITING,
    alike,
    settled,
    streamed,
    waiting_in,
)
from dayfly.specs.outer import Outer
from dayfly.specs.streaming import Streaming
from dayfly.training.outer import OuterGradients, hyperparameters, outer_optimizer, parted
from dayfly.training.replica import Replica, Wishes
from dayfly.training.state import Tensors, model_tensors
from dayfly.training.streaming import StreamedGradients
from dayfly.wire.stores.files import FileStore
from tests.training.jobs import job, with_batch_norm
from tests.training.test_gradients import OPTIMIZERS

HOW = Outer(lr=0.5, streaming=Streaming(fragments=2, overlap=3))


def copied(tree: Any, tensors: Tensors) -> tuple[Any, Tensors]:
    """As a store has them."""
    return json.loads(json.dumps(tree)), {name: one.clone() for name, one in tensors.items()}


def worker(asked: Job, **task: Any) -> Any:
    """As far as a checkpoint's state is concerned."""
    given = SimpleNamespace(compress="none", outer=None, **task)
    return SimpleNamespace(job=asked, replica=Replica(asked), task=given)


def trains(replica: Replica) -> None:
    """A step by made-up gradients, and moves of buffers."""
    for parameter in replica.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    replica.step()
    for _, buffer in replica.model.named_buffers():
        buffer.add_(1)


def test_what_earlier_versions_summed_apart_waits_with_the_last_fragment() -> None:
    """Of compressed fragments 0 and 1, they had losses, wishes and buffers as exchange 2."""
    assert HOW.streaming is not None
    tree = {WAITING: [[1, 4, 10], [2, 4, 10]]}
    assert waiting_in(tree, HOW.streaming) == [(1, 4, 10)]
    assert waiting_in({}, HOW.streaming) == []


def test_sums_that_wait_are_applied_as_at_an_epochs_end() -> None:
    asked = job(model=with_batch_norm, optimizer=OPTIMIZERS["adamw"], ema=0.9)
    assert HOW.streaming is not None
    torch.manual_seed(3)
    replica = Replica(asked)
    sums = StreamedGradients(
        replica, 0, outer_optimizer(HOW, asked, replica.model), streaming=HOW.streaming
    )
    sums.begin()
    trains(replica)
    for number in range(2):
        sums.take_fragment(number, 0.5)
    sums.take_rest(0.5, [], Wishes())
    sums.apply(0, 4)  # the other one waits, with what belongs to no fragment
    trains(replica)
    tree, tensors, inner = parted(*replica.state())
    outer, more = sums.shared()
    tree |= {OUTER: outer, STREAMED: streamed(HOW), WAITING: [[1, 4, 7 + 3]]}
    tree, tensors = copied(tree, {**tensors, **more, **sums.shared_model(), **sums.sums([1])})
    _, own = copied({}, {**inner, **sums.own()})

    sums.apply(1, HOW.streaming.steps(4, 7 + 3))
    assert HOW.streaming.steps(4, 7 + 3) == 4
    found, shared, mine = settled(worker(asked), tree, tensors, own)
    outer, more = sums.shared()
    assert (found[OUTER], found[WAITING]) == (json.loads(json.dumps(outer)), [])
    expected = {**more, **sums.shared_model()}
    assert replica.average is not None
    expected |= {f"ema.{name}": one for name, one in replica.average.items()}
    for name, one in expected.items():
        assert torch.equal(shared[name], one), name
    for name, one in model_tensors(replica.model).items():
        assert torch.equal(mine[f"own.model.{name}"], one), name
    assert all(torch.equal(mine[name], one) for name, one in inner.items())
    assert settled(worker(asked), found, shared, mine) == (found, shared, mine)
    del tree[STREAMED]
    with pytest.raises(CheckpointError, match="go on with the run's own --fragments"):
        settled(worker(asked), tree, tensors, own)


def test_equal_replicas_go_on_with_worker_0s_optimizer(tmp_path: Path) -> None:
    asked = job(optimizer=OPTIMIZERS["adamw"])
    store, written, states = FileStore(tmp_path), [], []
    for rank in range(2):
        replica = Replica(asked)
        torch.manual_seed(rank)
        trains(replica)
        states.append(replica.state())
        tree, tensors, own = parted(*states[0][:1], states[-1][1])
        sums = OuterGradients(replica, 0, outer_optimizer(Outer(), asked, replica.model))
        tree[OUTER] = sums.shared()[0]
        writer = Writer(rank, 2)
        written += checkpoints.write_share(
            store, 4, writer, tree, share_of(writer, tensors), share_of(Writer(), own)
        )
    checkpoint = checkpoints.commit(store, 4, written)
    here = worker(asked, checkpoint=checkpoint)
    here.store = store
    whole, tensors = alike(here, *checkpoints.read(store, checkpoint))
    assert OUTER not in whole
    here.replica.load_state(whole, tensors)
    first = "optimizer.state.0.weight.exp_avg"
    got = here.replica.state()[1][first]
    assert torch.equal(got, states[0][1][first])
    assert not torch.equal(got, states[1][1][first])


def test_another_rate_keeps_the_outer_momentum() -> None:
    asked = job()
    replicas = [Replica(asked) for _ in range(2)]
    one, other = (
        OuterGradients(replica, 0, outer_optimizer(how, asked, replica.model))
        for replica, how in zip(replicas, (Outer(), Outer(name="momentum", lr=0.1)), strict=True)
    )
    for parameter in replicas[0].model.parameters():
        parameter.grad = torch.ones_like(parameter)
    one._optimizer.step()
    tree, tensors = copied(*one.shared())
    other.load_shared(tree, tensors, hyperparameters(Outer(name="momentum", lr=0.1)))
    (group,) = other._optimizer.param_groups
    assert (group["lr"], group["momentum"], group["nesterov"]) == (0.1, 0.9, False)
    kept = [other._optimizer.state[p]["momentum_buffer"] for p in group["params"]]
    assert all(torch.equal(one, torch.ones_like(one)) for one in kept)


def test_sums_that_other_cpus_applied_are_not_compared() -> None:
    protocol: Any = SimpleNamespace(
        equal=True, complete=False, shared_state=lambda: ({}, {"a": torch.zeros(1)})
    )
    same, other = (SimpleNamespace(allow_other_cpu=one, holds=None) for one in (False, True))
    assert told_of(protocol, cast(Any, other), waited=True) == {}
    assert told_of(protocol, cast(Any, other)) == told_of(protocol, cast(Any, same), waited=True)
    assert "digest" in told_of(protocol, cast(Any, other))
