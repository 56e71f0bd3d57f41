"""Sums of the ranks' terms, in a fixed order whatever the order in which they arrive.

Other reductions (products, minima, bits) go the same way: see `Fold`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from dayfly.wire.buffers import BufferPool
from dayfly.wire.schedule import Name


class Fold(Protocol):
    """As `torch.add`, `mul`, `minimum`, `maximum`, `bitwise_and`, `bitwise_or`, `bitwise_xor`."""

    def __call__(
        self, input: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor
    ) -> torch.Tensor: ...


#: What sums are made with, and the only one of codecs and of servers that sum.
ADD: Fold = torch.add


#: Terms are added in pieces of so many bytes, which stay in the processor's cache.
_PIECE_BYTES = 2**18


class Summation:
    """The sum of one REDUCE, ((t0 + t1) + t2) + ..., for several threads.

    Args:
        terms: None is the own contribution, `own_P`, which stays as it is until `finish`.
        ours: terms are memory of `buffers`: each is added as soon as those before it are, into the
            first, and given back, so that no more is held than the sum so far and what came too
            early. Terms that are messages in memory are only read; they take nothing more, so all
            are added at the end.
        fold: what is done instead of adding.
    """

    def __init__(
        self,
        terms: Sequence[Name | None],
        own_P: torch.Tensor,
        buffers: BufferPool,
        *,
        ours: bool,
        fold: Fold = ADD,
    ) -> None:
        self._terms = terms
        self._own_P = own_P
        self._buffers = buffers
        self._ours = ours
        self._fold = fold
        self._there: dict[Name, torch.Tensor] = {}
        self._total: torch.Tensor | None = None
        self._next = 0
        self._lock = threading.Lock()

    def add(self, name: Name, term_P: torch.Tensor) -> None:
        """A term came."""
        with self._lock:
            self._there[name] = term_P
            # The last is left for `finish`, which adds it right into its place.
            while self._ours and self._next < len(self._terms) - 1:
                term = self._take(self._terms[self._next])
                if term is None:
                    break
                self._next += 1
                self._total = term if self._total is None else self._both(self._total, term)

    def finish(self) -> None:
        """All terms are there: their sum takes the place of the own contribution."""
        with self._lock:
            terms = [] if self._total is None else [self._total]
            for name in self._terms[self._next :]:
                term = self._take(name)
                assert term is not None, f"{name} was never there"
                terms.append(term)
            add_up(terms, self._own_P, self._buffers.scratch, self._fold)
            for term in terms:
                self._give_back(term)

    def _both(self, total: torch.Tensor, term: torch.Tensor) -> torch.Tensor:
        """The sum of both, in memory that is not the own contribution's."""
        if total is not self._own_P:
            self._fold(total, term, out=total)
            self._give_back(term)
            return total
        return self._fold(total, term, out=term)

    def _give_back(self, term: torch.Tensor) -> None:
        if self._ours and term is not self._own_P:
            self._buffers.give(term)

    def _take(self, name: Name | None) -> torch.Tensor | None:
        return self._own_P if name is None else self._there.pop(name, None)


def add_up(
    terms: Sequence[torch.Tensor],
    into_P: torch.Tensor,
    scratch: Callable[[torch.Tensor], torch.Tensor],
    fold: Fold = ADD,
) -> None:
    """((t0 + t1) + t2) + ... of flat tensors (P,); `into_P` may be one of them.

    Args:
        scratch: memory of the type and length of a tensor.
        fold: what is done instead of adding.
    """
    if len(terms) == 1:
        if terms[0] is not into_P:
            into_P.copy_(terms[0])
        return
    size = _PIECE_BYTES // into_P.itemsize
    for start in range(0, len(into_P), size):
        piece = into_P[start : start + size]
        total, *others = (term[start : start + size] for term in terms)
        # Beside its place until the last, as that may be a term still to be added.
        room = scratch(piece) if len(others) > 1 else piece
        for number, other in enumerate(others, 2):
            total = fold(total, other, out=piece if number == len(terms) else room)
