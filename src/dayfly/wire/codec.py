"""Interface of a codec, another form of elements on the wire, and the codecs by name.

Every reader gets the same bits from a codec. `codecs` and `sparse` have them; names and sizes
alone need no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from dayfly.wire.schedule import Span

if TYPE_CHECKING:
    import torch


class Codec(Protocol):
    """Turns elements into what travels, and back. One for each buffer; for several threads."""

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]] | None:
        """Type and shape of what travels for `length` elements; None: bytes (N,) uint8, where N
        follows from the elements."""

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        """Returns what travels for the elements of a span, as `form` says.

        Args:
            values_P: the elements.
            span: where they are in the buffer.
            total: whether they are a sum, and no contribution.
        """

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        """The elements again, or what is left of them: the same bits for every reader.

        Raises:
            WireError: it is nothing that `encode` returns for so many elements.
        """


# They are imported when they are made: they need torch, and whoever asks for names does without.
def _bf16() -> Codec:
    from dayfly.wire.codecs import Bf16

    return Bf16()


def _int8() -> Codec:
    from dayfly.wire.codecs import Int8

    return Int8()


def _int4() -> Codec:
    from dayfly.wire.codecs import Int4

    return Int4()


def _sparse() -> Codec:
    from dayfly.wire.sparse import Sparse

    return Sparse()


def tail_part(span: Span, length: int, tail: int) -> Span:
    """Returns which elements of a tail travel with a span; see `packing`.

    Args:
        span: of the buffer.
        length: elements of the buffer, at least one unless there is no tail.
        tail: elements of the tail.
    """
    if not tail:
        return Span(0, 0)
    return Span(span.start * tail // length, span.stop * tail // length)


#: Codecs by name; none has state.
CODECS: dict[str, Callable[[], Codec]] = {
    "bf16": _bf16,
    "int8": _int8,
    "int4": _int4,
    "sparse": _sparse,
}

#: Elements of a chunk of a sparse buffer; a place in it has `PLACE_BITS`.
CHUNK = 4096
PLACE_BITS = 12
#: Most elements, as a share, for which a sparse message has tables: making them is sorting them.
MOST_BY_TABLE = 0.5
#: Bytes of a sparse message beside its chunks, and of a number that a chunk has.
HEAD_BYTES, COUNT_BYTES = 4, 2


def sparse_bytes(length: int, kept: int, magnitudes: int | None, itemsize: int = 4) -> int:
    """Returns the bytes of a span of a sparse buffer; see `sparse`.

    They are the most that spans of this length have on average: a chunk that a span cuts has its
    values on either side of the cut.

    Args:
        length: elements of the span.
        kept: elements of a chunk that are not 0, at most.
        magnitudes: different ones among those, at most; None: any.
        itemsize: bytes of an element.
    """
    if not length:
        return HEAD_BYTES
    chunks, values = -(-length // CHUNK) + 1, min(length, -(-length * kept // CHUNK) + 1)
    places = min(COUNT_BYTES * chunks + _bytes(PLACE_BITS * values), _bytes(length))
    found = itemsize * values
    if magnitudes is not None and values <= MOST_BY_TABLE * length:
        alike = min(kept, magnitudes)
        table = COUNT_BYTES * chunks + itemsize * min(values, alike * chunks)
        found = min(found, table + _bytes(values * code_bits(alike)))
    return HEAD_BYTES + min(itemsize * length, places + found)


def code_bits(magnitudes: int) -> int:
    """Returns the bits of a value's code: its sign, and which of so many magnitudes it has."""
    return 1 + max(0, magnitudes - 1).bit_length()


def _bytes(bits: int) -> int:
    return -(-bits // 8)
