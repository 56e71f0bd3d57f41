"""A client of one server: its mailboxes over a pool of connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from dayfly.closing import Closing
from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.keys import Key
from dayfly.wire.sockets import protocol
from dayfly.wire.sockets.mailboxes import Gone, Mailboxes, Result, Take, receive_unknown
from dayfly.wire.sockets.protocol import Asked, Closed, ServerRequest, Status, Unreachable

#: How long connecting may take, in seconds.
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens.

    Attributes:
        host: its name or number.
        port: its number.
        audience: who the server is; see `protocol`.
    """

    host: str
    port: int
    audience: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Client(Mailboxes, Closing):
    """Asks one server, as `rank`."""

    def __init__(self, address: Address, token: str, rank: int) -> None:
        self.address = address
        self._token = token
        self._rank = rank
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._busy: set[socket.socket] = set()
        self._closed = False

    def put(self, key: Key, *parts: bytes | memoryview) -> bool:
        length = sum(len(part) for part in parts)
        request = ServerRequest(Asked.PUT, key=key, length=length)

        def done(connection: socket.socket) -> bool:
            return self._status(connection)[0] is not Status.TAKEN

        return self._ask(request, parts, done)

    def get(self, key: Key, timeout_s: float, take: Take[Result]) -> tuple[Result, float]:
        timeout_s = min(max(0.0, timeout_s), protocol.LONGEST_WAIT_S)

        def taken(connection: socket.socket) -> tuple[Result, float]:
            protocol.patience(connection, timeout_s + protocol.SILENCE_S)
            status, acknowledge, length = self._status(connection)
            there_s = time.monotonic()
            if status is Status.MISSING:
                raise WaitTimeout("it is not there")
            protocol.patience(connection, protocol.SILENCE_S)
            result = take(partial(protocol.receive, connection), length)
            if acknowledge:
                protocol.send(connection, protocol.ACKNOWLEDGED)
            return result, there_s

        return self._ask(ServerRequest(Asked.GET, key=key, seconds=timeout_s), (), taken)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
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
        return protocol.unpack_keys(self._ask_for_body(Asked.WAITING, number=destination))

    def drop(self, keys: Iterable[Key]) -> None:
        listed = list(keys)
        for start in range(0, len(listed), protocol.MOST_KEYS):
            packed = protocol.pack_keys(listed[start : start + protocol.MOST_KEYS])
            self._ask_for_body(Asked.DROP, packed)

    def trim(self, before_step: int) -> None:
        self._ask_for_body(Asked.TRIM, number=before_step)

    def size_bytes(self) -> int:
        return int.from_bytes(self._ask_for_body(Asked.SIZE), "little")

    def destroy(self) -> None:
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
            return receive_unknown(partial(protocol.receive, connection), length)

        return self._ask(ServerRequest(asked, number=number, length=len(body)), (body,), read)

    def _ask(
        self,
        request: ServerRequest,
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
            why = receive_unknown(partial(protocol.receive, connection), length)
            raise _Refused(why.decode("utf-8", "replace"))
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
