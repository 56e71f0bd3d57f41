"""What workers sum of a flat buffer in a step: its buckets, as they are or by a stateless codec.

With error feedback a worker keeps what was not sent, its residual, and adds it to the next step's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch

from dayfly.training.flat import FlatBuffer
from dayfly.training.state import Tensors
from dayfly.wire.buffers import Buffer
from dayfly.wire.codec import CODECS, Codec
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import Kind, Schedule, Span


class Exchange:
    """The all-reduces of a step, in their order.

    With a codec, the last bucket of the flat buffer, which holds no gradients, is the tail of the
    one before: it travels in the same messages, as it is.

    Attributes:
        buffers: what each of them sums, flat tensors; of compressed ones the gradients.
        packings: how they travel.
        chains: of each bucket, the buffers that are summed one after another once it is whole.
        early: how many chains, from the first on, may begin during the backward pass, as the flat
            buffer announces their buckets; the others begin one after another, after it.
        remembers: whether a step depends on the contributions of the steps before; then a worker
            that catches up has to compute its own.
    """

    remembers = False

    def __init__(self, flat: FlatBuffer, codec: Codec | None = None) -> None:
        self.flat = flat
        whole = [flat.data[span.start : span.stop] for span in flat.buckets]
        packings: list[Packing | None] = [None] * len(whole)
        if codec is not None:
            *whole, tail = whole
            packings = [*(Packing(codec) for _ in whole[1:]), Packing(codec, tail)]
        self.buffers = tuple(whole)
        self.packings = tuple(packings)
        self.chains: tuple[tuple[int, ...], ...] = tuple((n,) for n in range(len(self.buffers)))
        self.early = len(self.chains) - 1

    def terms(self, number: int) -> Buffer:
        """What this worker brings to the sum of buffer `number`, which takes that one's place."""
        return self.buffers[number]

    def begin(self) -> None:
        """A step begins, of which this worker computes its part."""
        return None

    def keep(self, number: int) -> None:
        """The flat buffer has leaf `number` of this worker's, which is not its last."""
        raise NotImplementedError("it has one leaf: see training.leaves")

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

        Args:
            own: this worker's, or of those whose part it takes over, after a change of their
                number.
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


_RESIDUAL = "residual"


class WithResidual(Exchange, ABC):
    """Buckets by a codec, with error feedback; residual_G is this worker's."""

    remembers = True

    def __init__(self, flat: FlatBuffer, codec: Codec) -> None:
        super().__init__(flat, codec)
        self.residual_G = torch.zeros(flat.buckets[-1].start, dtype=flat.data.dtype)

    @abstractmethod
    def send(self, number: int, own_B: torch.Tensor, residual_B: torch.Tensor) -> None:
        """Makes a bucket ready to be sent.

        Args:
            number: of the bucket.
            own_B: this worker's gradients in it; they become its contribution.
            residual_B: what was not sent before; it becomes what will not be sent of these.
        """

    def contribute(self, number: int) -> None:
        bucket = self.flat.buckets[number]
        residual = self.residual_G[bucket.start : bucket.stop]
        # If no worker reaches a parameter in this step, what is sent for it is left alone.
        missed = [self.residual_G[one.start : one.stop] for one in self.flat.unreached(number)]
        kept = [one.clone() for one in missed]
        for one in missed:
            one.zero_()
        self.send(number, self.buffers[number], residual)
        for one, before in zip(missed, kept, strict=True):
            one.copy_(before)

    def state(self) -> tuple[Tensors, Tensors]:
        return {}, {_RESIDUAL: self.residual_G}

    def load_state(self, shared: Tensors, own: Sequence[Tensors]) -> None:
        total(own, _RESIDUAL, self.residual_G)


class Feedback(WithResidual):
    """What the codec loses of the contributions that leave this worker is added to the next.

    Args:
        codec: without state.
        schedule: this rank's, to sum buffers like the one given.
    """

    def __init__(
        self, flat: FlatBuffer, codec: Codec, schedule: Callable[[torch.Tensor], Schedule]
    ) -> None:
        super().__init__(flat, codec)
        self._codec = codec
        self._schedule = schedule
        self._spans: dict[int, list[Span]] = {}

    def send(self, number: int, own_B: torch.Tensor, residual_B: torch.Tensor) -> None:
        own_B.add_(residual_B)
        residual_B.zero_()
        if number not in self._spans:
            self._spans[number] = contributed(self._schedule(own_B))
        for span in self._spans[number]:
            lost = residual_B[span.start : span.stop]
            loss(self._codec, own_B[span.start : span.stop], span, lost)


class Selected(WithResidual):
    """Of each contribution a few elements travel, also of those that this worker sums up itself.

    So sums are sparse, too, and contributions and sums travel without further loss.
    """

    def __init__(self, flat: FlatBuffer) -> None:
        super().__init__(flat, CODECS["sparse"]())

    @abstractmethod
    def select(self, number: int, values_B: torch.Tensor) -> torch.Tensor:
        """Returns what travels of a bucket: (B,), 0 where nothing does. Values are only read."""

    def send(self, number: int, own_B: torch.Tensor, residual_B: torch.Tensor) -> None:
        feed_back(own_B, residual_B, partial(self.select, number))


def feed_back(
    own_P: torch.Tensor,
    residual_P: torch.Tensor,
    select: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Makes a contribution ready to be summed by the codec `sparse`, with error feedback.

    It holds for any flat buffer: a step's gradients, or how far a worker moved in several steps.

    Args:
        own_P: what this worker has to bring; it becomes what travels, exactly.
        residual_P: what it still owed; it becomes what it owes now. A NaN or an infinity travels
            once, and does not stay.
        select: returns what travels of values (P,), as `topk.top_k` does.
    """
    own_P.add_(residual_P)
    sent_P = select(own_P)
    torch.sub(own_P, sent_P, out=residual_P)
    residual_P.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    own_P.copy_(sent_P)


def loss(codec: Codec, values_P: torch.Tensor, span: Span, into_P: torch.Tensor) -> None:
    """What of values is lost on their way. What is no number is not: it has travelled as such."""
    codec.decode(codec.encode(values_P, span, total=False), into_P)
    torch.sub(values_P, into_P, out=into_P)
    into_P.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def contributed(schedule: Schedule) -> list[Span]:
    """The spans that a rank sends of its own contribution, before anything comes to it."""
    came: list[Span] = []
    sent: dict[Span, None] = {}
    for op in schedule:
        if op.kind in (Kind.GET, Kind.REDUCE):
            came.append(op.span)
        elif op.kind is Kind.PUT and not any(_overlap(op.span, span) for span in came):
            sent[op.span] = None
    return list(sent)


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.stop and other.start < one.stop
