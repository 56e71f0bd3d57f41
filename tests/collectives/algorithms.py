"""All all-reduce algorithms, for the suites that run over all of them.

A new one is tested by a line in `COLLECTIVES`; if it does not sum in rank order, its order is here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dayfly.wire.collectives import COLLECTIVES, K_REDUCE, Collective, collective
from dayfly.wire.collectives.conformance import CollectiveCase, TreeCase
from dayfly.wire.keys import SERVER
from dayfly.wire.schedule import Name, chunks, split


@dataclass(frozen=True)
class Algorithm(CollectiveCase):
    """An all-reduce algorithm. aggregators: of k-reduce; as many as there are ranks, if fewer."""

    name: str = ""
    aggregators: int | None = None

    def __str__(self) -> str:
        return self.name if self.aggregators is None else f"{self.name}-{self.aggregators}"

    def of(self, size: int) -> Collective:
        """For so many ranks."""
        most = None if self.aggregators is None else min(size, self.aggregators)
        return collective(self.name, most, size)

    def order(self, size: int, owner: int) -> list[int]:
        """The order in which the ranks' terms of this split of `size` splits are summed."""
        ranks = list(range(size))
        return ranks[owner + 1 :] + ranks[: owner + 1] if self.name == "ring" else ranks

    def stays(self, size: int, length: int, chunk: int) -> set[Name]:
        """The messages that are in the channel afterwards."""
        made = self.of(size)
        if made.server and size > 1:
            return {
                Name(f"sum-{c}", SERVER) for c in range(len(chunks(split(length, 1)[0], chunk)))
            }
        return set(made.sums(size, length, chunk))


ALGORITHMS = [
    *(Algorithm(name=name) for name in sorted(COLLECTIVES)),
    Algorithm(name=K_REDUCE, aggregators=2),
    Algorithm(name=K_REDUCE, aggregators=3),
]
#: Those that a worker can catch up with that starts again.
REPLAYED = [one for one in ALGORITHMS if one.of(2).sums(2, 1, 1)]


@dataclass(frozen=True)
class Tree(TreeCase):
    """One of them along the tree over leaves."""

    plain: Algorithm = ALGORITHMS[0]

    def __str__(self) -> str:
        return f"{self.plain}-tree-{self.each}n+{self.more}"

    def without_leaves(self, size: int) -> Collective:
        return self.plain.of(size)


#: With several nodes a rank; the last with one.
TREES = [
    *(
        Tree(plain=one)
        for one in ALGORITHMS
        if one.name in ("overlapped", "pipelined") or one.aggregators == 2
    ),
    Tree(plain=Algorithm(name="scatter-reduce"), each=2, more=0),
]
