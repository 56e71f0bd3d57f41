"""What has to hold of a model that is not on the CPU; run in a process of its own.

Prints a JSON object: for each case its traceback, or null.
"""

from __future__ import annotations

import json
import time
import traceback
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from dayfly.job import Job
from dayfly.life.checkpoints import Writer, share_of
from dayfly.runs.profiling.clocks import Clocks, gpu_of
from dayfly.runs.profiling.passes import Passes
from dayfly.specs.compression import compression
from dayfly.specs.outer import Outer
from dayfly.training.averaging import Averaging
from dayfly.training.compression import exchange_of
from dayfly.training.devices import CPU, device_of, to_device, to_wire
from dayfly.training.evaluation import Evaluation
from dayfly.training.flat import FlatBuffer
from dayfly.training.order import Epochs
from dayfly.training.outer import OuterGradients, outer_optimizer
from dayfly.training.randomness import DROPOUT, seed_generators
from dayfly.training.replica import Replica
from dayfly.training.sources import DatasetSource
from dayfly.training.synchronous import Synchronous
from dayfly.wire.collectives import COLLECTIVES
from tests.training import far_device
from tests.training.jobs import World, bits, clusters, job, one_thread, with_batch_norm
from tests.training.local_world import LocalWorld

FAR = torch.device(far_device.NAME, 0)
DATA = clusters(40)
CASES: dict[str, Callable[[], None]] = {}


def case(check: Callable[[], None]) -> Callable[[], None]:
    CASES[check.__name__] = check
    return check


def near(model: nn.Module) -> dict[str, bytes]:
    """The bits of a model wherever it is."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {
        name: to_wire(tensor).reshape(-1).view(torch.uint8).numpy().tobytes()
        for name, tensor in named
    }


class Odd(nn.Module):
    """A layer that no sample reaches, one of bfloat16, dropout, and buffers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.unused = nn.Linear(6, 8)
        self.narrow = nn.Linear(8, 8).bfloat16()
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(8, 4)
        self.register_buffer("most", torch.full((2,), -torch.inf))
        self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        self.most = torch.maximum(self.most, x.detach().max())
        x = self.narrow(self.first(x).bfloat16()).float()
        return self.last(self.drop(self.norm(x)))


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, amsgrad=True, foreach=False)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


JOBS: dict[str, dict[str, Any]] = {
    "batch norm, momentum": {"model": with_batch_norm, "optimizer": sgd},
    "odd, AdamW, pieces, clipped": {
        "model": Odd, "optimizer": adamw, "accumulate": 2, "clip_norm": 0.1,
    },
}  # fmt: skip


def made(changes: dict[str, Any]) -> Job:
    return job(**changes)


@case
def the_device_is_strict() -> None:
    here, there = torch.ones(2), torch.ones(2).to(FAR)
    assert there.device == FAR
    assert (there + 1).device == FAR
    with pytest.raises(RuntimeError, match="one device"):
        there + here


@case
def synchronous_steps_have_the_bits_of_the_cpu() -> None:
    for changes in JOBS.values():
        worlds = [World(made(changes), DATA, 2, device=device) for device in (CPU, FAR)]
        assert device_of(worlds[1].replicas[0].model) == FAR
        for _ in range(5):
            losses = [world.step() for world in worlds]
            assert losses[0] == losses[1]
            for one, other in zip(worlds[0].replicas, worlds[1].replicas, strict=True):
                assert bits(one.model) == near(other.model)
                assert one.model.training


@case
def gradients_are_where_the_wire_and_where_the_optimizer_look() -> None:
    world = World(made(JOBS["batch norm, momentum"]), DATA, 1, device=FAR)
    world.gradients()
    flat = world.steps[0].flat
    assert flat.data.is_cpu
    kept = flat.data.clone()
    flat.data.mul_(2)  # as if another had sent the same
    flat.spread()
    for parameter, gradient in zip(flat.parameters, flat.gradients, strict=True):
        assert parameter.grad is not None
        assert parameter.grad.device == FAR
        assert torch.equal(to_wire(parameter.grad).reshape(-1), gradient)
    assert torch.equal(flat.data, kept * 2)


@case
def buckets_are_whole_when_they_are_announced() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
    x, found = torch.randn(3, 4), {}
    for device in (CPU, FAR):
        there = model.to(device)
        flat = FlatBuffer(there, tail=3, bucket_bytes=(64, 64))
        flat.begin()
        seen: list[tuple[int, list[float]]] = []

        def ready(
            number: int,
            flat: FlatBuffer = flat,
            seen: list[tuple[int, list[float]]] = seen,
        ) -> None:
            bucket = flat.buckets[number]
            seen.append((number, flat.data[bucket.start : bucket.stop].tolist()))

        flat.announce(ready)
        there(to_device(x, device)).square().mean().backward()
        before = len(seen)
        flat.end(1.0)
        found[device] = before, seen, flat.data.tolist()
    assert [number for number, _ in found[FAR][1]] == [0, 1, 2]
    assert found[CPU] == found[FAR]


@case
def sums_from_the_log_are_applied_without_computing() -> None:
    worlds = [World(made(JOBS["batch norm, momentum"]), DATA, 2, device=d) for d in (CPU, FAR)]
    sums = []
    for _ in range(3):
        worlds[0].gradients()
        sums.append(worlds[0].total())
        for own in worlds[0].steps:
            own.flat.data.copy_(sums[-1])
            own.apply()
        worlds[0].at += 1
    behind = worlds[1].steps[0]
    for total in sums:
        behind.flat.data.copy_(total)
        behind.apply()
    assert near(worlds[1].replicas[0].model) == bits(worlds[0].replicas[0].model)


@case
def a_checkpoint_is_on_the_cpu_and_goes_on_anywhere() -> None:
    for changes in JOBS.values():
        undisturbed = World(made(changes), DATA, 2)
        world = World(made(changes), DATA, 2, device=FAR)
        for _ in range(3):
            undisturbed.step()
            world.step()
        for device in (FAR, CPU, FAR):
            tree, tensors = world.replicas[0].state()
            kept = share_of(Writer(), tensors)
            assert all(tensor.is_cpu and type(tensor) is torch.Tensor for tensor in kept.values())
            following = World(made(changes), DATA, 2, begin=world.at, device=device)
            for replica in following.replicas:
                replica.load_state(json.loads(json.dumps(tree)), share_of(Writer(), tensors))
            world = following
            assert undisturbed.step() == world.step()
            assert bits(undisturbed.replicas[1].model) == near(world.replicas[1].model)


@case
def local_sgd_has_the_bits_of_the_cpu() -> None:
    for changes in JOBS.values():
        worlds = [LocalWorld(made(changes), DATA, 2, 2, device=device) for device in (CPU, FAR)]
        for _ in range(3):
            assert worlds[0].round() == worlds[1].round()
            for one, other in zip(worlds[0].replicas, worlds[1].replicas, strict=True):
                assert bits(one.model) == near(other.model)


@case
def outer_steps_have_the_bits_of_the_cpu() -> None:
    asked = made(JOBS["odd, AdamW, pieces, clipped"])

    def summed(replica: Replica, numbers: int) -> OuterGradients:
        return OuterGradients(replica, numbers, outer_optimizer(Outer(), asked, replica.model))

    worlds = [LocalWorld(asked, DATA, 2, 2, device=device, make=summed) for device in (CPU, FAR)]
    for _ in range(3):
        assert worlds[0].round() == worlds[1].round()
        for one, other in zip(worlds[0].replicas, worlds[1].replicas, strict=True):
            assert bits(one.model) == near(other.model)
    for before, own in zip(worlds[1].locals, worlds[0].locals, strict=True):
        own.begin_round()
        before.begin_round()
        tree, tensors = before.state()
        own.load_state(json.loads(json.dumps(tree)), share_of(Writer(), tensors))
    assert worlds[0].round() == worlds[1].round()


@case
def local_sgd_goes_on_within_a_round() -> None:
    changes = JOBS["odd, AdamW, pieces, clipped"]
    worlds = [LocalWorld(made(changes), DATA, 2, 2, device=device) for device in (CPU, FAR)]
    for world in worlds:
        world.round()
        for rank, own in enumerate(world.locals):
            own.begin_round()
            world.train_alone(rank, [world.at])
    following = LocalWorld(made(changes), DATA, 2, 2, device=FAR)
    following.at = worlds[1].at
    for before, own in zip(worlds[1].locals, following.locals, strict=True):
        tree, tensors = before.state()
        own.load_state(json.loads(json.dumps(tree)), share_of(Writer(), tensors))
    for world in (worlds[0], following):
        for rank in range(2):
            world.train_alone(rank, [world.at + 1])
        world.merge()
    for one, other in zip(worlds[0].replicas, following.replicas, strict=True):
        assert bits(one.model) == near(other.model)


@case
def optimizers_keep_what_they_had_where_it_was() -> None:
    replica = Replica(made(JOBS["odd, AdamW, pieces, clipped"]), device=FAR)
    Averaging(replica, numbers=1)  # takes a step
    places = {
        key: value.device
        for state in replica.optimizers[""].state.values()
        for key, value in state.items()
    }
    tree, tensors = replica.state()
    other = Replica(made(JOBS["odd, AdamW, pieces, clipped"]), device=FAR)
    other.load_state(tree, share_of(Writer(), tensors))
    for state in other.optimizers[""].state.values():
        assert {key: value.device for key, value in state.items()} == places


@case
def validation_measures_the_same() -> None:
    changes = {
        **JOBS["batch norm, momentum"],
        "metrics": {"first": lambda out, y: out[:, 0].mean()},
    }
    found = []
    for device in (CPU, FAR):
        replica = Replica(made(changes), device=device)
        source = DatasetSource(DATA, 0)
        evaluation = Evaluation(made(changes), source.samples)
        found.append(evaluation.measure(replica.model, source, evaluation.blocks))
    assert found[0].is_cpu
    assert found[1].is_cpu
    assert found[0].tolist() == found[1].tolist()


@case
def compressed_sums_have_the_bits_of_the_cpu() -> None:
    schedule = COLLECTIVES["scatter-reduce"].schedule
    for method in ("none", "bf16", "int8", "powersgd:1", "topk:0.25", "significance:0.5"):
        found = []
        for device in (CPU, FAR):
            seed_generators(DROPOUT, 1)
            model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8)).to(device)
            flat = FlatBuffer(model, tail=3, bucket_bytes=(64, 64), apart=method != "none")
            exchange = exchange_of(
                compression(method),
                flat,
                1,
                lambda buffer: schedule(0, 2, buffer.numel()),
                torch.optim.SGD(model.parameters(), lr=0.1),
            )
            bytes_of = []
            for _ in range(3):
                flat.begin()
                exchange.begin()
                flat.announce(lambda number: None)
                model(to_device(torch.randn(5, 12), device)).square().mean().backward()
                flat.end(1.0)
                for number in range(len(exchange.buffers)):
                    exchange.contribute(number)
                exchange.adopt()
                flat.spread()
                assert {p.grad.device for p in flat.parameters if p.grad is not None} == {device}
                bytes_of.append([to_wire(p.grad).tolist() for p in flat.parameters])
            own = [tensor.tolist() for tensor in exchange.state()[1].values()]
            found.append((bytes_of, own))
        assert found[0] == found[1], method


@case
def batches_of_any_shape_move() -> None:
    pair = namedtuple("pair", "x y")
    x = torch.arange(3)
    moved = to_device({"a": [x, (x, "text")], "b": pair(x, 3), "c": None}, FAR)
    assert moved["a"][0].device == moved["a"][1][0].device == moved["b"].x.device == FAR
    assert moved["a"][1][1] == "text"
    assert isinstance(moved["b"], pair)
    assert moved["c"] is None
    # A tuple, and a mapping, that know better how they are moved.
    packed = nn.utils.rnn.pack_sequence([torch.ones(2, 1)])
    assert to_device(packed, FAR).data.device == FAR
    assert to_wire(moved["a"][0]).tolist() == [0, 1, 2]
    assert to_wire(moved["a"][0]).is_cpu


@case
def passes_are_timed_when_the_device_is_done() -> None:
    """At each mark of a pass the clock is asked, which waits for the device."""
    asked: list[float] = []
    here = job(
        model=lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)),
        data=lambda: (DATA, DATA),
    )
    replica = Replica(here, device=FAR)
    source, steps = DatasetSource(DATA, 0), Synchronous(here, replica)
    module = SimpleNamespace(synchronize=lambda: asked.append(0.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, far_device.NAME, module, raising=False)
        passes = Passes(here, replica, steps, source, Epochs(len(DATA), 16, 0))
    marks = passes.compute(passes.samples(8), by_layer=True)
    assert len(asked) >= 3 + 3 + 3  # of each layer forward and backward, and of both ends
    assert len(marks.forward()) == len(marks.backward()) == 3
    assert marks.start <= marks.begun[0] <= marks.begun[2] <= marks.loss <= marks.end
    assert min(*marks.forward(), *marks.backward(), *passes.apply()) >= 0
    assert Clocks.of(CPU) == Clocks(time.thread_time, time.process_time)
    assert gpu_of(FAR) is gpu_of(CPU) is None


@case
def buckets_are_those_of_the_cpu() -> None:
    for changes in JOBS.values():
        flats = [
            FlatBuffer(Replica(made(changes), device=device).model, tail=3) for device in (CPU, FAR)
        ]
        assert flats[0].buckets == flats[1].buckets
        assert flats[0].data.dtype is flats[1].data.dtype


def main() -> None:
    found: dict[str, str | None] = {}
    for name, check in CASES.items():
        try:
            with one_thread():
                check()
            found[name] = None
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
