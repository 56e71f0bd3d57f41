"""The workers' gradients, summed, are the gradient of the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from dayfly.training.replica import build_model
from tests.training.jobs import World, bits, clusters, job, one_thread, perceptron

DATA = clusters(40)


def whole_batch(world: World) -> tuple[nn.Module, torch.Tensor]:
    """Torch's own: the model before the step, with the gradient of the mean loss of the batch."""
    model = build_model(world.job)
    indices = torch.from_numpy(world.epochs.indices(world.at, 0, 1))
    loss = F.cross_entropy(model(DATA.x[indices]), DATA.y[indices])
    loss.backward()
    return model, loss


@settings(max_examples=40, deadline=None)
@given(
    workers=st.integers(1, 6),
    accumulate=st.integers(1, 5),
    batch_size=st.integers(1, 45),
    step=st.integers(0, 5),
)
def test_summed_gradients_are_the_whole_batchs(
    workers: int, accumulate: int, batch_size: int, step: int
) -> None:
    """Shares are unequal, and with few samples empty."""
    world = World(job(batch_size=batch_size, accumulate=accumulate), DATA, workers, begin=step)
    world.gradients()
    total = world.total()
    model, loss = whole_batch(world)
    expected = torch.cat([p.grad.reshape(-1) for p in reversed(list(model.parameters()))])
    torch.testing.assert_close(total[: len(expected)], expected, rtol=1e-6, atol=1e-6)
    assert total[-3:].tolist() == pytest.approx([loss.item(), 0, 0], rel=1e-6)


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.2),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "decay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def plain_loop(job: Any, epochs: Any, steps: int) -> nn.Module:
    """What a user would write without dayfly, over the same order."""
    model = build_model(job)
    optimizer = job.optimizer([p for p in model.parameters() if p.requires_grad])
    for step in range(steps):
        indices = torch.from_numpy(epochs.indices(step, 0, 1))
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.x[indices]), DATA.y[indices]).backward()
        if job.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), job.clip_norm)
        optimizer.step()
    return model


@pytest.mark.parametrize(
    ("workers", "accumulate", "optimizer", "clip_norm"),
    [
        *((5, 2, optimizer, 0.3) for optimizer in OPTIMIZERS),
        *((workers, accumulate, "momentum", None) for workers, accumulate in ((3, 1), (1, 4))),
    ],
)
def test_training_together_is_as_training_alone(
    workers: int, accumulate: int, optimizer: str, clip_norm: float | None
) -> None:
    asked = job(optimizer=OPTIMIZERS[optimizer], accumulate=accumulate, clip_norm=clip_norm)
    world = World(asked, DATA, workers)
    for _ in range(6):
        world.step()
    expected = plain_loop(asked, world.epochs, 6).state_dict()
    # AdamW divides by gradients near zero, which makes more of their last bits.
    tolerance = 1e-4 if optimizer == "adamw" else 1e-6
    for name, tensor in world.replicas[0].model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=tolerance, atol=tolerance)


class Unused(nn.Module):
    """A head that no sample uses, and a layer that some steps use."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = perceptron(), nn.Linear(3, 3)
        self.sometimes = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x)
        return self.sometimes(out) if x.sum() > 0 else out


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.b(torch.tanh(self.a(x))))


def frozen() -> nn.Module:
    model = perceptron()
    model[0].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "optimizer", "clip_norm"),
    [
        # Decay and momentum would move what a step did not use.
        *((Unused, optimizer, None) for optimizer in OPTIMIZERS),
        *((model, "decay", 0.3) for model in (perceptron, frozen, Tied, Unused)),
    ],
)
def test_one_worker_has_the_bits_of_a_plain_loop(
    model: Any, optimizer: str, clip_norm: float | None
) -> None:
    """Parameters that a step did not use stay as they are, whatever their decay or momentum."""
    with one_thread():
        asked = job(model=model, optimizer=OPTIMIZERS[optimizer], clip_norm=clip_norm)
        world = World(asked, DATA, 1)
        for _ in range(6):
            world.step()
        assert bits(world.replicas[0].model) == bits(plain_loop(asked, world.epochs, 6))


def test_a_parameter_that_only_some_workers_used_is_used() -> None:
    """Every replica takes the sum, or the replicas would part."""
    world = World(job(model=Unused, optimizer=OPTIMIZERS["decay"]), DATA, 4)
    unused = bits(world.replicas[0].model)["head.weight"]
    used = []
    for _ in range(6):
        world.gradients()
        used.append([own.flat._used[-1].item() for own in world.steps])
        world.step()
        assert all(bits(r.model) == bits(world.replicas[0].model) for r in world.replicas)
    assert any(0 < sum(row) < 4 for row in used), "the case occurred"
    assert bits(world.replicas[0].model)["head.weight"] == unused


class Mixed(nn.Module):
    """A bfloat16 layer between float32 ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)
        self.middle = nn.Linear(8, 8).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.middle(self.first(x).bfloat16())).float())


@pytest.mark.parametrize("accumulate", [1, 3])
def test_layers_of_different_types(accumulate: int) -> None:
    world = World(job(model=Mixed, accumulate=accumulate), DATA, 3)
    world.gradients()
    total = world.total()
    assert total.dtype is torch.float32
    model, _ = whole_batch(world)
    expected = torch.cat([p.grad.reshape(-1).float() for p in reversed(list(model.parameters()))])
    torch.testing.assert_close(total[: len(expected)], expected, rtol=0.05, atol=0.005)
    before = bits(world.replicas[0].model)
    for _ in range(3):
        world.step()
    after = [bits(replica.model) for replica in world.replicas]
    assert after[1:] == after[:-1]
    assert all(after[0][name] != before[name] for name in before), "every layer was trained"


def test_a_double_model_is_summed_in_doubles() -> None:
    data = clusters(40, torch.float64)
    world = World(job(model=lambda: perceptron().double()), data, 3)
    world.gradients()
    assert world.steps[0].flat.data.dtype is torch.float64
