"""Replicas stay equal, bit for bit, with all that a model keeps besides its parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.training.jobs import World, bits, clusters, job, perceptron, with_batch_norm

DATA = clusters(44)


class Keeps(nn.Module):
    """A model that gets a buffer and moves it in its forward pass as `move` says."""

    def __init__(self, buffer: torch.Tensor, move: Any = None) -> None:
        super().__init__()
        self.body = perceptron()
        self.register_buffer("kept", buffer.clone())
        self.move = move

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.move is not None and self.training:
            self.move(self, x)
        return self.body(x)


def trained(model: Any, workers: int, steps: int = 6, **changes: Any) -> World:
    world = World(job(model=model, **changes), DATA, workers)
    for _ in range(steps):
        world.step()
        assert all(bits(r.model) == bits(world.replicas[0].model) for r in world.replicas)
    return world


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_batch_norm_statistics(workers: int, accumulate: int) -> None:
    world = trained(with_batch_norm, workers, accumulate=accumulate, batch_size=22)
    norm = world.replicas[0].model[1]
    assert norm.num_batches_tracked.item() == 6 * accumulate
    assert norm.running_mean.abs().min() > 0


def test_an_empty_share_moves_no_statistics() -> None:
    """Two samples a batch for five workers: three have nothing to compute."""
    world = trained(lambda: Keeps(torch.zeros(()), count), 5, batch_size=2)
    assert world.replicas[0].model.kept.item() == 6


MASK = torch.full((5, 5), float("-inf")).triu(1)
CONSTANTS = {
    "mask": MASK,
    "infinite": torch.tensor([float("inf"), -float("inf"), 1.0]),
    "nan": torch.tensor([float("nan"), 2.0]),
    "large whole": torch.tensor([2**53 + 1, -(2**62) - 1]),
    "bytes": torch.arange(256, dtype=torch.uint8),
    "flags": torch.tensor([True, False]),
    "complex": torch.polar(torch.ones(4), torch.arange(4.0)),
    "double": torch.tensor([0.1, 1e300], dtype=torch.float64),
    "half": torch.tensor([0.1, 6e4], dtype=torch.float16),
    "empty": torch.empty(0),
}


@pytest.mark.parametrize("workers", [3])
@pytest.mark.parametrize("name", list(CONSTANTS))
def test_constant_buffers_never_change(name: str, workers: int) -> None:
    """Empty shares among them: two samples for three workers in the last batch."""
    constant = CONSTANTS[name]
    world = trained(lambda: Keeps(constant), workers, batch_size=21)
    assert bits(world.replicas[-1].model)["kept"] == bits(Keeps(constant))["kept"]


def count(model: Keeps, x: torch.Tensor) -> None:
    model.kept += 1


def count_down(model: Keeps, x: torch.Tensor) -> None:
    model.kept -= 2


def replace(model: Keeps, x: torch.Tensor) -> None:
    model.kept = 0.5 * model.kept + 0.5 * x.detach().mean(0)


def largest(model: Keeps, x: torch.Tensor) -> None:
    model.kept = torch.maximum(model.kept, x.detach().amax(0))


def seen(model: Keeps, x: torch.Tensor) -> None:
    model.kept.fill_(True)


def turn(model: Keeps, x: torch.Tensor) -> None:
    model.kept *= 1j


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    ("start", "move", "end"),
    [
        (torch.zeros(2, dtype=torch.int64), count, torch.full((2,), 6)),
        (torch.full((2,), 200, dtype=torch.uint8), count_down, torch.full((2,), 188)),
        (torch.tensor(10**9, dtype=torch.int32), count, torch.tensor(10**9 + 6)),
        (torch.zeros(6), replace, None),
        (torch.full((6,), -float("inf")), largest, None),
        (torch.tensor([False, False]), seen, torch.ones(2)),
        (torch.tensor([1 + 2j]), turn, torch.tensor([-1 - 2j])),
    ],
    ids=["count", "bytes down", "count from far", "replaced", "maximum", "flag", "complex"],
)
def test_moving_buffers(
    workers: int, start: torch.Tensor, move: Any, end: torch.Tensor | None
) -> None:
    """Counters move once a step, averages by the mean of the workers' moves."""
    world = trained(lambda: Keeps(start, move), workers, batch_size=22)
    kept = world.replicas[0].model.kept
    if end is not None:
        torch.testing.assert_close(kept, end.to(kept.dtype))
    else:
        assert kept.isfinite().all()
        assert (kept != start).all()


def test_an_average_does_not_depend_on_the_number_of_workers() -> None:
    """A mean over samples moves by the weighted mean: unequal shares count by their size."""
    together, alone = (
        trained(lambda: Keeps(torch.zeros(6), replace), workers, batch_size=22)
        for workers in (4, 1)
    )
    torch.testing.assert_close(
        together.replicas[0].model.kept, alone.replicas[0].model.kept, rtol=1e-5, atol=1e-6
    )


def test_a_model_that_is_the_users_own_gets_no_hooks() -> None:
    """The job's function may return one and the same module; it travels by pickle."""
    mine = perceptron()
    world = World(job(model=lambda: mine), DATA, 1)
    for _ in range(3):
        world.step()
    assert not any(p._post_accumulate_grad_hooks for p in mine.parameters())
