"""A cut, tried; and models whose layers are given to them as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.training.replica import build_model
from dayfly.training.stages.forms import BoundaryForm
from dayfly.training.stages.probe import check_stages
from tests.stages.models import job_of, rows


def checked(
    model: Callable[[], nn.Module], cut: list[int], samples: list[Any] | None = None
) -> tuple[BoundaryForm, ...]:
    job = job_of(model)
    return check_stages(job, build_model(job), cut, rows() if samples is None else samples)


def refusal(
    model: Callable[[], nn.Module], cut: list[int], samples: list[Any] | None = None
) -> str:
    with pytest.raises(RequestError) as caught:
        checked(model, cut, samples)
    return str(caught.value)


class Returning(nn.Module):
    """Returns what a function makes of its input."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Any) -> Any:
        return self.make(x)


class Own(nn.Module):
    """A model with layers, and a forward that may be another thing."""

    def __init__(self, forward: Callable[[Own, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 4)
        self.given = forward

    def layers(self) -> list[nn.Module]:
        return [self.one, self.two]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.given(self, x)


def returning(make: Callable[[Any], Any], back: Callable[[Any], Any]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(8, 8), Returning(make), Returning(back), nn.Linear(8, 4))
