"""From and to messages on a connection: header and payload, checked on the way."""

from __future__ import annotations

import socket
from typing import TypeVar

import numpy as np
import torch
import xxhash

from dayfly.errors import WireError
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.keys import Key
from dayfly.wire.message import Header, check_header, compare, plain_payload, verify
from dayfly.wire.sockets import protocol
from dayfly.wire.sockets.client import Take, receive_unknown
from dayfly.wire.sockets.protocol import Unreachable
from dayfly.wire.tensors import as_bytes

Result = TypeVar("Result")

#: A payload is received, copied and checked in pieces that stay in the processor's cache.
_PIECE_BYTES = 2**19


def into_tensor(key: Key, into: torch.Tensor) -> Take[None]:
    """Receives a message into a contiguous CPU tensor.

    It raises WireError, with the key, if the message is not as expected.
    """
    expected = Header(key.operation, into.dtype, tuple(into.shape))
    sealed, seed = expected.sealed(into.nbytes)
    target = as_bytes(into)

    def take(connection: socket.socket, length: int) -> None:
        head = bytearray(min(length, HEADER_BYTES))
        protocol.receive(connection, memoryview(head))
        _check_head(head, length, expected, sealed)
        total = xxhash.xxh3_64(seed=seed)
        for start in range(0, target.nbytes, _PIECE_BYTES):
            piece = target[start : start + _PIECE_BYTES]
            protocol.receive(connection, piece)
            total.update(piece)
        compare(total.intdigest(), _sent(head))

    return _naming(key, take)


def as_plain_bytes(key: Key) -> Take[bytes]:
    """Receives a message of bytes, of any size; raises WireError, with the key, for another."""

    def take(connection: socket.socket, length: int) -> bytes:
        return plain_payload(receive_unknown(connection, length), key.operation)

    return _naming(key, take)


def copy_into_tensor(key: Key, blob: memoryview, into: torch.Tensor) -> None:
    """As `into_tensor`, of a message of this process's own."""
    expected = Header(key.operation, into.dtype, tuple(into.shape))
    sealed, _ = expected.sealed(into.nbytes)
    try:
        _check_head(bytearray(blob[:HEADER_BYTES]), blob.nbytes, expected, sealed)
        verify(bytes(blob[:HEADER_BYTES]), blob[HEADER_BYTES:])
    except WireError as error:
        raise WireError(f"{key}: {error}") from error
    as_bytes(into)[:] = blob[HEADER_BYTES:]


def plain_bytes(key: Key, blob: memoryview) -> bytes:
    """As `as_plain_bytes`, of a message of this process's own."""
    try:
        return plain_payload(bytes(blob), key.operation)
    except WireError as error:
        raise WireError(f"{key}: {error}") from error


def pack(header: Header, payload: memoryview) -> memoryview:
    """A message as it is kept: header and a copy of the payload."""
    size = payload.nbytes
    sealed, seed = header.sealed(size)
    blob = np.empty(HEADER_BYTES + size, np.uint8)
    total = xxhash.xxh3_64(seed=seed)
    for start in range(0, size, _PIECE_BYTES):
        piece = payload[start : start + _PIECE_BYTES]
        total.update(piece)
        begin = HEADER_BYTES + start
        blob[begin : begin + piece.nbytes] = np.frombuffer(piece, np.uint8)
    whole = blob.data
    whole[:HEADER_BYTES] = sealed + total.intdigest().to_bytes(8, "little")
    return whole


def _naming(key: Key, take: Take[Result]) -> Take[Result]:
    def named(connection: socket.socket, length: int) -> Result:
        try:
            return take(connection, length)
        except Unreachable:
            raise
        except WireError as error:
            raise WireError(f"{key}: {error}") from error

    return named


def _check_head(head: bytearray, length: int, expected: Header, sealed: bytes) -> None:
    check_header(head, expected, sealed)
    if length != HEADER_BYTES + expected.nbytes or len(head) < HEADER_BYTES:
        raise WireError(f"expected {expected}, found it cut short")


def _sent(head: bytearray) -> int:
    return int.from_bytes(head[HEADER_BYTES - 8 :], "little")
