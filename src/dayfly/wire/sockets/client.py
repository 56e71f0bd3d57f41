"""A client of one server: a pool of connections, and messages read from them into tensors."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from dayfly.closing import Closing
from dayfly.errors import WaitTimeout, WireError, named
from dayfly.wire.keys import HEADER_BYTES, Key
from dayfly.wire.message import Header, Opening, as_bytes
from dayfly.wire.sockets import protocol
from dayfly.wire.sockets.protocol import Asked, Closed, Request, Status, Unreachable
from dayfly.wire.sockets.table import Gone

Result = TypeVar("Result")
#: Reads a message of so many bytes from a connection.
Take = Callable[[socket.socket, int], Result]

#: How long connecting may take, in seconds.
CONNECT_S = 10.0
#: Memory for an answer whose size was not known is taken in pieces, as its bytes come.
_PIECE_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens. audience: who it is; see `protocol`."""

    host: str
    port: int
    audience: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Client(Closing):
    """Asks one server, as `rank`. All methods may be called from several threads at once.

    Each raises Unreachable if the server is not there (Closed if this end was closed), Gone if the
    messages were removed, and WireError with the server's words for what it refuses.
    """

    def __init__(self, address: Address, token: str, rank: int) -> None:
        self.address = address
        self._token = token
        self._rank = rank
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._busy: set[socket.socket] = set()
        self._closed = False

    def put(self, key: Key, *parts: bytes | memoryview) -> bool:
        """Store a message in parts; False if its key is taken."""
        length = sum(len(part) for part in parts)
        request = Request(Asked.PUT, key=key, length=length)

        def done(connection: socket.socket) -> bool:
            return self._status(connection)[0] is not Status.TAKEN

        return self._ask(request, parts, done)

    def get(self, key: Key, timeout_s: float, take: Take[Result]) -> tuple[Result, float]:
        """Wait for a message at the server, and `take` it; also when (monotonic) it was there.

        Raises WaitTimeout if it does not come, and what `take` raises: then it counts as unread.
        """
        timeout_s = min(max(0.0, timeout_s), protocol.LONGEST_WAIT_S)

        def taken(connection: socket.socket) -> tuple[Result, float]:
            protocol.patience(connection, timeout_s + protocol.SILENCE_S)
            status, acknowledge, length = self._status(connection)
            there_s = time.monotonic()
            if status is Status.MISSING:
                raise WaitTimeout("it is not there")
            protocol.patience(connection, protocol.SILENCE_S)
            result = take(connection, length)
            if acknowledge:
                protocol.send(connection, protocol.ACKNOWLEDGED)
            return result, there_s

        return self._ask(Request(Asked.GET, key=key, seconds=timeout_s), (), taken)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        """Those that are there."""
        listed = list(keys)
        found: list[Key] = []
        for start in range(0, len(listed), protocol.MOST_KEYS):
            some = listed[start : start + protocol.MOST_KEYS]
            answer = self._ask_for_body(Asked.STORED, protocol.pack_keys(some))
            if len(answer) != len(some):
                raise WireError(f"{len(answer)} answers to {len(some)} questions")
            found += [key for key, here in zip(some, answer, strict=True) if here]
        return frozenset(found)

    def waiting(self, destination: int) -> list[Key]:
        """Keys of the messages to a destination, sorted."""
        return protocol.unpack_keys(self._ask_for_body(Asked.WAITING, number=destination))

    def drop(self, keys: Iterable[Key]) -> None:
        """Remove messages."""
        listed = list(keys)
        for start in range(0, len(listed), protocol.MOST_KEYS):
            packed = protocol.pack_keys(listed[start : start + protocol.MOST_KEYS])
            self._ask_for_body(Asked.DROP, packed)

    def trim(self, before_step: int) -> None:
        """Remove messages of earlier steps."""
        self._ask_for_body(Asked.TRIM, number=before_step)

    def size_bytes(self) -> int:
        """Of all messages."""
        return int.from_bytes(self._ask_for_body(Asked.SIZE), "little")

    def destroy(self) -> None:
        """Remove all messages for good."""
        self._ask_for_body(Asked.DESTROY)

    def close(self) -> None:
        """Hang up; other threads that ask just now get WireError. May be called twice."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # its thread closes it
        for connection in idle:
            connection.close()

    def _ask_for_body(self, asked: Asked, body: bytes = b"", number: int = 0) -> bytes:
        def read(connection: socket.socket) -> bytes:
            _, _, length = self._status(connection)
            return receive_unknown(connection, length)

        return self._ask(Request(asked, number=number, length=len(body)), (body,), read)

    def _ask(
        self,
        request: Request,
        body: Iterable[bytes | memoryview],
        read: Callable[[socket.socket], Result],
    ) -> Result:
        """Send a request on a connection of its own, and read the answer.

        A connection that was idle may have been broken meanwhile: then once more, on a fresh one.
        To ask twice does no harm: the first put wins, and what was read stays until acknowledged.
        """
        packed = request.pack()
        while True:
            try:
                connection, fresh = self._connection()
            except Unreachable as error:
                raise type(error)(f"{self.address}: {error}") from error
            usable = False
            try:
                protocol.send(connection, packed, *body)
                result = read(connection)
                usable = True
                return result
            except (WaitTimeout, Gone, _Refused):
                usable = True
                raise
            except Unreachable as error:
                if self._closed:
                    raise Closed(f"{self.address}: this end was closed") from error
                if fresh:
                    raise Unreachable(f"{self.address}: {error}") from error
            finally:
                self._give_back(connection, usable)

    def _status(self, connection: socket.socket) -> tuple[Status, bool, int]:
        """The head of an answer. Raises what it says."""
        status, acknowledge, length = protocol.read_reply(connection)
        if status is Status.GONE:
            raise Gone(f"the run's messages at {self.address} were removed")
        if status is Status.REFUSED:
            raise _Refused(receive_unknown(connection, length).decode("utf-8", "replace"))
        return status, acknowledge, length

    def _connection(self) -> tuple[socket.socket, bool]:
        """A connection, and whether it is fresh."""
        with self._lock:
            if self._closed:
                raise Closed("this end was closed")
            if self._idle:
                connection = self._idle.pop()
                self._busy.add(connection)
                return connection, False
        connection = self._connect()
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection, True
        connection.close()
        raise Closed("this end was closed")

    def _connect(self) -> socket.socket:
        place = self.address.host, self.address.port
        try:
            connection = socket.create_connection(place, CONNECT_S)
        except OSError as error:
            raise Unreachable(error.strerror or str(error)) from error
        try:
            protocol.prepare(connection)
            protocol.introduce(connection, self._token, self.address.audience, self._rank)
        except WireError as error:
            connection.close()
            raise Unreachable(str(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_back(self, connection: socket.socket, usable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if usable and not self._closed:
                self._idle.append(connection)
                return
            # One that was idle as long as this one is no better.
            stale = [] if usable else self._idle[:]
            del self._idle[: len(stale)]
        for one in (connection, *stale):
            one.close()


class _Refused(WireError):
    """The server understood, and says no; the connection is as good as before."""


def receive_unknown(connection: socket.socket, length: int) -> bytes:
    """So many bytes; memory is taken as they come, whatever was announced."""
    got = bytearray()
    while len(got) < length:
        piece = bytearray(min(_PIECE_BYTES, length - len(got)))
        protocol.receive(connection, memoryview(piece))
        got += piece
    return bytes(got)


#: A payload is received, copied and checked in pieces that stay in the processor's cache.
_RECEIVED_BYTES = 2**19


def into_tensor(opening: Opening, into: torch.Tensor) -> Take[None]:
    """Receives a message into a contiguous CPU tensor.

    It raises WireError, with the key, if the message is not as expected.
    """
    expected = Header(opening.key.operation, into.dtype, tuple(into.shape))
    target = as_bytes(into)

    def take(connection: socket.socket, length: int) -> None:
        head = bytearray(min(length, HEADER_BYTES))
        protocol.receive(connection, memoryview(head))
        checking = opening.begin(head, expected, length)
        for start in range(0, target.nbytes, _RECEIVED_BYTES):
            piece = target[start : start + _RECEIVED_BYTES]
            protocol.receive(connection, piece)
            checking.update(piece)
        checking.finish()

    return _naming(opening.key, take)


def as_plain_bytes(opening: Opening) -> Take[bytes]:
    """Receives a message of bytes, of any size; raises WireError, with the key, for another."""

    def take(connection: socket.socket, length: int) -> bytes:
        return opening.plain(receive_unknown(connection, length))

    return _naming(opening.key, take)


def copy_into_tensor(opening: Opening, blob: memoryview, into: torch.Tensor) -> None:
    """As `into_tensor`, of a message of this process's own table."""
    expected = Header(opening.key.operation, into.dtype, tuple(into.shape))
    try:
        head = bytearray(blob[:HEADER_BYTES])
        checking = opening.begin(head, expected, blob.nbytes)
        checking.update(blob[HEADER_BYTES:])
        checking.finish()
    except WireError as error:
        raise named(opening.key, error) from error
    as_bytes(into)[:] = blob[HEADER_BYTES:]


def plain_bytes(opening: Opening, blob: memoryview) -> bytes:
    """As `as_plain_bytes`, of a message of this process's own table."""
    try:
        return opening.plain(bytes(blob))
    except WireError as error:
        raise named(opening.key, error) from error


def pack(header: Header, payload: memoryview, opening: Opening) -> memoryview:
    """A message as it is kept: header and a copy of the payload."""
    size = payload.nbytes
    blob = np.empty(HEADER_BYTES + size, np.uint8)
    whole = blob.data
    if size:
        blob[HEADER_BYTES:] = np.frombuffer(payload, np.uint8)
    whole[:HEADER_BYTES] = header.seal(whole[HEADER_BYTES:], opening.key, opening.by)
    return whole


def _naming(key: Key, take: Take[Result]) -> Take[Result]:
    def taken(connection: socket.socket, length: int) -> Result:
        try:
            return take(connection, length)
        except Unreachable:
            raise
        except WireError as error:
            raise named(key, error) from error

    return taken
