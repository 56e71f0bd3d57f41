"""All all-reduce algorithms, as the suites that run over all of them need them.

A new one is tested by a line in `COLLECTIVES`; if it does not sum in rank order, its order is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from dayfly.wire.collectives import COLLECTIVES, K_REDUCE, Collective, collective
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.keys import SERVER
from dayfly.wire.schedule import Name, Schedule, chunks, split
from tests.collectives.world import sum_in_order


@dataclass(frozen=True)
class Algorithm:
    """An all-reduce algorithm. aggregators: of k-reduce; as many as there are ranks, if fewer."""

    name: str
    aggregators: int | None = None

    def __str__(self) -> str:
        return self.name if self.aggregators is None else f"{self.name}-{self.aggregators}"

    def of(self, size: int) -> Collective:
        """For so many ranks."""
        most = None if self.aggregators is None else min(size, self.aggregators)
        return collective(self.name, most, size)

    def schedules(
        self, size: int, length: int, stored: Iterable[Name] = (), *, chunk: int = 1
    ) -> list[Schedule]:
        """Every rank's schedule, and the server's if there is one."""
        made = self.of(size)
        ranks = [
            made.schedule(rank, size, length, frozenset(stored), chunk=chunk)
            for rank in range(size)
        ]
        return [*ranks, serve(size, length, chunk=chunk)] if made.server and size > 1 else ranks

    def order(self, size: int, owner: int) -> list[int]:
        """The order in which the ranks' terms of this split of `size` splits are summed."""
        ranks = list(range(size))
        return ranks[owner + 1 :] + ranks[: owner + 1] if self.name == "ring" else ranks

    def expected(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        """The sum, in every bit."""
        size, total = len(inputs), torch.empty_like(inputs[0])
        for owner, span in enumerate(split(len(total), size)):
            pieces = [one[span.start : span.stop] for one in inputs]
            total[span.start : span.stop] = sum_in_order(pieces, self.order(size, owner))
        return total

    def stays(self, size: int, length: int, chunk: int) -> set[Name]:
        """The messages that are in the channel afterwards."""
        made = self.of(size)
        if made.server and size > 1:
            return {
                Name(f"sum-{c}", SERVER) for c in range(len(chunks(split(length, 1)[0], chunk)))
            }
        return set(made.sums(size, length, chunk))


ALGORITHMS = [
    *(Algorithm(name) for name in sorted(COLLECTIVES)),
    Algorithm(K_REDUCE, 2),
    Algorithm(K_REDUCE, 3),
]
#: Those that a worker can catch up with that starts again.
REPLAYED = [one for one in ALGORITHMS if one.of(2).sums(2, 1, 1)]
