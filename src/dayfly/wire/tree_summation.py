"""Sums of nodes along the tree over leaves (see `wire.leaves`), in whatever order they arrive."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from dayfly.wire.buffers import BufferPool
from dayfly.wire.leaves import Node, joins
from dayfly.wire.schedule import Name
from dayfly.wire.summation import ADD, Fold

#: Nodes are added in pieces of so many bytes, which stay in the processor's cache.
PIECE_BYTES = 2**18


class TreeSummation:
    """The sum of one REDUCE whose terms are nodes of a tree, for several threads.

    Args:
        terms: None is one of the own nodes, which stay as they are until `finish`.
        nodes: of each term; they fill the tree, in its order.
        own_P: the own nodes, in their order.
        into_P: where the sum belongs: the memory of an own node.
        buffers: lends memory.
        ours: terms are memory of `buffers`: two halves of a node are added as soon as both are
            there, and one is given back. Terms that are messages in memory are only read; they take
            nothing more, so all are added at the end.
        fold: what is done instead of adding.
    """

    def __init__(
        self,
        terms: Sequence[Name | None],
        nodes: tuple[Node, ...],
        own_P: Sequence[torch.Tensor],
        into_P: torch.Tensor,
        buffers: BufferPool,
        *,
        ours: bool,
        fold: Fold = ADD,
    ) -> None:
        self._nodes = {name: node for name, node in zip(terms, nodes, strict=True) if name}
        own = [node for name, node in zip(terms, nodes, strict=True) if name is None]
        self._own = dict(zip(own, own_P, strict=True))
        self._there = dict(self._own)
        self._into_P = into_P
        self._buffers = buffers
        self._ours = ours
        self._fold = fold
        self._root = range(nodes[0].start, nodes[-1].stop)
        self._partners: dict[Node, tuple[Node, Node]] = {}
        for left, right in joins(nodes):
            self._partners[left] = self._partners[right] = (left, right)
        self._lock = threading.Lock()

    def add(self, name: Name, term_P: torch.Tensor) -> None:
        """A term came."""
        with self._lock:
            node = self._nodes.pop(name)
            self._there[node] = term_P
            # The last addition is left for `finish`, right into the sum's place.
            while self._ours and node in self._partners:
                left, right = self._partners[node]
                node = range(left.start, right.stop)
                if node == self._root or not {left, right} <= self._there.keys():
                    break
                self._there[node] = self._both(left, right)

    def finish(self) -> None:
        """All terms are there: their sum takes its place."""
        with self._lock:
            missing = ", ".join(map(str, self._nodes))
            assert not missing, f"{missing} was never there"
            nodes = tuple(sorted(self._there, key=lambda node: node.start))
            pairs, size = joins(nodes), max(1, PIECE_BYTES // self._into_P.itemsize)
            spare: list[torch.Tensor] = []
            for start in range(0, len(self._into_P), size):
                self._add_up(pairs, slice(start, start + size), spare)
            if not pairs and self._into_P is not self._there[nodes[0]]:
                self._into_P.copy_(self._there[nodes[0]])
            for term in spare:
                self._buffers.give(term)
            for node, term in self._there.items():
                if self._ours and node not in self._own:
                    self._buffers.give(term)

    def _add_up(
        self, pairs: Sequence[tuple[Node, Node]], piece: slice, spare: list[torch.Tensor]
    ) -> None:
        """Add a piece of all that is there. spare: memory for sums, more of it if need be."""
        into, idle = self._into_P[piece], list(spare)
        values = {node: term[piece] for node, term in self._there.items()}
        made: dict[Node, torch.Tensor] = {}  # sums, and the whole of the memory that they are in
        for left, right in pairs:
            used = [made.pop(half) for half in (left, right) if half in made]
            node = range(left.start, right.stop)
            if node == self._root:
                out = into  # all else that is read of this piece has been read
            elif used:
                out = used[0][: len(into)]
                made[node] = used[0]
                idle += used[1:]
            else:
                if not idle:
                    idle.append(self._buffers.take(into.dtype, len(into)))
                    spare.append(idle[-1])
                made[node] = idle.pop()
                out = made[node][: len(into)]
            values[node] = self._fold(values.pop(left), values.pop(right), out=out)

    def _both(self, left: Node, right: Node) -> torch.Tensor:
        """The sum of both, in memory that is no own node's. At least one is no own node."""
        one, other = self._there.pop(left), self._there.pop(right)
        if left in self._own:
            return self._fold(one, other, out=other)
        self._fold(one, other, out=one)
        if right not in self._own:
            self._buffers.give(other)
        return one
