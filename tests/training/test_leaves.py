"""A step over leaves has the same bits whoever computes which of them; in one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dayfly.job import Job
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.leaves import LeafExchange
from dayfly.training.order import Epochs
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Slices
from dayfly.training.sources import DatasetSource
from dayfly.training.synchronous import Synchronous
from dayfly.wire.collectives.conformance_cases import by_the_tree
from dayfly.wire.leaves import halves, nodes_within
from tests.training import jobs

#: The last batch of an epoch has 12 samples, two a leaf.
LEAVES, BATCH = 6, 16
DATA = jobs.clusters(44)
#: And here 4, so that two leaves are empty.
FEW = jobs.clusters(36)


def net() -> nn.Module:
    """Dropout draws numbers, and batch statistics move, weighted by the leaf's samples."""
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4)
    )


def two_towers() -> nn.Module:
    return nn.ModuleDict({"a": net(), "b": net()})


def step_of(name: str) -> Any:
    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model[name](batch[0]), batch[1])  # type: ignore[index]

    return step


def optimizer_of(name: str) -> Any:
    return lambda model: torch.optim.SGD(model[name].parameters(), lr=0.1, momentum=0.9)


def with_class_weights(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 2.0, 0.5, 3.0]))


class LeafWorld:
    """Replicas whose leaves' gradients are summed along the tree, by hand."""

    def __init__(
        self,
        job: Job,
        workers: int,
        *,
        weighting: Weighting = SAMPLES,
        precision: str = "fp32",
        samples: jobs.Pairs = DATA,
    ) -> None:
        self.job = job
        self.epochs = Epochs(len(samples), job.batch_size, job.seed)
        self.replicas = [Replica(job, precision=precision) for _ in range(workers)]
        self.slices = [
            Slices(DatasetSource(samples, 0), self.epochs, rank, workers, job.accumulate, LEAVES)
            for rank in range(workers)
        ]
        self.steps = [
            [Synchronous(job, replica, weighting=weighting, phase=name) for name in job.phases]
            for replica in self.replicas
        ]
        self.exchanges = [
            [LeafExchange(one.flat, slices.leaves, LEAVES) for one in steps]
            for steps, slices in zip(self.steps, self.slices, strict=True)
        ]

    def step(self, at: int) -> float:
        loss = 0.0
        for phase in range(len(self.job.phases)):
            values: dict[range, torch.Tensor] = {}
            for rank in range(len(self.replicas)):
                values |= self._nodes(rank, phase, at)
            total = by_the_tree_of_nodes(range(LEAVES), values)
            losses = set()
            for steps in self.steps:
                steps[phase].flat.data.copy_(total)
                losses.add(steps[phase].apply()[0])
            loss += losses.pop()
            assert not losses, "all see the same loss"
        return loss

    def _nodes(self, rank: int, phase: int, at: int) -> Mapping[range, torch.Tensor]:
        """What a worker brings to the sum."""
        steps, exchange = self.steps[rank][phase], self.exchanges[rank][phase]
        slices, batch = self.slices[rank], len(self.epochs.batch(at))
        exchange.begin()
        for number, leaf in enumerate(slices.leaves):
            steps.compute(slices.pieces(at, leaf), batch, at, leaf, Wishes())
            if leaf != slices.leaves[-1]:
                exchange.keep(number)
        for bucket in range(len(exchange.buffers)):
            exchange.contribute(bucket)
        nodes = nodes_within(slices.leaves, LEAVES)
        found = {}
        for place, node in zip([*range(1, len(nodes)), 0], nodes, strict=True):
            parts = []
            for bucket in range(len(exchange.buffers)):
                terms = exchange.terms(bucket)
                size = terms.numel()
                parts.append(terms[place * size : (place + 1) * size])
            found[node] = torch.cat(parts)
        return found

    def close(self) -> None:
        for slices in self.slices:
            slices.close()


def by_the_tree_of_nodes(node: range, values: Mapping[range, torch.Tensor]) -> torch.Tensor:
    if node in values:
        return values[node]
    left, right = halves(node)
    return by_the_tree_of_nodes(left, values) + by_the_tree_of_nodes(right, values)


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "pieces": ({"accumulate": 2, "model": jobs.perceptron}, {"samples": FEW}),
    "bf16": ({}, {"precision": "bf16"}),
    "fp16": ({"clip_norm": 0.5}, {"precision": "fp16"}),
    "class weights": (
        {"loss": with_class_weights},
        {"weighting": Weighting("torch", 1.0)},
    ),
    "phases": (
        {
            "model": two_towers,
            "loss": None,
            "step": {"a": step_of("a"), "b": step_of("b")},
            "optimizer": {"a": optimizer_of("a"), "b": optimizer_of("b")},
        },
        {},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_weights_buffers_and_losses_have_the_same_bits_at_any_size(way: str) -> None:
    changes, more = WAYS[way]
    found = []
    with jobs.one_thread():
        for workers in range(1, LEAVES + 1):
            given = {"model": net, "batch_size": BATCH, **changes}
            world = LeafWorld(jobs.job(**given), workers, **more)
            losses = [world.step(at) for at in range(4)]
            world.close()
            models = [jobs.bits(replica.model) for replica in world.replicas]
            assert all(model == models[0] for model in models)
            found.append((losses, models[0]))
    assert all(one == found[0] for one in found)
    assert all(one > 0 for one in found[0][0])


def test_each_leaf_has_its_own_dropout_and_begins_with_the_same_buffers() -> None:
    """So a virtual worker computes what a worker in its place would."""
    job = jobs.job(model=net, batch_size=BATCH)
    with jobs.one_thread():
        world, plain = LeafWorld(job, 2), jobs.World(job, DATA, LEAVES)
        plain.gradients()
        leaves = [own.flat.data for own in plain.steps]
        values = {**world._nodes(0, 0, 0), **world._nodes(1, 0, 0)}
        world.close()
    for node, value in values.items():
        wanted = by_the_tree(node, lambda leaf: leaves[leaf], torch.add)
        assert torch.equal(value, wanted), node


def test_slices_are_the_leaves_in_a_row() -> None:
    """Of unequal batches, with the pieces of each leaf."""
    epochs = Epochs(len(FEW), BATCH, 3)
    alone = [Slices(DatasetSource(FEW, 0), epochs, leaf, LEAVES, 2) for leaf in range(LEAVES)]
    for workers in (1, 4):
        for rank in range(workers):
            slices = Slices(DatasetSource(FEW, 0), epochs, rank, workers, 2, LEAVES)
            for step in range(2 * epochs.steps):
                for leaf in slices.leaves:
                    ours, theirs = list(slices.pieces(step, leaf)), list(alone[leaf].pieces(step))
                    assert [one.number for one in ours] == [one.number for one in theirs]
                    for one, other in zip(ours, theirs, strict=True):
                        assert all(map(torch.equal, one.batch, other.batch))
            slices.close()
    for one in alone:
        one.close()
