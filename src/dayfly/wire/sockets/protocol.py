"""What two ends say to each other over a TCP connection.

    server   magic, nonce                                    48 bytes
    client   nonce, rank, HMAC(token, "client", ...)         68 bytes
    server   HMAC(token, "server", ...), or it hangs up      32 bytes
    client   request [body]     server   reply [body]        one after another, until one hangs up

The token is random, one a run, and never travels. The HMACs cover both nonces, the rank, and who is
spoken to (run, generation, server), so each end knows that it speaks to the one that it means.
What a stranger says costs 68 bytes of memory; bodies are believed after the handshake alone, and
are bounded all the same. Nothing is unpickled or evaluated.

    request  operation 1, zeros 7, number 8, seconds 8, body's length 8, key 52
    reply    status 1, whether to acknowledge 1, zeros 6, body's length 8
    key      see `Key.pack`
All numbers are little-endian. This module is imported by servers, so it does without torch.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from dayfly.errors import WireError
from dayfly.wire.keys import COORDINATOR, KEY_BYTES, Key

#: Longest body of a request or a reply, in bytes.
LARGEST_BYTES = 2**36
#: Most keys of one question.
MOST_KEYS = 2**16
#: Longest wait at the server that a client may ask for, in seconds.
LONGEST_WAIT_S = 3600.0
#: How long an end that has begun to speak may fall silent before the other hangs up, in seconds.
SILENCE_S = 60.0
#: How long a server waits for a client's side of the handshake, in seconds.
HELLO_S = 15.0
#: How long a client waits for the server's: there may be strangers before it, who say nothing.
GREETING_S = 60.0

_MAGIC = b"dayfly sockets 1"
_NONCE_BYTES = 32
_GREETING_BYTES = len(_MAGIC) + _NONCE_BYTES
_RANK = struct.Struct("<i")
_MAC_BYTES = 32
_REQUEST = struct.Struct("<B7xqdQ52s")
_REPLY = struct.Struct("<BB6xQ")
#: What a reader says when a message that is freed by reading arrived whole.
ACKNOWLEDGED = b"\x06"


class Unreachable(WireError):
    """The other end is not there, hung up, or fell silent."""


class Closed(Unreachable):
    """This end was closed."""


class Asked(IntEnum):
    """What a request asks for."""

    PUT = 1  # body: header and payload of the message `key`
    GET = 2  # wait `seconds` for the message `key`
    STORED = 3  # body: keys; the answer is a byte for each
    WAITING = 4  # the answer is the keys to the destination `number`
    DROP = 5  # body: keys
    TRIM = 6  # messages before the step `number`
    SIZE = 7  # the answer is a number
    DESTROY = 8  # all messages, for good


class Status(IntEnum):
    """What a reply says."""

    DONE = 0
    TAKEN = 1  # of a put: the key was there already
    MISSING = 2  # of a get: it did not come in time
    GONE = 3  # the run's messages were removed
    REFUSED = 4  # body: why


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request, without its body of `length` bytes."""

    asked: Asked
    key: Key | None = None
    number: int = 0
    seconds: float = 0.0
    length: int = 0

    def pack(self) -> bytes:
        """As it travels."""
        raw = self.key.pack() if self.key is not None else b""
        return _REQUEST.pack(self.asked, self.number, self.seconds, self.length, raw)


def read_request(sock: socket.socket) -> ServerRequest | None:
    """Returns the next request; None: the other end hung up between two requests.

    Raises:
        WireError: the bytes are no request.
    """
    raw = bytearray(_REQUEST.size)
    if not receive(sock, memoryview(raw), idle=True):
        return None
    asked, number, seconds, length, key = _REQUEST.unpack(raw)
    try:
        known = Asked(asked)
        named = Key.unpack(key) if known in (Asked.PUT, Asked.GET) else None
    except ValueError as error:
        raise WireError(f"no request: {error}") from error
    if length > LARGEST_BYTES or not 0 <= seconds <= LONGEST_WAIT_S:
        raise WireError(f"no request: {length} bytes, {seconds} seconds")
    return ServerRequest(known, named, number, seconds, length)


def pack_reply(status: Status, length: int = 0, *, acknowledge: bool = False) -> bytes:
    """The head of a reply, as it travels."""
    return _REPLY.pack(status, acknowledge, length)


def read_reply(sock: socket.socket) -> tuple[Status, bool, int]:
    """Status, whether to acknowledge, and the body's length. Raises WireError."""
    raw = bytearray(_REPLY.size)
    receive(sock, memoryview(raw))
    status, acknowledge, length = _REPLY.unpack(raw)
    if status not in iter(Status) or length > LARGEST_BYTES:
        raise WireError(f"no reply: status {status}, {length} bytes")
    return Status(status), bool(acknowledge), length


def pack_keys(keys: Iterable[Key]) -> bytes:
    """One after another."""
    return b"".join(key.pack() for key in keys)


def unpack_keys(raw: bytes | bytearray) -> list[Key]:
    """From what `pack_keys` gave. Raises WireError."""
    if len(raw) % KEY_BYTES:
        raise WireError(f"no keys: {len(raw)} bytes")
    try:
        return [Key.unpack(raw[at : at + KEY_BYTES]) for at in range(0, len(raw), KEY_BYTES)]
    except ValueError as error:
        raise WireError(f"no keys: {error}") from error


def keys_bytes(count: int) -> int:
    """Bytes of so many keys."""
    return count * KEY_BYTES


def prepare(sock: socket.socket) -> None:
    """Small messages go at once; a machine that vanished is noticed; a silent end is left."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    # The kernel's own limits: Python's would make the socket non-blocking, and every large
    # transfer a row of small ones.
    sock.setblocking(True)
    _limit(sock, socket.SO_SNDTIMEO, SILENCE_S)
    patience(sock, SILENCE_S)


def patience(sock: socket.socket, seconds: float) -> None:
    """Sets how many seconds receiving waits for the next byte."""
    _limit(sock, socket.SO_RCVTIMEO, seconds)


def receive(sock: socket.socket, into: memoryview, *, idle: bool = False) -> bool:
    """Fills `into`.

    Args:
        sock: the connection.
        into: to be filled.
        idle: whether the other end may be silent before the first byte, for as long as it likes.

    Returns:
        False if an idle connection ended or broke before the first byte.

    Raises:
        Unreachable: the other end hung up or fell silent before `into` was full.
    """
    done = 0
    while done < into.nbytes:
        try:
            got = sock.recv_into(into[done:], 0, socket.MSG_WAITALL)
        except BlockingIOError as error:
            if idle and not done:
                continue
            raise Unreachable("it fell silent") from error
        except OSError as error:
            if idle and not done:
                return False
            raise Unreachable(f"the connection broke ({error.strerror})") from error
        if not got:
            if idle and not done:
                return False
            raise Unreachable("it closed the connection")
        done += got
    return True


def send(sock: socket.socket, *parts: bytes | memoryview) -> None:
    """Send all parts. Raises Unreachable if the other end does not take them."""
    left = [memoryview(part) for part in parts if len(part)]
    try:
        while left:
            sent = sock.sendmsg(left)
            while left and sent >= left[0].nbytes:
                sent -= left.pop(0).nbytes
            if sent:
                left[0] = left[0][sent:]
    except BlockingIOError as error:
        raise Unreachable("it takes no bytes any more") from error
    except OSError as error:
        raise Unreachable(f"the connection broke ({error.strerror})") from error


def greet(sock: socket.socket, token: str, audience: str) -> int | None:
    """The server's side of the handshake: the client's rank, or None for a stranger."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    try:
        send(sock, _MAGIC, nonce)
        answer = _receive_by(sock, _NONCE_BYTES + _RANK.size + _MAC_BYTES, HELLO_S)
        theirs, rank_raw = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:-_MAC_BYTES]
        said = (nonce, theirs, rank_raw)
        (rank,) = _RANK.unpack(rank_raw)
        wanted = _mac(token, b"client", audience, said)
        if not hmac.compare_digest(answer[-_MAC_BYTES:], wanted) or rank < COORDINATOR:
            return None
        send(sock, _mac(token, b"server", audience, said))
        patience(sock, SILENCE_S)
        return int(rank)
    except (OSError, Unreachable):
        return None


def introduce(sock: socket.socket, token: str, audience: str, rank: int) -> None:
    """The client's side of the handshake.

    Raises Unreachable if nobody speaks there, and WireError if it is another one.
    """
    greeting = _receive_by(sock, _GREETING_BYTES, GREETING_S)
    if not greeting.startswith(_MAGIC):
        raise WireError("what listens there is no server of dayfly's")
    said = (greeting[len(_MAGIC) :], secrets.token_bytes(_NONCE_BYTES), _RANK.pack(rank))
    send(sock, *said[1:], _mac(token, b"client", audience, said))
    try:
        proof = _receive_by(sock, _MAC_BYTES, GREETING_S)
    except Unreachable as error:
        raise WireError("it refused this run's token: it is another run's, or too late") from error
    if not hmac.compare_digest(proof, _mac(token, b"server", audience, said)):
        raise WireError("what listens there does not know this run's token")
    patience(sock, SILENCE_S)


def hang_up(sock: socket.socket) -> None:
    """Close a socket, and wake whoever waits for it in another thread."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _receive_by(sock: socket.socket, count: int, within_s: float) -> bytes:
    """So many bytes of a handshake, in that time however slowly they drip."""
    until = time.monotonic() + within_s
    got = b""
    while len(got) < count:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise Unreachable("it said no hello in time")
        patience(sock, left_s)
        try:
            some = sock.recv(count - len(got))
        except BlockingIOError:
            continue
        except OSError as error:
            raise Unreachable(f"the connection broke ({error.strerror})") from error
        if not some:
            raise Unreachable("it closed the connection")
        got += some
    return got


def _mac(token: str, side: bytes, audience: str, said: Sequence[bytes]) -> bytes:
    text = b"\0".join((side, audience.encode(), *said))
    return hmac.new(token.encode(), text, hashlib.sha256).digest()


def _limit(sock: socket.socket, option: int, seconds: float) -> None:
    micro_s = max(1000, round(seconds * 1e6))
    whole_s, rest = divmod(micro_s, 1_000_000)
    sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", whole_s, rest))
