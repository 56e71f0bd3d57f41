"""From and to messages on a connection: header and payload, checked on the way."""

from __future__ import annotations

import socket
from typing import TypeVar

import numpy as np
import torch

from dayfly.errors import WireError, named
from dayfly.wire.authentication import Checking
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.keys import Key
from dayfly.wire.message import Header, Opening
from dayfly.wire.sockets import protocol
from dayfly.wire.sockets.client import Take, receive_unknown
from dayfly.wire.sockets.protocol import Unreachable
from dayfly.wire.tensors import as_bytes

Result = TypeVar("Result")

#: A payload is received, copied and checked in pieces that stay in the processor's cache.
_PIECE_BYTES = 2**19


def into_tensor(opening: Opening, into: torch.Tensor) -> Take[None]:
    """Receives a message into a contiguous CPU tensor.

    It raises WireError, with the key, if the message is not as expected.
    """
    expected = Header(opening.key.operation, into.dtype, tuple(into.shape))
    target = as_bytes(into)

    def take(connection: socket.socket, length: int) -> None:
        head = bytearray(min(length, HEADER_BYTES))
        protocol.receive(connection, memoryview(head))
        checking = _begin(head, length, expected, opening)
        for start in range(0, target.nbytes, _PIECE_BYTES):
            piece = target[start : start + _PIECE_BYTES]
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
        checking = _begin(head, blob.nbytes, expected, opening)
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


def _begin(head: bytearray, length: int, expected: Header, opening: Opening) -> Checking:
    checking = opening.begin(head, expected)
    if length != HEADER_BYTES + expected.nbytes:
        raise WireError(f"expected {expected}, found it cut short")
    return checking
