"""How a buffer becomes messages: a codec encodes its elements, and a tail travels unencoded.

    buffer (P,)   | 0 1 2 3 | 4 5 6 7 | 8 9 10 11 |      spans of a schedule
    tail (T,)     | a       | b c     | d e       |      the part of it that each span has
    messages        a coded   bc coded  de coded

A span [i, j) has the elements from floor(i T / P) to floor(j T / P) of the tail. So spans that
together are the buffer have all of the tail, none of it twice, and equal spans have equal parts.
The tail is summed without loss, and in the order in which a buffer without a codec is summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dayfly.errors import WireError
from dayfly.wire.buffers import Buffer
from dayfly.wire.codec import Codec, tail_part
from dayfly.wire.message import as_bytes
from dayfly.wire.schedule import Span


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """How a buffer (P,) travels, the same at every rank.

    What is `parts` below are the elements of a span, and behind them those of the tail that it has.

    Args:
        codec: of the buffer's elements.
        tail: flat (T,), contiguous, on the CPU, of the buffer's type, which has elements then;
            summed in place, too; None: there is none.
    """

    codec: Codec
    tail: torch.Tensor | None = None

    def parts(self, buffer_P: Buffer, span: Span) -> tuple[torch.Tensor, ...]:
        """Returns views of the parts of a span."""
        coded = buffer_P[span.start : span.stop]
        if self.tail is None:
            return (coded,)
        its = tail_part(span, buffer_P.numel(), len(self.tail))
        return coded, self.tail[its.start : its.stop]

    def form(self, parts: Sequence[torch.Tensor]) -> tuple[torch.dtype, tuple[int, ...]] | None:
        """Returns type and shape of what travels for parts like these; None: bytes (N,) uint8,
        where N follows from the elements."""
        coded, *beside = parts
        form = self.codec.form(len(coded))
        exact = sum(one.nbytes for one in beside)
        if form is None or not exact:
            return form
        dtype, shape = form
        return torch.uint8, (exact + dtype.itemsize * math.prod(shape),)

    def pack(self, parts: Sequence[torch.Tensor], span: Span, *, total: bool) -> torch.Tensor:
        """Returns the message of a span; `form` says its type and shape.

        Args:
            parts: of the span.
            span: where its elements are in the buffer.
            total: whether they are a sum, and no contribution.
        """
        coded, *beside = parts
        travelling = self.codec.encode(coded, span, total=total)
        exact = [one.view(torch.uint8) for one in beside if len(one)]
        return torch.cat([*exact, travelling.view(torch.uint8)]) if exact else travelling

    def unpack(self, travelled: torch.Tensor, into: Sequence[torch.Tensor]) -> None:
        """Writes what travelled into parts.

        Raises:
            WireError: it is nothing that `pack` returns for parts like these.
        """
        coded, *beside = into
        for one in beside:
            if not len(one):
                continue
            if travelled.nbytes < one.nbytes:
                raise WireError(f"{travelled.nbytes} bytes, of which {one.nbytes} are its tail")
            as_bytes(one)[:] = as_bytes(travelled)[: one.nbytes]
            travelled = travelled[one.nbytes :]
            if (form := self.codec.form(len(coded))) is not None:
                dtype, shape = form
                travelled = travelled.view(dtype).view(shape)
        self.codec.decode(travelled, coded)
