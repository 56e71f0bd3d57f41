"""Codec of buffers of which most elements are 0: the others and their places, without loss.

The buffer is cut into chunks of 4096 elements from its start on, C of which the span touches; K
elements of the span are not 0. Of several forms the smallest travels:

    places   dense     none: all elements of the span travel as they are
             bitmap    | (P,) bits |
             listed    | elements of each chunk (C,) uint16 | places in their chunks (K,) 12 bits |
    values   raw       | (K,) of the buffer's type |
             by table  | magnitudes of each chunk (C,) uint16 | magnitudes, float32, ascending |
                       | (K,) sign, 1 bit, and number in the chunk's table, as many bits as the
                         largest table needs |

    | form of places uint8 | bits of a number, or 255: raw, uint8 | elements of the first chunk
      before the span uint16 | places | values |

Numbers of several bytes are little-endian, and bits go from the lowest on. Values that share a few
magnitudes, as those of `training.compression.topk`, take 2 bits each, and sums of several such
contributions 4 or 5: nobody needs to know how they came about. A zero comes out as +0.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dayfly.errors import WireError
from dayfly.wire.codec import (
    CHUNK,
    COUNT_BYTES,
    HEAD_BYTES,
    MOST_BY_TABLE,
    PLACE_BITS,
    Codec,
    code_bits,
)
from dayfly.wire.schedule import Span

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Values = npt.NDArray[Any]

DENSE, BITMAP, LISTED = range(3)
_RAW = 255
_HEAD = struct.Struct("<BBH")
assert _HEAD.size == HEAD_BYTES, "as sizes are predicted"
_SIGN = np.uint32(1 << 31)


class Sparse(Codec):
    """Elements that are not 0; see above."""

    def form(self, length: int) -> None:
        return None

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        values = values_P.numpy()
        at, before = np.flatnonzero(values), span.start % CHUNK
        where, places = _places(at, before, len(values))
        chosen, width = values[at], _RAW
        parts: list[Bytes] = []
        if values.dtype == np.float32 and 0 < len(at) <= MOST_BY_TABLE * len(values):
            chunks = _chunks(before, len(values))
            width, parts = _by_table(chosen.view(np.uint32), (at + before) // CHUNK, chunks)
        if not parts or sum(map(len, parts)) >= chosen.nbytes:
            width, parts = _RAW, [_raw(chosen)]
        if sum(map(len, (*places, *parts))) >= values.nbytes:
            where, places, width, parts = DENSE, [], _RAW, [_raw(values)]
        head = np.frombuffer(_HEAD.pack(where, width, before), np.uint8)
        return torch.from_numpy(np.concatenate([head, *places, *parts]))

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        into = into_P.numpy()
        message = _Message(travelled.numpy(), len(into))
        where, width, before = _HEAD.unpack(message.take(HEAD_BYTES).tobytes())
        if where == DENSE:
            dense = message.take(into.nbytes).view(into.dtype)
            message.end()
            into[:] = dense
            return
        at = message.places(where, before)
        chunk_K = (at + before) // CHUNK
        if width == _RAW:
            values = message.take(len(at) * into.itemsize).view(into.dtype)
        else:
            message.check(
                into.dtype == np.float32 and width <= PLACE_BITS, f"codes of {width} bits"
            )
            values = message.by_table(width, chunk_K, _chunks(before, len(into)))
        message.end()
        into[:] = 0
        into[at] = values


class _Message:
    """A message that is read from its start to its end. Raises WireError if it is none."""

    def __init__(self, raw: Bytes, length: int) -> None:
        self._raw = raw
        self._length = length
        self._next = 0

    def take(self, nbytes: int) -> Bytes:
        """The next bytes."""
        self.check(nbytes <= len(self._raw) - self._next, f"{nbytes} more at {self._next}")
        self._next += nbytes
        return self._raw[self._next - nbytes : self._next]

    def counts(self, chunks: int, most: int) -> Ints:
        """A number of each chunk (C,), whose sum is `most` at most."""
        found = self.take(COUNT_BYTES * chunks).view("<u2").astype(np.int64)
        self.check(int(found.sum()) <= most, f"{found.sum()} in its chunks")
        return found

    def places(self, where: int, before: int) -> Ints:
        """Where in the span the values are (K,), ascending."""
        self.check(where in (BITMAP, LISTED), f"places of form {where}")
        self.check(before < CHUNK, f"a first chunk with {before} before it")
        if where == BITMAP:
            bits = np.unpackbits(self.take(-(-self._length // 8)), bitorder="little")
            at: Ints = np.flatnonzero(bits)
        else:
            counts = self.counts(_chunks(before, self._length), self._length)
            inside = self.numbers(int(counts.sum()), PLACE_BITS)
            at = CHUNK * np.repeat(np.arange(len(counts)), counts) + inside - before
            self.check(bool((np.diff(at) > 0).all()), "places that do not ascend")
        inside_it = not len(at) or (at[0] >= 0 and at[-1] < self._length)
        self.check(bool(inside_it), "a place outside")
        return at

    def by_table(self, width: int, chunk_K: Ints, chunks: int) -> Values:
        """Values (K,) of chunks chunk_K (K,), by tables of magnitudes."""
        counts = self.counts(chunks, len(chunk_K))
        magnitudes = self.take(4 * int(counts.sum())).view("<u4")
        codes = self.numbers(len(chunk_K), width + 1)
        inside, signs = codes >> 1, (codes & 1).astype(np.uint32)
        self.check(bool((inside < counts[chunk_K]).all()), "a magnitude that no table has")
        first = np.cumsum(counts) - counts
        found: Values = (magnitudes[first[chunk_K] + inside] | signs * _SIGN).view(np.float32)
        return found

    def numbers(self, count: int, bits: int) -> Ints:
        """The next (count,) numbers of so many bits."""
        raw = self.take(-(-count * bits // 8))
        each = np.unpackbits(raw, count=count * bits, bitorder="little").reshape(count, bits)
        found = np.zeros((count, 4), np.uint8)
        packed = np.packbits(each, axis=1, bitorder="little")
        found[:, : packed.shape[1]] = packed
        return found.view("<u4").reshape(count).astype(np.int64)

    def end(self) -> None:
        """All was read."""
        self.check(self._next == len(self._raw), f"{len(self._raw) - self._next} too many")

    def check(self, right: bool, what: str) -> None:
        """Raise WireError, saying what is wrong, unless it is right."""
        if not right:
            raise WireError(
                f"no sparse message of {self._length} elements: its {len(self._raw)} bytes have "
                f"{what}"
            )


def _places(at: Ints, before: int, length: int) -> tuple[int, list[Bytes]]:
    """The smaller form of places: which one, and its bytes."""
    counts = np.bincount((at + before) // CHUNK, minlength=_chunks(before, length))
    if COUNT_BYTES * len(counts) + len(at) * PLACE_BITS // 8 < length // 8:
        return LISTED, [_raw(counts.astype("<u2")), _packed((at + before) % CHUNK, PLACE_BITS)]
    bits = np.zeros(length, np.uint8)
    bits[at] = 1
    return BITMAP, [np.packbits(bits, bitorder="little")]


def _by_table(
    bits_K: npt.NDArray[np.uint32], chunk_K: Ints, chunks: int
) -> tuple[int, list[Bytes]]:
    """Bits of a number in a table, and the bytes of values that are given as their bits."""
    magnitudes, signs = (bits_K & ~_SIGN).astype(np.int64), (bits_K >> 31).astype(np.int64)
    keys, number_K = np.unique((chunk_K << 32) | magnitudes, return_inverse=True)
    counts = np.bincount(keys >> 32, minlength=chunks)
    number_K = number_K - (np.cumsum(counts) - counts)[chunk_K]
    bits = code_bits(int(counts.max()))
    table = (keys & 0xFFFFFFFF).astype("<u4")
    return bits - 1, [_raw(counts.astype("<u2")), _raw(table), _packed(number_K << 1 | signs, bits)]


def _packed(numbers: Ints, bits: int) -> Bytes:
    """Numbers of so many bits, one after another."""
    raw = _raw(numbers.astype("<u4")).reshape(-1, 4)
    each = np.unpackbits(raw, axis=1, count=bits, bitorder="little")
    return np.packbits(each, bitorder="little")


def _raw(values: Values) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8)


def _chunks(before: int, length: int) -> int:
    """Chunks that a span touches."""
    return -(-(before + length) // CHUNK)
