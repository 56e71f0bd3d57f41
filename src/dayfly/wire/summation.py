"""Sums in a fixed order from terms that come in any: a term is added once those before it are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

from dayfly.wire.schedule import Name

#: Memory of the type and length of a flat tensor (n,), to add up in.
Scratch = Callable[[torch.Tensor], torch.Tensor]


class Summation:
    """The sum of one REDUCE, ((t0 + t1) + t2) + ..., for several threads.

    terms: None is the own contribution, `own_P`, which stays as it is until `finish`. What is added
    is let go of at once, so that no more than the sum so far, and what came too early, is held.
    """

    def __init__(self, terms: Sequence[Name | None], own_P: torch.Tensor, scratch: Scratch) -> None:
        self._terms = terms
        self._own_P = own_P
        self._scratch = scratch
        self._early: dict[Name, torch.Tensor] = {}
        self._total: torch.Tensor | None = None
        self._room: torch.Tensor | None = None
        self._next = 0
        self._lock = threading.Lock()

    def add(self, name: Name, term_P: torch.Tensor) -> None:
        """A term came; it may be the message itself, so it is only read."""
        with self._lock:
            self._early[name] = term_P
            # The last is left for `finish`, which adds it right into its place.
            while self._next < len(self._terms) - 1 and self._fold():
                self._next += 1

    def finish(self) -> None:
        """All terms are there: their sum takes the place of the own contribution."""
        with self._lock:
            while self._next < len(self._terms) - 1:
                self._fold()
                self._next += 1
            last = self._term()
            assert last is not None, f"{self._terms[-1]} was never there"
            if self._total is not None:
                torch.add(self._total, last, out=self._own_P)
            elif last is not self._own_P:
                self._own_P.copy_(last)

    def _fold(self) -> bool:
        """Add the next term, if it is there."""
        term = self._term()
        if term is None:
            return False
        if self._total is None:
            self._total = term
        else:
            if self._room is None:
                self._room = self._scratch(self._own_P)
            self._total = torch.add(self._total, term, out=self._room)
        return True

    def _term(self) -> torch.Tensor | None:
        name = self._terms[self._next]
        return self._own_P if name is None else self._early.pop(name, None)
