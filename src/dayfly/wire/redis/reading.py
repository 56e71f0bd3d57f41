"""A message as it comes from Redis, received straight into the memory that it is for.

XREAD BLOCK .. STREAMS s 0   ->   [[s, [[1-999998, [m, header + payload]],
                                        [1-999999, [m, the rest of the payload]]]]]
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TypeVar

from dayfly.errors import WireError
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.message import Header, Opening, header_of_bytes
from dayfly.wire.redis.connection import Connection
from dayfly.wire.redis.layout import PIECE_BYTES, piece_begins, stream_begins
from dayfly.wire.redis.resp import ProtocolError, Reader, ReplyError, command


class Sink(ABC):
    """Where a message goes, and what it is to be. size: bytes of it that came, header included."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.size = 0

    @abstractmethod
    def begin(self, raw: bytes, pieces: int) -> tuple[Header, memoryview]:
        """Look at the header; returns what is expected to follow, in so many pieces, and where it
        belongs.

        Raises WireError, saying what was expected and found.
        """


class Into(Sink):
    """A message whose header is known, for memory of its size."""

    def __init__(self, opening: Opening, expected: Header, into: memoryview) -> None:
        super().__init__(opening)
        self._expected = expected
        self._into = into

    def begin(self, raw: bytes, pieces: int) -> tuple[Header, memoryview]:
        return self._expected, self._into


class Bytes(Sink):
    """A message of bytes, of any size."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._content = bytearray()

    def begin(self, raw: bytes, pieces: int) -> tuple[Header, memoryview]:
        header = header_of_bytes(raw, self.opening.key.operation)
        if header.nbytes > pieces * PIECE_BYTES:
            raise WireError(f"expected {header}, found it cut short")
        self._content = bytearray(header.nbytes)
        return header, memoryview(self._content)

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
    if not reader.begins(stream_begins(stream)):
        streams = reader.count()
        if isinstance(streams, ReplyError):
            connection.check(streams)
            raise connection.refused(streams)
        if streams is None:
            return None
        raise ProtocolError("another stream than the one asked for")
    there_s = time.monotonic()
    pieces = reader.count()
    if not isinstance(pieces, int) or not pieces:
        raise ProtocolError("a stream without entries")
    _read_pieces(reader, pieces, sink)
    return sink, there_s


def _read_pieces(reader: Reader, pieces: int, sink: Sink) -> None:
    size = _begin_piece(reader, 0, pieces)
    raw = bytearray(min(size, HEADER_BYTES))
    reader.fill(memoryview(raw))
    expected, left = sink.begin(bytes(raw), pieces)
    checking = sink.opening.begin(raw, expected)
    sink.size, size = HEADER_BYTES + len(left), size - HEADER_BYTES
    for number in range(pieces):
        if number:
            size = _begin_piece(reader, number, pieces)
        if size > len(left):
            raise WireError(f"expected {expected}, found {size - len(left)} bytes more")
        piece, left = left[:size], left[size:]
        reader.finish(piece)
        checking.update(piece)
    if len(left):
        raise WireError(f"expected {expected}, found it cut short")
    checking.finish()


def _begin_piece(reader: Reader, number: int, pieces: int) -> int:
    """Returns how many bytes a piece has, which come next."""
    if not reader.begins(piece_begins(number, pieces)):
        # None of ours, as its header or its AES-GMAC will tell.
        _due(reader.count(), 2)
        reader.value()
        _due(reader.count(), 2)
        reader.value()
    return reader.length()


def _due(found: int | ReplyError | None, due: int) -> None:
    if found != due:
        raise ProtocolError(f"a list of another length than {due}")
