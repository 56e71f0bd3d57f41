"""Error feedback: what a codec took from a contribution is added to the next step's.

Seide and others, "1-bit stochastic gradient descent and its application to data-parallel
distributed training of speech DNNs" (2014); Karimireddy and others, "Error feedback fixes SignSGD
and other gradient compression schemes" (2019), algorithm 2:

    c = g + e        g: the gradient of this worker's slice, e: the residual, 0 at first
    e = c - C(c)     C(c): what travels of c

so the contributions that have travelled so far, and the residual, add up to the gradients so far.

The residual follows from the worker's own contributions alone. So a worker that starts again has it
from the run checkpoint, and computes its contributions to the steps since then once more, while the
sums come from the message log. What the sums lose on their way back is known to those only that
added them up, and nobody who starts again could find out; so they are rounded to the nearest, and
there is no residual of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dayfly.training.compression.exchange import Exchange, total
from dayfly.training.flat import FlatBuffer
from dayfly.training.state import Tensors
from dayfly.wire.codec import Codec
from dayfly.wire.schedule import Kind, Schedule, Span

_RESIDUAL = "residual"


class Feedback(Exchange):
    """Buckets by a codec, with error feedback; residual_G is this worker's.

    codec: without state. schedule: this rank's, to sum buffers like the one given.
    """

    remembers = True

    def __init__(
        self, flat: FlatBuffer, codec: Codec, schedule: Callable[[torch.Tensor], Schedule]
    ) -> None:
        super().__init__(flat, codec)
        self._codec = codec
        self._schedule = schedule
        self._spans: dict[int, list[Span]] = {}
        self.residual_G = torch.zeros(flat.buckets[-1].start, dtype=flat.data.dtype)

    def contribute(self, number: int) -> None:
        if self.codecs[number] is None:
            return
        bucket = self.flat.buckets[number]
        residual = self.residual_G[bucket.start : bucket.stop]
        # If no worker reaches a parameter in this step, what is sent for it is left alone.
        missed = [self.residual_G[one.start : one.stop] for one in self.flat.unreached(number)]
        kept = [one.clone() for one in missed]
        for one in missed:
            one.zero_()
        own = self.buffers[number].add_(residual)
        residual.zero_()
        if number not in self._spans:
            self._spans[number] = contributed(self._schedule(own))
        for span in self._spans[number]:
            lost = residual[span.start : span.stop]
            loss(self._codec, own[span.start : span.stop], span, lost)
        for one, before in zip(missed, kept, strict=True):
            one.copy_(before)

    def state(self) -> tuple[Tensors, Tensors]:
        return {}, {_RESIDUAL: self.residual_G}

    def load_state(self, shared: Tensors, own: Sequence[Tensors]) -> None:
        total(own, _RESIDUAL, self.residual_G)


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
