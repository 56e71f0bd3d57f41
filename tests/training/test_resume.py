"""Every optimizer and scheduler goes on from its state with the bits of not having stopped."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lr

from dayfly.training.replica import Replica
from tests.training.jobs import World, bits, clusters, job, with_batch_norm

DATA = clusters(40)

#: Need something that a job refuses: a closure, sparse gradients; or matrices only.
ODD = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name not in ODD
)
VARIANTS: dict[str, Any] = {
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "groups": lambda p: torch.optim.SGD(
        [{"params": p[:2], "lr": 0.05}, {"params": p[2:], "momentum": 0.5}], lr=0.1
    ),
    "tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "centered": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9),
    "fused": lambda p: torch.optim.AdamW(iter(p), lr=0.01, fused=True),
}


def mixed() -> nn.Module:
    """Its bfloat16 layer's state has numbers that are not bfloat16."""
    return nn.Sequential(nn.Linear(6, 8), Bfloat16(), nn.Linear(8, 4))


class Bfloat16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8).bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.bfloat16()).float()


SCHEDULERS: dict[str, Any] = {
    "StepLR": lambda o: lr.StepLR(o, 2, gamma=0.5),
    "MultiStepLR": lambda o: lr.MultiStepLR(o, [2, 4, 4], gamma=0.3),
    "CosineAnnealingLR": lambda o: lr.CosineAnnealingLR(o, T_max=5),
    "OneCycleLR": lambda o: lr.OneCycleLR(o, max_lr=0.3, total_steps=12),
    "SequentialLR": lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.1, total_iters=3), lr.ExponentialLR(o, 0.8)], milestones=[4]
    ),
    "LambdaLR": lambda o: lr.LambdaLR(o, lambda step: 1 / (1 + step)),
    "MultiplicativeLR": lambda o: lr.MultiplicativeLR(o, lambda step: 0.9),
    "CosineAnnealingWarmRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 3, T_mult=2),
    "PolynomialLR": lambda o: lr.PolynomialLR(o, total_iters=7),
    "CyclicLR": lambda o: lr.CyclicLR(o, 0.01, 0.2, step_size_up=3),
    "ChainedScheduler": lambda o: lr.ChainedScheduler([lr.ConstantLR(o), lr.StepLR(o, 3)]),
}


def through_json(replica: Replica) -> tuple[Any, dict[str, torch.Tensor]]:
    """What a checkpoint keeps, as it comes back from one."""
    tree, tensors = replica.state()
    text = json.dumps(tree, allow_nan=False)
    return json.loads(text), {name: tensor.clone() for name, tensor in tensors.items()}


def advance(world: World, steps: int, losses: tuple[float, ...] = ()) -> list[Any]:
    seen = []
    for number in range(steps):
        loss = world.step()
        replica = world.replicas[0]
        if losses:
            replica.end_epoch(losses[number])
        rates = [float(group["lr"]) for group in replica.optimizers[""].param_groups]
        seen.append((loss, rates, bits(replica.model)))
    return seen


def assert_resumes(asked: Any, losses: tuple[float, ...] = ()) -> list[Any]:
    whole = World(asked, DATA, 1)
    expected = advance(whole, 7, losses)
    for stop in (1, 4):
        first = World(asked, DATA, 1)
        advance(first, stop, losses)
        again = World(asked, DATA, 1, begin=stop)
        again.replicas[0].load_state(*through_json(first.replicas[0]))
        assert advance(again, 7 - stop, losses[stop:]) == expected[stop:]
        assert str(through_json(again.replicas[0])) == str(through_json(whole.replicas[0]))
    return expected


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *((name, with_batch_norm) for name in OPTIMIZERS),
        *((name, mixed) for name in ("SGD", "AdamW", "RMSprop")),
    ],
)
def test_optimizers(name: str, model: Any) -> None:
    kind = getattr(torch.optim, name)
    assert_resumes(job(optimizer=lambda p: kind(p, lr=0.01), model=model))


@pytest.mark.parametrize("name", list(VARIANTS))
def test_optimizers_with_options(name: str) -> None:
    assert_resumes(job(optimizer=VARIANTS[name]))


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_schedulers(name: str) -> None:
    asked = job(scheduler=SCHEDULERS[name], scheduler_every="step")
    seen = assert_resumes(asked)
    assert len({str(rates) for _, rates, _ in seen}) > 1, "the rate changed"


def test_reduce_on_plateau_goes_by_the_validation_loss() -> None:
    losses = (1.0, 0.9, 0.95, 0.93, 0.92, 0.91, 0.5)
    asked = job(scheduler=lambda o: lr.ReduceLROnPlateau(o, patience=1, factor=0.5))
    seen = assert_resumes(asked, losses)
    assert [rates[0] for _, rates, _ in seen] == pytest.approx(
        [0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025]
    )


def test_reduce_on_plateau_waits_for_a_validation() -> None:
    replica = Replica(job(scheduler=lambda o: lr.ReduceLROnPlateau(o, patience=0)))
    for loss in (1.0, None, None, None):
        replica.end_epoch(loss)
    assert replica.optimizers[""].param_groups[0]["lr"] == 0.1
    replica.end_epoch(2.0)
    assert replica.optimizers[""].param_groups[0]["lr"] == pytest.approx(0.01)


def test_schedulers_by_epoch_step_once_an_epoch() -> None:
    world = World(job(scheduler=lambda o: lr.StepLR(o, 1, gamma=0.5)), DATA, 1)
    world.step()
    world.step()
    assert world.replicas[0].optimizers[""].param_groups[0]["lr"] == 0.1
    world.replicas[0].end_epoch(None)
    assert world.replicas[0].optimizers[""].param_groups[0]["lr"] == 0.05
