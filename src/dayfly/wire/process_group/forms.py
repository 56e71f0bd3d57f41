"""What a letter looks like: its elements, and the messages in which they travel.

    length 21, chunk 4    |0         |1   |2   |3   |4   |      the first has what is left over: 5

A letter's reader says what it expects, and may be wrong. Its first message then tells, before
anything of it is read: the first's length says how large the others are, and the ones around that
length in its shape how many there are. So no two lengths begin alike.

    the others' length is `chunk` times a power of two, and the first has less than twice of it
    the shape of the first of two messages is (1, 5), of three (5, 1), of four (1, 1, 5), ...
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from dayfly.wire.schedule import MOST_CHUNKS, Span

#: Where the length stands among the ones, by the number of messages, from 1; see above.
_PLACES = tuple((ones - after, after) for ones in range(8) for after in range(ones + 1))
#: Fewest elements of one of several messages: a length of one is not told from the ones.
_LEAST_CHUNK = 2


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a letter: which elements, and the shape that its header has."""

    span: Span
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """Element type and number of elements."""

    dtype: torch.dtype
    length: int

    @classmethod
    def of(cls, flat_P: torch.Tensor) -> Form:
        """Of a flat tensor (P,)."""
        return cls(flat_P.dtype, len(flat_P))

    def parts(self, chunk_bytes: int | None) -> tuple[Part, ...]:
        """The messages, MOST_CHUNKS at most. chunk_bytes: worth a message; None: all in one."""
        whole = Span(0, self.length)
        if chunk_bytes is None or not self.length:
            return (Part(whole, (self.length,)),)
        return _parts(self.length, max(_LEAST_CHUNK, chunk_bytes // self.dtype.itemsize))

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}[{self.length}]"


@lru_cache(maxsize=256)
def _parts(length: int, chunk: int) -> tuple[Part, ...]:
    while length // chunk > MOST_CHUNKS:
        chunk *= 2
    count = max(1, length // chunk)
    first = length - (count - 1) * chunk
    before, after = _PLACES[count - 1]
    shape = (*(1,) * before, first, *(1,) * after)
    others = range(first, length, chunk)
    return (
        Part(Span(0, first), shape),
        *(Part(Span(start, start + chunk), (chunk,)) for start in others),
    )
