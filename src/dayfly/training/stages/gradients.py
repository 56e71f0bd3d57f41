"""What the passes of a step's micro-batches leave in a stage's flat buffer.

Without virtual workers gradients add up as they come, micro-batch by micro-batch, and the model's
buffers, such as BatchNorm's statistics, move on from one to the next. With them each micro-batch
is a leaf of the batch: it starts from the buffers as they are at the step's start, and its gradient
is kept apart, and joined along the tree (see `training.leaves`):

    passes         f0 f1 f2 b0      f3 b1      b2      b3
    flat buffer             0          1       2       3, bucket by bucket ...
    kept                    0          0..2    0..2, 2         sent: 0..4
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from dayfly.batches import MicroBatch
from dayfly.training.flat import FlatBuffer
from dayfly.training.leaves import LeafExchange
from dayfly.training.stages.compute import Micro


class AddedUp:
    """Gradients of micro-batches add up in the flat buffer.

    Args:
        ready: called with each bucket but the last, in their order, as soon as it is whole.
    """

    def __init__(self, flat: FlatBuffer, ready: Callable[[int], None]) -> None:
        self._flat = flat
        self._ready = ready
        self._last = -1
        self._samples = self._batch = 0

    def begin(self, micros: Sequence[MicroBatch], batch: int) -> None:
        """Begin a step: the micro-batches of this replica, of a batch of so many samples."""
        self._batch, self._samples = batch, sum(micro.samples for micro in micros)
        self._last = micros[-1].number if micros else -1
        self._flat.begin()

    @contextmanager
    def forward(self, micro: Micro) -> Iterator[None]:
        """Inside, a micro-batch's forward pass is done."""
        yield

    @contextmanager
    def backward(self, micro: Micro) -> Iterator[None]:
        """Inside, its backward pass is done."""
        if micro.number == self._last:
            self._flat.announce(self._ready)
        yield

    def end(self) -> None:
        """All passes are done: the flat buffer is to be whole, and announced."""
        if self._last < 0:
            self._flat.announce(self._ready)
        self._flat.end(self._samples / self._batch)


class KeptApart:
    """Each micro-batch is a leaf, with a gradient of its own. Backward passes come in their order.

    Args:
        exchange: keeps the leaves.
        leaves: of this replica, by the numbers that micro-batches have.
    """

    def __init__(
        self, flat: FlatBuffer, ready: Callable[[int], None], exchange: LeafExchange, leaves: range
    ) -> None:
        self._flat = flat
        self._ready = ready
        self._exchange = exchange
        self._leaves = leaves
        self._next = leaves.start
        self._moves: dict[int, list[torch.Tensor]] = {}

    def begin(self, micros: Sequence[MicroBatch], batch: int) -> None:
        """As `AddedUp.begin`."""
        self._next = self._leaves.start
        self._moves.clear()
        self._exchange.begin()

    @contextmanager
    def forward(self, micro: Micro) -> Iterator[None]:
        """As `AddedUp.forward`."""
        self._flat.lend_buffers()
        yield
        self._moves[micro.number] = self._flat.moved(micro.weight)

    @contextmanager
    def backward(self, micro: Micro) -> Iterator[None]:
        """As `AddedUp.backward`."""
        self._skip(micro.number)
        self._begin_leaf()
        yield
        self._end_leaf(micro.weight, self._moves.pop(micro.number))

    def end(self) -> None:
        """As `AddedUp.end`."""
        self._skip(self._leaves.stop)

    def _skip(self, until: int) -> None:
        """The leaves before this one have no samples: a batch may be smaller than their number."""
        while self._next < until:
            self._begin_leaf()
            self._end_leaf(0.0)

    def _begin_leaf(self) -> None:
        self._flat.begin()
        if self._next == self._leaves.stop - 1:
            self._flat.announce(self._ready)

    def _end_leaf(self, weight: float, moves: Sequence[torch.Tensor] | None = None) -> None:
        self._flat.end(weight, moves)
        if self._next < self._leaves.stop - 1:
            self._exchange.keep(self._next - self._leaves.start)
        self._next += 1
