"""Data of the shapes of known data sets, made by a seed: for benchmarks, not to learn from.

    job = dayfly.Job(data=lambda: cifar10(samples=2000), ...)      made by each worker for itself
    write_arrays("data/cifar10", cifar10(samples=2000))            and data="data/cifar10"

Each function gives (training, validation). Equal arguments give equal bits; the validation samples
depend on the seed, not on how many training samples there are. A loss falls on them, as what is
told apart differs; how far it falls says nothing about the real data.

Shapes: N samples, C channels, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from dayfly.models.transformers import BEGIN, END, PADDING

Array = NDArray[Any]
#: What draws the samples, and how many -> x, y.
Draw = Callable[[np.random.Generator, int], tuple[Array, Array]]
#: Ids of BERT's vocabulary below this are no words.
FIRST_WORD = 1000


class RowDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows of two arrays: x (N, ...) and y (N,) or (N, 2)."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.as_tensor(self.x[index]), torch.as_tensor(self.y[index])


Pair = tuple[RowDataset, RowDataset]


def write_arrays(directory: str | PathLike[str], data: Pair) -> None:
    """Write `x_train.npy`, `y_train.npy`, `x_val.npy` and `y_val.npy`, as a job's `data=` takes.

    Makes the directory if it is not there, and replaces such files in it.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    for samples, part in zip(data, ("train", "val"), strict=True):
        np.save(Path(directory, f"x_{part}.npy"), samples.x)
        np.save(Path(directory, f"y_{part}.npy"), samples.y)


def mnist(samples: int = 2000, *, validation: int = 500, seed: int = 0) -> Pair:
    """x (N, 1, 28, 28) float32, y (N,) int64 of ten classes. The real one: 60,000 and 10,000."""
    return _images(1, 28, samples, validation, seed)


def cifar10(samples: int = 2000, *, validation: int = 500, seed: int = 0, size: int = 32) -> Pair:
    """x (N, 3, size, size) float32, y (N,) int64 of ten classes. The real one: 50,000 and 10,000.

    Args:
        size: a multiple of 4; 224 as Hydrozoa scales it (section 5.1).
    """
    return _images(3, size, samples, validation, seed)


def higgs(samples: int = 2000, *, validation: int = 500, seed: int = 0) -> Pair:
    """x (N, 28) float32, y (N,) int64, 0 or 1. The real one: 11 million in all."""
    return _features(28, samples, validation, seed)


def yfcc(samples: int = 2000, *, validation: int = 500, seed: int = 0) -> Pair:
    """x (N, 4096) float32, y (N,) int64, 0 or 1: features of YFCC100M's images, and one label."""
    return _features(4096, samples, validation, seed)


def imdb(
    samples: int = 2000,
    *,
    validation: int = 500,
    seed: int = 0,
    tokens: int = 512,
    vocabulary: int = 30_522,
) -> Pair:
    """x (N, T) int64 token ids, y (N,) int64, 0 or 1. The real one: 25,000 and 25,000 reviews.

    Of 72 to 512 tokens, 292 in the mean, as CE-scaling says (section IV-A); cut at `tokens`.
    """
    return _texts((72, 512), tokens, vocabulary, samples, validation, seed)


def cola(
    samples: int = 2000,
    *,
    validation: int = 500,
    seed: int = 0,
    tokens: int = 64,
    vocabulary: int = 30_522,
) -> Pair:
    """x (N, T) int64 token ids, y (N,) int64, 0 or 1. The real one: 8,551 and 1,043 sentences.

    Of 6 to 20 tokens, cut at `tokens`.
    """
    return _texts((6, 20), tokens, vocabulary, samples, validation, seed)


def squad(
    samples: int = 2000,
    *,
    validation: int = 500,
    seed: int = 0,
    tokens: int = 384,
    vocabulary: int = 30_522,
) -> Pair:
    """x (N, T) int64, y (N, 2) int64: first and last token of the answer. Real: 87,599 and 10,570.

    A question of ten tokens, then a paragraph that fills at least half of what is left, at most
    all. Hydrozoa's 65.3 GFLOP an input (table 2) are those of 384 tokens: two for each of the
    encoder's 85.05 million parameters and each token.
    """
    first_words, last_words, words = FIRST_WORD, FIRST_WORD + 10, FIRST_WORD + 20
    _enough("tokens of a question and a paragraph", tokens, least=24)
    _enough("words of the vocabulary", vocabulary, least=words + 1)

    def draw(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        # [begin] ten words [end] paragraph, in which is the answer [end] padding
        start = 12
        x = rng.integers(words, vocabulary, (count, tokens))
        x[:, 0], x[:, start - 1] = BEGIN, END
        end = rng.integers((start + tokens) // 2, tokens, count)
        first = rng.integers(start, end - 2)
        last = np.minimum(first + rng.integers(1, 8, count), end - 1)
        # An answer begins and ends with words that stand nowhere else.
        every = np.arange(count)
        x[every, first] = rng.integers(first_words, last_words, count)
        x[every, last] = rng.integers(last_words, words, count)
        x[every, end] = END
        x[np.arange(tokens) > end[:, None]] = PADDING
        return x, np.stack([first, last], axis=1)

    return _drawn(draw, samples, validation, seed)


def _images(channels: int, size: int, samples: int, validation: int, seed: int) -> Pair:
    """Each class is a pattern of 4x4 coarse pixels, under noise four times as strong."""
    if size < 4 or size % 4:
        raise ValueError(f"images of {size} pixels: give a multiple of 4")
    coarse = np.random.default_rng([seed, 0]).standard_normal((10, channels, 4, 4), np.float32)
    coarse *= np.float32(0.25)
    patterns = coarse.repeat(size // 4, axis=2).repeat(size // 4, axis=3)

    def draw(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        y = rng.integers(0, 10, count)
        x = rng.standard_normal((count, *patterns.shape[1:]), np.float32)
        x += patterns[y]
        return x, y

    return _drawn(draw, samples, validation, seed)


def _features(features: int, samples: int, validation: int, seed: int) -> Pair:
    """Normal features; the label is drawn by a logistic function of one direction among them."""
    direction = np.random.default_rng([seed, 0]).standard_normal(features, np.float32)
    direction *= 2 / np.linalg.norm(direction)

    def draw(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        x = rng.standard_normal((count, features), np.float32)
        y = rng.random(count) < 1 / (1 + np.exp(-(x @ direction)))
        return x, y.astype(np.int64)

    return _drawn(draw, samples, validation, seed)


def _texts(
    lengths: tuple[int, int],
    tokens: int,
    vocabulary: int,
    samples: int,
    validation: int,
    seed: int,
) -> Pair:
    """A text begins, has words, and ends; a fifth of them are among twenty words of its class."""
    own, words = 20, FIRST_WORD + 40
    _enough("tokens of a text", tokens, least=3)
    _enough("words of the vocabulary", vocabulary, least=words + 1)

    def draw(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        y = rng.integers(0, 2, count)
        x = rng.integers(words, vocabulary, (count, tokens))
        telling = FIRST_WORD + own * y[:, None] + rng.integers(0, own, (count, tokens))
        x = np.where(rng.random((count, tokens)) < 0.2, telling, x)
        end = np.minimum(rng.integers(lengths[0], lengths[1] + 1, count), tokens) - 1
        x[:, 0] = BEGIN
        x[np.arange(count), end] = END
        x[np.arange(tokens) > end[:, None]] = PADDING
        return x, y

    return _drawn(draw, samples, validation, seed)


def _drawn(draw: Draw, samples: int, validation: int, seed: int) -> Pair:
    """Training and validation samples, each from a generator of its own."""
    _enough("training samples", samples, least=1)
    _enough("validation samples", validation, least=1)
    train = RowDataset(*draw(np.random.default_rng([seed, 1]), samples))
    return train, RowDataset(*draw(np.random.default_rng([seed, 2]), validation))


def _enough(what: str, given: int, *, least: int) -> None:
    if given < least:
        raise ValueError(f"{given} {what}: give at least {least}")
