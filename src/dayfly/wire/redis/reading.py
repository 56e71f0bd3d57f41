"""A message as it comes from Redis, received straight into the memory that it is for.

XREAD BLOCK .. STREAMS s 0   ->   [[s, [[1-999998, [m, header + payload]],
                                        [1-999999, [m, the rest of the payload]]]]]
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TypeVar

import xxhash

from dayfly.errors import WireError
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.message import Header, check_header, compare, expected_header, header_of_bytes
from dayfly.wire.redis.connection import Connection
from dayfly.wire.redis.layout import PIECE_BYTES
from dayfly.wire.redis.resp import ProtocolError, Reader, ReplyError, command


class Sink(ABC):
    """Where a message goes, and what it is to be. size: bytes of it that came, header included."""

    def __init__(self) -> None:
        self.size = 0

    @abstractmethod
    def begin(self, raw: bytes, pieces: int) -> memoryview:
        """Look at the header; returns where the payload belongs, which is in so many pieces.

        Raises WireError, saying what was expected and found.
        """


class Into(Sink):
    """A message whose header is known, for memory of its size."""

    def __init__(self, expected: Header, into: memoryview) -> None:
        super().__init__()
        self._expected = expected
        self._into = into
        self._sealed, self._seed = expected.sealed(into.nbytes)

    def begin(self, raw: bytes, pieces: int) -> memoryview:
        check_header(raw, self._expected, self._sealed)
        expected_header(raw, self._expected)  # whole
        return self._into


class Bytes(Sink):
    """A message of bytes, of any size."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self._operation = operation
        self._content = bytearray()

    def begin(self, raw: bytes, pieces: int) -> memoryview:
        header = header_of_bytes(raw, self._operation)
        if header.nbytes > pieces * PIECE_BYTES:
            raise WireError(f"expected {header}, found it cut short")
        self._content = bytearray(header.nbytes)
        return memoryview(self._content)

    def content(self) -> bytes:
        """The payload, once it was read."""
        return bytes(self._content)


Some = TypeVar("Some", bound=Sink)


def read_message(
    connection: Connection, stream: str, wait_ms: int, sink: Some
) -> tuple[Some, float] | None:
    """Ask for a message, and let the server wait for it so long; None if it did not come.

    Returns the sink, and when the message was there. Raises WireError for one that is not what the
    sink expects.
    """
    block: tuple[str | int, ...] = ("BLOCK", wait_ms) if wait_ms else ()  # 0 would be for ever
    connection.allow(wait_ms / 1000)
    connection.send([command("XREAD", *block, "STREAMS", stream, "0")])
    reader = connection.reader
    streams = reader.count()
    if isinstance(streams, ReplyError):
        connection.check(streams)
        raise connection.refused(streams)
    if streams is None:
        return None
    there_s = time.monotonic()
    _due(streams, 1)
    _due(reader.count(), 2)
    reader.value()
    pieces = reader.count()
    if not isinstance(pieces, int) or not pieces:
        raise ProtocolError("a stream without entries")
    _read_pieces(reader, pieces, sink)
    return sink, there_s


def _read_pieces(reader: Reader, pieces: int, sink: Sink) -> None:
    left = memoryview(b"")
    raw = b""
    total = xxhash.xxh3_64()
    for number in range(pieces):
        size = _begin_piece(reader)
        if number == 0:
            first = bytearray(min(size, HEADER_BYTES))
            reader.fill(memoryview(first))
            raw, size = bytes(first), size - len(first)
            left = sink.begin(raw, pieces)
            sink.size = HEADER_BYTES + len(left)
            total = xxhash.xxh3_64(seed=xxhash.xxh3_64_intdigest(raw[: HEADER_BYTES - 8]))
        if size > len(left):
            raise WireError(f"expected {Header.unpack(raw)}, found {size - len(left)} bytes more")
        reader.fill(left[:size])
        total.update(left[:size])
        left = left[size:]
        reader.end()
    if len(left):
        raise WireError(f"expected {Header.unpack(raw)}, found it cut short")
    compare(total.intdigest(), int.from_bytes(raw[-8:], "little"))


def _begin_piece(reader: Reader) -> int:
    _due(reader.count(), 2)
    reader.value()
    _due(reader.count(), 2)
    reader.value()
    return reader.length()


def _due(found: int | ReplyError | None, due: int) -> None:
    if found != due:
        raise ProtocolError(f"a list of another length than {due}")
