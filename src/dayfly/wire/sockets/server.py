"""A server: a table of messages that others reach over TCP, a thread a connection.

A connection carries one request after another, and a get waits in its thread until the message is
there. Strangers get as far as the handshake, a bounded number of them at once.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from functools import partial

import numpy as np

from dayfly.closing import Closing
from dayfly.errors import WireError, in_short
from dayfly.threads import start_thread
from dayfly.wire.keys import SERVER, Key
from dayfly.wire.sockets import protocol
from dayfly.wire.sockets.mailboxes import Gone
from dayfly.wire.sockets.protocol import Asked, ServerRequest, Status, hang_up, pack_reply
from dayfly.wire.sockets.sums import ServerSums
from dayfly.wire.sockets.table import MessageTable

#: Connections whose handshake is not over yet, at most; others wait in the kernel.
_STRANGERS = 64
_DRAIN_BYTES = 2**16
_NAME = "dayfly-server"
_JOIN_S = 10.0


class Server(Closing):
    """Serves a table of messages from now on.

    Args:
        table: the messages.
        host: where to listen.
        port: where to listen; 0: a free port.
        token: see `protocol`.
        audience: see `protocol`.
        sums: adds what is pushed; None: pushes are refused.

    Raises:
        WireError: it cannot listen there.
    """

    def __init__(
        self,
        table: MessageTable,
        *,
        host: str,
        port: int = 0,
        token: str,
        audience: str,
        sums: ServerSums | None = None,
    ) -> None:
        self.table = table
        self._token = token
        self._audience = audience
        self._sums = sums
        self._listener = _listen(host, port)
        address = self._listener.getsockname()
        self.host, self.port = str(address[0]), int(address[1])
        self._strangers = threading.BoundedSemaphore(_STRANGERS)
        self._lock = threading.Lock()
        self._closing = False
        self._connections: dict[socket.socket, threading.Thread] = {}
        try:
            self._acceptor = start_thread(self._accept, name=_NAME, failed=lambda _: self.close())
        except RuntimeError as error:
            self._listener.close()
            raise WireError(f"cannot serve at {self.host}:{self.port}: {error}") from error

    def close(self) -> None:
        """Hang up on everybody; the messages are gone. May be called twice."""
        with self._lock:
            self._closing = True
            connections = dict(self._connections)
        hang_up(self._listener)
        # First: whoever waits here is to see a server that left, not a run whose messages went.
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.table.destroy()
        for thread in (self._acceptor, *connections.values()):
            if thread is not threading.current_thread():
                thread.join(_JOIN_S)

    def _accept(self) -> None:
        while True:
            self._strangers.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._strangers.release()
                if self._closing:
                    return
                # Out of descriptors, or the caller hung up again: others are served meanwhile.
                threading.Event().wait(0.05)
                continue
            with self._lock:
                if self._closing:
                    connection.close()
                    return
                try:
                    serve = partial(self._serve, connection)
                    thread = start_thread(serve, name=_NAME, failed=lambda _: None)
                except RuntimeError:
                    # No thread to be had: the caller comes again, and others are served meanwhile.
                    self._strangers.release()
                    connection.close()
                else:
                    self._connections[connection] = thread  # `_serve` needs the lock to end

    def _serve(self, connection: socket.socket) -> None:
        try:
            try:
                protocol.prepare(connection)
                rank = protocol.greet(connection, self._token, self._audience)
            finally:
                self._strangers.release()
            if rank is not None:
                while (request := protocol.read_request(connection)) is not None:
                    self._answer(connection, rank, request)
        except (WireError, OSError):
            pass  # of this connection alone: its client sees it closed
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()

    def _answer(self, connection: socket.socket, rank: int, request: ServerRequest) -> None:
        """Do what is asked. Raises WireError if the connection is of no use any more."""
        try:
            match request.asked:
                case Asked.PUT:
                    self._put(connection, request)
                case Asked.GET:
                    self._get(connection, rank, request)
                case Asked.STORED:
                    keys = _keys(connection, request)
                    here = self.table.stored(keys)
                    _reply(connection, bytes(key in here for key in keys))
                case Asked.WAITING:
                    keys = self.table.waiting(request.number)
                    _reply(connection, protocol.pack_keys(keys))
                case Asked.DROP:
                    self.table.drop(_keys(connection, request))
                    _reply(connection)
                case Asked.TRIM:
                    self.table.trim(request.number)
                    if self._sums is not None:
                        self._sums.trim(request.number)
                    _reply(connection)
                case Asked.SIZE:
                    _reply(connection, self.table.size_bytes().to_bytes(8, "little"))
                case Asked.DESTROY:
                    self.table.destroy()
                    _reply(connection)
        except protocol.Unreachable:
            raise
        except Gone:
            protocol.send(connection, pack_reply(Status.GONE))
        except WireError as error:
            _refuse(connection, str(error))
        except Exception as error:
            # Nobody expected it: its caller is told, and the connection, of which nobody knows how
            # far it was read, ends with the traceback.
            if not isinstance(error, OSError):
                with suppress(OSError, WireError):
                    _refuse(connection, f"the server failed: {in_short(error)}")
            raise

    def _put(self, connection: socket.socket, request: ServerRequest) -> None:
        key, length = _key_of(request), request.length
        pushed = key.destination == SERVER
        try:
            if pushed and self._sums is None:
                raise WireError(f"{key}: there is no parameter server here")
            self.table.reserve(length)
        except WireError:
            _drain(connection, length)
            raise
        try:
            blob = np.empty(length, np.uint8).data
            protocol.receive(connection, blob)
        except BaseException:
            self.table.release(length)
            raise
        if pushed and self._sums is not None:
            won = self._sums.push(key, blob)
        else:
            won = self.table.keep(key, blob)
        protocol.send(connection, pack_reply(Status.DONE if won else Status.TAKEN))

    def _get(self, connection: socket.socket, rank: int, request: ServerRequest) -> None:
        key = _key_of(request)
        message = self.table.wait(key, request.seconds)
        if message is None:
            protocol.send(connection, pack_reply(Status.MISSING))
            return
        # Freed once it arrived, not once it was sent: a reader whose connection breaks asks again.
        counts = message.unread is not None and rank in message.unread
        head = pack_reply(Status.DONE, message.blob.nbytes, acknowledge=counts)
        protocol.send(connection, head, message.blob)
        if counts:
            acknowledged = bytearray(1)
            if protocol.receive(connection, memoryview(acknowledged), idle=True):
                self.table.read(key, message, rank)


def _listen(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}" if port else host
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, number)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise WireError(
            f"cannot listen at {where}: {error.strerror}; give an address of this machine, and a "
            "port that is free (0: any)"
        ) from error
    return listener


def _reply(connection: socket.socket, body: bytes = b"") -> None:
    protocol.send(connection, pack_reply(Status.DONE, len(body)), body)


def _refuse(connection: socket.socket, text: str) -> None:
    why = text.encode()[:4096]
    protocol.send(connection, pack_reply(Status.REFUSED, len(why)), why)


def _key_of(request: ServerRequest) -> Key:
    if request.key is None:
        raise protocol.Unreachable(f"{request} without a key")
    return request.key


def _keys(connection: socket.socket, request: ServerRequest) -> list[Key]:
    if request.length > protocol.keys_bytes(protocol.MOST_KEYS):
        raise protocol.Unreachable(f"{request.length} bytes of keys")
    raw = bytearray(request.length)
    protocol.receive(connection, memoryview(raw))
    return protocol.unpack_keys(raw)


def _drain(connection: socket.socket, length: int) -> None:
    """Read past a body that is not wanted, so that its sender comes to read the answer."""
    scratch = memoryview(bytearray(_DRAIN_BYTES))
    while length:
        some = min(length, _DRAIN_BYTES)
        protocol.receive(connection, scratch[:some])
        length -= some
