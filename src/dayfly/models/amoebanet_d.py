"""AmoebaNet-D: large parameters and large activations, and two ways into each cell.

Real and others, "Regularized Evolution for Image Classifier Architecture Search" (2018), found the
cells; Huang and others, "GPipe" (2018), made them the usual test of pipelines, as FuncPipe does.

A cell sums pairs of operations on earlier states. State 0 is the output of the cell before, state 1
of the one before that, both brought to F channels; states 2 to 6 are the sums:

    normal cell                                  reduction cell
    2 = conv 1x1 (1)      + max pool 3x3 (1)     2 = max pool 2x2 (0) / 2  + max pool 3x3 (0) / 2
    3 = state 1           + conv 1x7, 7x1 (0)    3 = state 2               + conv 3x3 (1) / 2
    4 = conv 1x1 (0)      + conv 1x7, 7x1 (0)    4 = conv 1x7, 7x1 (2)     + max pool 3x3 (2)
    5 = max pool 3x3 (2)  + state 2              5 = state 3               + max pool 2x2 (1) / 2
    6 = avg pool 3x3 (1)  + conv 1x1 (5)         6 = avg pool 3x3 (2)      + conv 1x1 (3)
    out: states 0, 3, 4, 6 side by side          out: states 4, 5, 6 side by side

The normal cell puts out states 0, 3, 4, 6, as the authors' program does, not 4, 5, 6, as figure 6
of Real et al. has it: only so are GPipe's sizes reached (its table 1: 318M for layers 18, filters
416; here 319,024,120).

Shapes: B samples, C channels, H and W pixels; F, a cell's `channels`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

#: What passes between cells: (output of this cell, output of the one before it).
States = tuple[torch.Tensor, torch.Tensor]


def _conv(channels_in: int, channels: int, *size: int, stride: int = 1) -> nn.Sequential:
    """Returns ReLU, convolution, BatchNorm; `size` is 1, or the window's height and width."""
    high, wide = size if len(size) == 2 else (size[0], size[0])
    padding = (high // 2, wide // 2)
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels_in, channels, (high, wide), stride, padding, bias=False),
        nn.BatchNorm2d(channels),
    )


def _conv_1x1(channels: int, stride: int) -> nn.Module:
    return _conv(channels, channels, 1, stride=stride)


def _conv_3x3(channels: int, stride: int) -> nn.Module:
    narrow = channels // 4
    return nn.Sequential(
        _conv(channels, narrow, 1),
        _conv(narrow, narrow, 3, stride=stride),
        _conv(narrow, channels, 1),
    )


def _conv_1x7_7x1(channels: int, stride: int) -> nn.Module:
    if stride != 1:
        raise ValueError(f"1x7 and 7x1 convolutions of stride {stride}: no cell has them")
    narrow = channels // 4
    return nn.Sequential(
        _conv(channels, narrow, 1),
        _conv(narrow, narrow, 1, 7),
        _conv(narrow, narrow, 7, 1),
        _conv(narrow, channels, 1),
    )


def _avg_pool_3x3(channels: int, stride: int) -> nn.Module:
    return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)


def _max_pool_3x3(channels: int, stride: int) -> nn.Module:
    return nn.MaxPool2d(3, stride, padding=1)


def _max_pool_2x2(channels: int, stride: int) -> nn.Module:
    return nn.MaxPool2d(2, stride)


def _as_it_is(channels: int, stride: int) -> nn.Module:
    return nn.Identity()


#: An operation, made for (channels, stride), and the state that it takes.
Taken = tuple[Callable[[int, int], nn.Module], int]

# The table at the top of this file.
NORMAL: tuple[tuple[Taken, Taken], ...] = (
    ((_conv_1x1, 1), (_max_pool_3x3, 1)),
    ((_as_it_is, 1), (_conv_1x7_7x1, 0)),
    ((_conv_1x1, 0), (_conv_1x7_7x1, 0)),
    ((_max_pool_3x3, 2), (_as_it_is, 2)),
    ((_avg_pool_3x3, 1), (_conv_1x1, 5)),
)
REDUCTION: tuple[tuple[Taken, Taken], ...] = (
    ((_max_pool_2x2, 0), (_max_pool_3x3, 0)),
    ((_as_it_is, 2), (_conv_3x3, 1)),
    ((_conv_1x7_7x1, 2), (_max_pool_3x3, 2)),
    ((_as_it_is, 3), (_max_pool_2x2, 1)),
    ((_avg_pool_3x3, 2), (_conv_1x1, 3)),
)
NORMAL_OUT, REDUCTION_OUT = (0, 3, 4, 6), (4, 5, 6)


class Halved(nn.Module):
    """x_BCHW (B, C, H, W) -> (B, `channels`, H / 2, W / 2), for even H and W.

    Half of the channels come from the pixels of even row and column, half from the odd ones.
    """

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(channels_in, channels // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(channels_in, channels // 2, 1, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Both halves, normalised together."""
        x_BCHW = nn.functional.relu(x_BCHW)
        halves = self.even(x_BCHW), self.odd(x_BCHW[:, :, 1:, 1:])
        normalised: torch.Tensor = self.norm(torch.cat(halves, dim=1))
        return normalised


class Sum(nn.Module):
    """Two states (B, F, H, W) -> the sum of an operation on each."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """A cell's next state."""
        added: torch.Tensor = self.first(one) + self.second(other)
        return added


class Cell(nn.Module):
    """(x, before) -> (out, x), or out alone from the last cell.

    x: (B, channels_in, H, W). before: (B, channels_before, H, W), or (..., 2H, 2W) if the cell
    before was a reduction; a cell that gets x alone, after the stem, takes it as both.

    Attributes:
        out: (B, 4F, H, W) of a normal cell, (B, 3F, H / 2, W / 2) of a reduction.
    """

    def __init__(
        self,
        channels_before: int,
        channels_in: int,
        channels: int,
        *,
        reduction: bool,
        after_reduction: bool,
        last: bool = False,
    ) -> None:
        super().__init__()
        self.out = REDUCTION_OUT if reduction else NORMAL_OUT
        self.last = last
        self.channels_out = channels * len(self.out)
        self.fit = _conv(channels_in, channels, 1)
        self.fit_before: nn.Module = nn.Identity()
        if after_reduction:
            self.fit_before = Halved(channels_before, channels)
        elif channels_before != channels:
            self.fit_before = _conv(channels_before, channels, 1)
        self.sums, self.taken = nn.ModuleList(), []
        for (first, i), (second, j) in REDUCTION if reduction else NORMAL:
            # What takes an input of the cell brings it to the cell's size.
            halving = 2 if reduction else 1
            self.sums.append(
                Sum(
                    first(channels, halving if i < 2 else 1),
                    second(channels, halving if j < 2 else 1),
                )
            )
            self.taken.append((i, j))

    def forward(self, given: torch.Tensor | States) -> torch.Tensor | States:
        """The sums of the table, one after another."""
        x, before = given if isinstance(given, tuple) else (given, given)
        states = [self.fit(x), self.fit_before(before)]
        for both, (i, j) in zip(self.sums, self.taken, strict=True):
            states.append(both(states[i], states[j]))
        out = torch.cat([states[number] for number in self.out], dim=1)
        return out if self.last else (out, x)


def amoebanet_d(layers: int = 18, filters: int = 256, classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, H, W), H and W multiples of 32 -> scores (B, classes).

    The list has layers + 6 entries: a convolution, two reductions (the stem), then normal cells in
    three groups with a reduction between them, and the classifier. A batch norm needs more than one
    pixel of a channel: images of 32 train in batches of 2 or more.

    Args:
        layers: normal cells, a multiple of 3.
        filters: F of the first normal cells, a multiple of 8.

    Raises:
        ValueError: other layers or filters.
    """
    if layers < 3 or layers % 3:
        raise ValueError(f"AmoebaNet-D of {layers} normal cells: give a multiple of 3")
    if filters < 8 or filters % 8:
        raise ValueError(f"AmoebaNet-D of {filters} filters: give a multiple of 8")
    kinds = [True, True, *(([False] * (layers // 3) + [True]) * 3)[:-1]]
    channels = channels_before = channels_in = filters // 4
    stem = nn.Sequential(
        nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels)
    )
    cells: list[Cell] = []
    for number, reduction in enumerate(kinds):
        channels *= 2 if reduction else 1
        cell = Cell(
            channels_before,
            channels_in,
            channels,
            reduction=reduction,
            after_reduction=number > 0 and kinds[number - 1],
            last=number == len(kinds) - 1,
        )
        channels_before, channels_in = channels_in, cell.channels_out
        cells.append(cell)
    head = nn.Sequential(
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, classes)
    )
    return nn.Sequential(stem, *cells, head)


def amoebanet_d18(classes: int = 1000) -> nn.Sequential:
    """18 normal cells, 256 filters; 24 layers, 122,470,120 parameters, 467.2 MiB.

    FuncPipe's table 1 says 476 MB. Its published program builds this model, for 1000 classes, and
    the table's other sizes are MiB of such models, so that 476 is likely 467 with two digits
    exchanged: in MB it would be 489.9; for CIFAR-10's ten classes 451.7 MiB or 473.7 MB.

    The table's activations, 432 MB a sample, are those of 224x224 pixels: what all operations put
    out is 429.9 MiB.
    """
    return amoebanet_d(18, 256, classes)


def amoebanet_d36(classes: int = 1000) -> nn.Sequential:
    """36 normal cells, 256 filters; 42 layers, 236,194,024 parameters, 901.0 MiB.

    FuncPipe's table 1 says 900 MB, and means MiB: it lacks one, as if rounded to two digits. Its
    activations are 697 MB a sample; what all operations put out for 224x224 pixels is 723.4 MiB.
    """
    return amoebanet_d(36, 256, classes)
