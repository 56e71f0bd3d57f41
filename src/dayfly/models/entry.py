"""What the table of models says of one of them, and of the sizes that papers print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

Build = Callable[[], nn.Sequential]
Unit = Literal["thousand", "million", "MB", "MiB"]
#: Of parameters, or of bytes.
UNITS: dict[Unit, int] = {"thousand": 10**3, "million": 10**6, "MB": 10**6, "MiB": 2**20}


def parameters_of(model: nn.Module) -> int:
    """How many numbers its parameters hold; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def on_meta(build: Build) -> nn.Sequential:
    """The model without values: its shapes and sizes, for no memory."""
    with torch.device("meta"):
        return build()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A size that a paper's table gives, and ours.

    where: the paper and its table. printed: the number as it stands there. unit: of what: of
    parameters, in thousands or millions, or of their bytes in float32. ours: the same of our model,
    to as many digits. build: the model that is counted, where it is not the entry's own. count: how
    many of its parameters are counted. note: which form of the model it is, or why the figure is
    not reached.
    """

    where: str
    printed: str
    unit: Unit
    ours: str
    build: Build | None = None
    count: Callable[[nn.Sequential], int] = parameters_of
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether ours agrees, within the digits that are printed."""
        return self.ours == self.printed

    def measure(self, entry: Entry) -> str:
        """The size of the model that is counted, to as many digits as are printed."""
        counted = self.count(on_meta(self.build or entry.build))
        size = counted * (4 if self.unit in ("MB", "MiB") else 1) / UNITS[self.unit]
        return f"{size:.{len(self.printed.partition('.')[2])}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the table.

    build: makes it, as a list of layers. sample_shape: of one sample. sample_type: of its numbers.
    scores: numbers that it gives for a sample, which are one a class for those that classify.
    figures: what papers print of its size.
    """

    build: Build
    sample_shape: tuple[int, ...]
    scores: int
    sample_type: torch.dtype = torch.float32
    figures: tuple[Figure, ...] = ()

    def sample(self, batch_size: int) -> torch.Tensor:
        """A batch without values, (batch_size, *sample_shape), on the meta device."""
        shape = (batch_size, *self.sample_shape)
        return torch.empty(shape, dtype=self.sample_type, device="meta")
