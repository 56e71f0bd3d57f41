"""A worker with several leaves of each batch: gradients that are kept apart, and added as a tree.

The flat buffer takes one leaf after another. What is whole is kept beside it, and joined as soon as
both halves of a node are there (see `wire.leaves`). The last leaf's buckets are joined one by one,
while its backward pass still computes those that follow:

    leaves [0, 5) of 8     leaf 0      1         2         3             4
    flat buffer            |0 ...... |1 ...... |2 ...... |3 .......... |4, bucket by bucket ...
    kept                             |0        |0..2     |0..2, 2      |0..4
                                                                       sent: 0..4 and 4
"""

from __future__ import annotations

import torch

from dayfly.training.compression.exchange import Exchange
from dayfly.training.flat import FlatBuffer
from dayfly.wire.buffers import Buffer, TermsBuffer
from dayfly.wire.leaves import carries, most_kept, nodes_within


class LeafExchange(Exchange):
    """The all-reduces of a step, to which this worker brings the largest nodes inside its leaves.

    Args:
        flat: takes the leaves, one after another.
        leaves: of this worker.
        total: leaves of a batch.
    """

    def __init__(self, flat: FlatBuffer, leaves: range, total: int) -> None:
        super().__init__(flat)
        self._carries = carries(leaves, total)
        self._kept = [torch.zeros_like(flat.data) for _ in range(most_kept(leaves, total))]
        others = self._kept[: len(nodes_within(leaves, total)) - 1]  # beside the last one
        self._terms = [
            TermsBuffer([one[span.start : span.stop] for one in (flat.data, *others)])
            for span in flat.buckets
        ]
        self._full = 0

    def terms(self, number: int) -> Buffer:
        return self._terms[number]

    def begin(self) -> None:
        self._full = 0

    def keep(self, number: int) -> None:
        joined = self._carries[number]
        if joined:
            self._kept[self._full - 1].add_(self.flat.data)
            for place in range(self._full - 1, self._full - joined, -1):
                self._kept[place - 1].add_(self._kept[place])
        else:
            self._kept[self._full].copy_(self.flat.data)
        self._full += 1 - joined

    def contribute(self, number: int) -> None:
        span = self.flat.buckets[number]
        last = self.flat.data[span.start : span.stop]
        for place in range(self._full - 1, self._full - 1 - self._carries[-1], -1):
            torch.add(self._kept[place][span.start : span.stop], last, out=last)
