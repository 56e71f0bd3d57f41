"""What the conformance suite of collectives is given: a collective, and what its ranks bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from dayfly.wire.buffers import Buffer, TermsBuffer
from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.conformance_world import random_inputs, sum_in_order
from dayfly.wire.collectives.leaves import nodes_of, over_leaves
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.leaves import Node, halves
from dayfly.wire.schedule import Name, Schedule, split

#: Stands for an element of a buffer: the names of its terms, in the order of their addition.
Terms = tuple[Any, ...]
#: A buffer with names for numbers.
Named = list[Terms]


@dataclass(frozen=True)
class CollectiveCase:
    """A collective, as the suite needs it; override what differs.

    Attributes:
        collective: the same for any number of ranks; None: `of` is overridden.
        cost_error: how far the stated time may be from the schedule's in virtual time, relative to
            that.
    """

    collective: Collective | None = None
    cost_error: float = 0.3

    def of(self, size: int) -> Collective:
        """Returns the collective for so many ranks."""
        assert self.collective is not None, "give a collective, or override `of`"
        return self.collective

    def order(self, size: int, owner: int) -> list[int]:
        """Returns the order in which the ranks' terms of this of `size` splits are summed."""
        return list(range(size))

    def schedules(
        self, size: int, length: int, stored: Iterable[Name] = (), *, chunk: int = 1
    ) -> list[Schedule]:
        """Returns every rank's schedule, and that of a server that sums if it needs one."""
        made = self.of(size)
        ranks = [
            made.schedule(rank, size, length, frozenset(stored), chunk=chunk)
            for rank in range(size)
        ]
        return [*ranks, serve(size, length, chunk=chunk)] if made.server and size > 1 else ranks

    def inputs(self, size: int, length: int, seed: int) -> list[torch.Tensor]:
        """Returns what is summed on so many ranks: here a term a rank."""
        return random_inputs(size, length, seed)

    def buffer(self, rank: int, size: int, inputs: list[torch.Tensor]) -> Buffer:
        """Returns what a rank brings of the inputs, copied."""
        return inputs[rank].clone()

    def terms(self, rank: int, size: int, length: int) -> Named:
        """Returns the same with names for numbers."""
        return [(rank,)] * length

    def named(self, size: int, length: int) -> Named:
        """Returns the sum with names for numbers."""
        expected: Named = [()] * length
        for owner, span in enumerate(split(length, size)):
            expected[span.start : span.stop] = [tuple(self.order(size, owner))] * len(span)
        return expected

    def expected(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        """Returns the sum, in every bit."""
        size, total = len(inputs), torch.empty_like(inputs[0])
        for owner, span in enumerate(split(len(total), size)):
            pieces = [one[span.start : span.stop] for one in inputs]
            total[span.start : span.stop] = sum_in_order(pieces, self.order(size, owner))
        return total


@dataclass(frozen=True)
class TreeCase(CollectiveCase):
    """A collective along the tree over leaves: `each` times as many as ranks, and `more`."""

    each: int = 3
    more: int = 1

    def leaves(self, size: int) -> int:
        """Returns the leaves of a batch on so many ranks."""
        return self.each * size + self.more

    def without_leaves(self, size: int) -> Collective:
        """Returns the collective that ranks with one contribution each would run."""
        return super().of(size)

    def of(self, size: int) -> Collective:
        return over_leaves(self.without_leaves(size), size, self.leaves(size))

    def inputs(self, size: int, length: int, seed: int) -> list[torch.Tensor]:
        return random_inputs(self.leaves(size), length, seed)

    def buffer(self, rank: int, size: int, inputs: list[torch.Tensor]) -> Buffer:
        nodes = nodes_of(size, len(inputs))[rank]
        own = [by_the_tree(node, lambda leaf: inputs[leaf], torch.add) for node in nodes]
        return TermsBuffer([one.clone() for one in (own[-1], *own[:-1])])

    def terms(self, rank: int, size: int, length: int) -> Named:
        nodes = nodes_of(size, self.leaves(size))[rank]
        own = [by_the_tree(node, lambda leaf: leaf, _pair) for node in nodes]
        return [term for one in (own[-1], *own[:-1]) for term in [one] * length]

    def named(self, size: int, length: int) -> Named:
        return [by_the_tree(range(self.leaves(size)), lambda leaf: leaf, _pair)] * length

    def expected(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        leaves = range(len(inputs))
        total: torch.Tensor = by_the_tree(leaves, lambda leaf: inputs[leaf], torch.add)
        return total


def by_the_tree(node: Node, leaf: Callable[[int], Any], add: Callable[[Any, Any], Any]) -> Any:
    """Returns the sum of a node's leaves, as the tree has it."""
    if len(node) == 1:
        return leaf(node.start)
    left, right = (by_the_tree(half, leaf, add) for half in halves(node))
    return add(left, right)


def _pair(one: Any, other: Any) -> Any:
    return one, other
