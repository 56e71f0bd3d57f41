"""Models that are cut in tests, and the job around one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dayfly.job import Job


def job_of(model: Callable[[], nn.Module], loss: Any = nn.functional.cross_entropy) -> Job:
    return Job(
        model=model, data="digits", loss=loss, optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1)
    )


def images(count: int = 6, size: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of x (1, size, size) and a label of 4 classes."""
    draw = torch.Generator().manual_seed(3)
    return [(torch.randn(1, size, size, generator=draw), torch.tensor(i % 4)) for i in range(count)]


def rows(count: int = 6, width: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of x (width,) and a label of 4 classes."""
    draw = torch.Generator().manual_seed(4)
    return [(torch.randn(width, generator=draw), torch.tensor(i % 4)) for i in range(count)]


def tokens(count: int = 6, length: int = 5) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of x (length,) of 16 words and a label of 4 classes."""
    draw = torch.Generator().manual_seed(5)
    return [
        (torch.randint(16, (length,), generator=draw), torch.tensor(i % 4)) for i in range(count)
    ]


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )


def cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(256, 4),
    )


class Block(nn.Module):
    """A block of a small transformer, with a mask that is a buffer and not saved."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        self.register_buffer("mask", mask, persistent=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, attn_mask=self.mask, need_weights=False)[0]
        return x + self.mlp(x)


class Embed(nn.Module):
    def __init__(self, words: int, width: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.words(x) + self.places


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


class Gpt(nn.Module):
    """Layers that are found by the method."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Embed(16, 8, 5)
        self.blocks = nn.ModuleList([Block(8, 5) for _ in range(3)])
        self.mean = Mean()
        self.head = nn.Linear(8, 4)

    def layers(self) -> list[nn.Module]:
        return [self.embed, *self.blocks, self.mean, self.head]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers():
            x = layer(x)
        return x


class Cell(nn.Module):
    """As a cell of AmoebaNet: of the last two results come the newer and the next."""

    def __init__(self, width: int, *, inplace: bool = False) -> None:
        super().__init__()
        self.newer, self.older = nn.Linear(width, width), nn.Linear(width, width)
        self.act = nn.ReLU(inplace=inplace)

    def forward(
        self, x: torch.Tensor | tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        older, newer = x if isinstance(x, tuple) else (x, x)
        return newer, self.act(self.newer(newer) + self.older(older))


class Second(nn.Module):
    def forward(self, x: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return x[1]


def cells() -> nn.Sequential:
    return nn.Sequential(Cell(8), Cell(8), Cell(8, inplace=True), Second(), nn.Linear(8, 4))


class Masked(nn.Module):
    """Adds a mask to what passes, of integers or bools."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Any) -> list[Any]:
        if isinstance(x, list):
            (values, keep), scale = x
            return [(self.linear(values) * keep, keep), scale]
        return [(self.linear(x), x > 0), torch.tensor(2)]


class Unmasked(nn.Module):
    def forward(self, x: Any) -> torch.Tensor:
        return x[0][0] * x[1]


def masked() -> nn.Sequential:
    return nn.Sequential(Masked(8), Masked(8), Unmasked(), nn.Linear(8, 4))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def recurrent() -> nn.Sequential:
    return nn.Sequential(Embed(16, 8, 5), Recurrent(), Recurrent(), Mean(), nn.Linear(8, 4))
