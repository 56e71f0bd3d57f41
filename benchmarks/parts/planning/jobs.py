"""The three jobs that are predicted and measured: much computing, many parameters, many layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from dayfly.job import Job
from dayfly.models import cifar10, gpt, resnet32, wide_mlp, write_arrays
from dayfly.models.data import Pair, RowDataset

_TOKENS, _WORDS, _CLASSES, _FEATURES = 32, 97, 10, 1024
#: Samples that are validated with.
_VALIDATION = 16


def _momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.005, momentum=0.9)


def _plain(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.005)


def _adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


def _images(samples: int) -> Pair:
    return cifar10(samples, validation=_VALIDATION)


def _vectors(samples: int) -> Pair:
    """Noise in random classes: what is learnt does not matter here."""
    noise = np.random.default_rng(0)

    def some(count: int) -> RowDataset:
        x = noise.standard_normal((count, _FEATURES), dtype=np.float32)
        return RowDataset(x, noise.integers(0, _CLASSES, count))

    return some(samples), some(_VALIDATION)


def _text(samples: int) -> Pair:
    """Random tokens, and those that come after them."""
    noise = np.random.default_rng(0)

    def some(count: int) -> RowDataset:
        tokens = noise.integers(0, _WORDS, (count, _TOKENS + 1))
        return RowDataset(tokens[:, :-1].copy(), tokens[:, 1:].copy())

    return some(samples), some(_VALIDATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a job trains.

    samples: that it has, so that an epoch has so many steps. batch_size: for which it is profiled.
    """

    name: str
    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    data: Callable[[int], Pair]
    samples: int
    batch_size: int

    def job(self, data: Path, *, batch_size: int, epochs: int = 1) -> Job:
        """With the data that `write_data` wrote."""
        return Job(
            model=self.model,
            data=data,
            loss=nn.functional.cross_entropy,
            optimizer=self.optimizer,
            batch_size=batch_size,
            epochs=epochs,
        )

    def passes_of(self, model: nn.Module, samples: int) -> Callable[[], None]:
        """What does a forward and a backward pass of so many of the data's samples."""
        job = self.job(Path(), batch_size=samples)
        data, _ = self.data(samples)
        x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)

        def one() -> None:
            model.zero_grad()
            job.loss(model(x), y).backward()

        return one

    @property
    def few(self) -> int:
        """A part of its batch, of which passes are short."""
        return max(1, self.batch_size // 8)


#: ResNet-32 (1.9 MB) computes; the MLP (13 MB) communicates; the GPT (7 MB, 6 layers) is cut.
WORKS = {
    work.name: work
    for work in (
        Work(
            name="cnn",
            model=resnet32,
            optimizer=_momentum,
            data=_images,
            samples=192,
            batch_size=32,
        ),
        Work(
            name="mlp",
            model=partial(wide_mlp, _FEATURES),
            optimizer=_plain,
            data=_vectors,
            samples=480,
            batch_size=32,
        ),
        Work(
            name="gpt",
            model=partial(gpt, vocabulary=_WORDS, window=_TOKENS, layers=4, width=192),
            optimizer=_adam,
            data=_text,
            samples=192,
            batch_size=16,
        ),
    )
}


def write_data(work: Work, scratch: Path) -> Path:
    """The arrays, as a job takes them, once; returns their directory."""
    directory = scratch / f"data-{work.name}"
    if not directory.exists():
        write_arrays(directory, work.data(work.samples))
    return directory
