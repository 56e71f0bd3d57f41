"""Batches as a script's loop gives them: whole, the same at every rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch.utils._pytree import tree_leaves, tree_map

from dayfly.batches import share
from dayfly.errors import RequestError
from dayfly.training.order import Epochs
from dayfly.training.slices import Piece


class Given:
    """The batch of the step that is being taken, as one rank's slice of it.

    Args:
        replica: this rank's, of `replicas` that share a batch.
        parts: pieces in which a slice is computed.
    """

    def __init__(self, replica: int, replicas: int, parts: int) -> None:
        self._replica, self._replicas, self._parts = replica, replicas, parts
        self.leaves = range(replica, replica + 1)
        self._batch: Any = None
        self.samples = 0

    def take(self, batch: Any) -> None:
        """This is the batch from now on."""
        self._batch, self.samples = batch, samples_of(batch)

    def pieces(self, step: int, leaf: int | None = None) -> Iterator[Piece]:
        """As `Slices.pieces`, of the batch that was taken."""
        mine = share(self.samples, self._replica, self._replicas)
        for number in range(self._parts):
            piece = share(len(mine), number, self._parts)
            if piece:
                first = mine.start + piece.start
                rows = rows_of(self._batch, first, first + len(piece))
                yield Piece(number, len(piece), rows, last=number == self._parts - 1)

    def lent(self) -> AbstractContextManager[None]:
        """Nothing is read ahead: the script reads its batches."""
        return nullcontext()

    def at_work(self) -> AbstractContextManager[None]:
        """As `lent`."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class GivenBatches(Epochs):
    """Batches as they are given: nobody knows how many there will be."""

    given: Given

    def batch(self, step: int) -> range:
        return range(self.given.samples)


def samples_of(batch: Any) -> int:
    """Samples of a batch: rows of its first tensor. Raises RequestError if it has none."""
    for leaf in tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.ndim:
            return len(leaf)
    raise RequestError("model.step() was given no tensor with a row for each sample")


def rows_of(batch: Any, start: int, stop: int) -> Any:
    """Some samples of a batch."""
    samples = samples_of(batch)

    def cut(leaf: Any) -> Any:
        rows = isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and len(leaf) == samples
        return leaf[start:stop] if rows else leaf

    return tree_map(cut, batch)


def few_of(batch: Any, most: int) -> list[Any]:
    """The first samples of a batch, one by one, as a Dataset has them."""
    some = range(min(most, samples_of(batch)))
    return [tree_map(_row, rows_of(batch, number, number + 1)) for number in some]


def _row(leaf: Any) -> Any:
    return leaf[0] if isinstance(leaf, torch.Tensor) and leaf.ndim else leaf


def digest_of(batch: Any, *more: int) -> float:
    """A number of 48 bits, which float64 holds exactly, of a batch's bytes and more numbers."""
    digest = xxhash.xxh3_64(repr(more).encode() if more else b"")
    for leaf in tree_leaves(batch):
        if isinstance(leaf, torch.Tensor):
            plain = leaf.detach().cpu().contiguous()
            digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return float(digest.intdigest() >> 16)
