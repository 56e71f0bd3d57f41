"""Small models, their data and training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

FEATURES, CLASSES, ROWS = 8, 4, 6


def network(width: int = 16, layers: int = 2) -> nn.Sequential:
    """The same on every rank: torch's seed is."""
    torch.manual_seed(1)
    parts: list[nn.Module] = [nn.Linear(FEATURES, width), nn.ReLU()]
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, CLASSES))


def batch(rank: int, step: int, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """Inputs (rows, FEATURES) and classes (rows,), another on each rank and in each step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(rows, FEATURES, generator=generator)
    return inputs, torch.randint(CLASSES, (rows,), generator=generator)


def step(
    model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, rank: int, number: int
) -> Tensor:
    """One step on this rank's batch; its loss."""
    inputs, classes = batch(rank, number)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs).float(), classes)
    loss.backward()
    optimizer.step()
    return loss.detach()


def sgd(parameters: Iterable[Tensor]) -> torch.optim.SGD:
    """With momentum, so that a wrong gradient does not go away."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def held(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers, as they are now."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
