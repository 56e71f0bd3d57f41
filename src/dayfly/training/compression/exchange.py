"""What workers sum of a flat buffer in a step: its buckets, as they are or by a stateless codec."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dayfly.training.flat import FlatBuffer
from dayfly.training.state import Tensors
from dayfly.wire.codec import Codec


class Exchange:
    """The all-reduces of a step, in their order.

    buffers: what each of them sums, flat tensors. codecs: their form on the wire. early: how many
    of them, from the first on, may begin during the backward pass, as the flat buffer announces
    them; the others begin one after another, after it. remembers: whether a step depends on the
    contributions of the steps before; then a worker that catches up has to compute its own.

    With a codec, the last bucket, which holds no gradients, travels as it is: see `flat`.
    """

    remembers = False

    def __init__(self, flat: FlatBuffer, codec: Codec | None = None) -> None:
        self.flat = flat
        self.buffers = tuple(flat.data[span.start : span.stop] for span in flat.buckets)
        self.codecs: tuple[Codec | None, ...] = (*(codec for _ in flat.buckets[1:]), None)
        self.early = len(self.buffers) - 1

    def contribute(self, number: int) -> None:
        """Fill buffer `number` with this worker's part of the sum, before it is summed.

        The flat buffer's gradients of that bucket are whole by then, and the buffers before it are
        summed up if they are not `early`.
        """
        return None

    def adopt(self) -> None:
        """All is summed: fill the flat buffer with the sums."""
        return None

    def state(self) -> tuple[Tensors, Tensors]:
        """What is to be kept between steps (not copied): of all workers alike, and this one's."""
        return {}, {}

    def load_state(self, shared: Tensors, own: Sequence[Tensors]) -> None:
        """Go on from a state; shared may hold other names, and what is missing is as at step 0.

        own: this worker's, or of those whose part it takes over, after a change of their number.
        """
        return None


def total(parts: Sequence[Tensors], name: str, into: torch.Tensor) -> None:
    """The sum of what workers left to one: a single one's bits as they are, none's 0."""
    into.zero_()
    for number, part in enumerate(parts):
        if number:
            into.add_(part[name])
        else:
            into.copy_(part[name])
