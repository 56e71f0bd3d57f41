"""How large a model is, for the tests of models; built without memory on the meta device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def parameters(model: nn.Module) -> int:
    """Numbers in its parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def mib(numbers: int) -> float:
    """So many float32 numbers in MiB, to one digit."""
    return round(numbers * 4 / 2**20, 1)


def on_meta(build: Callable[[], nn.Sequential]) -> nn.Sequential:
    """The model without its values: shapes can be computed, numbers cannot."""
    with torch.device("meta"):
        return build()
