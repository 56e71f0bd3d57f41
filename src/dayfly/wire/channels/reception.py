"""A message that comes in pieces: checked against what its reader expects, and put in its place.

Each piece is copied once, from where the store's client has it to where it is to lie, and summed
on the way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
import xxhash

from dayfly.errors import WireError
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.message import Header, check_header, compare, plain_payload
from dayfly.wire.tensors import address_of

_CHECKSUM_BYTES = 8


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that a store has. size: of header and payload; pieces: the bytes, in order.

    requests: that it took to get it, more than one where it is stored in parts.
    """

    size: int
    pieces: Iterable[memoryview]
    requests: int = 1


def receive_tensor(incoming: Incoming, into: torch.Tensor, operation: str) -> None:
    """Read a message into a contiguous CPU tensor.

    Raises WireError, saying what was expected and found; the tensor is not defined then.
    """
    expected = Header(operation, into.dtype, tuple(into.shape))
    sealed, seed = expected.sealed(into.nbytes)
    target, done, size = address_of(into), 0, into.nbytes
    total = xxhash.xxh3_64(seed=seed)
    head = b""
    for piece in incoming.pieces:
        rest = piece
        if len(head) < HEADER_BYTES:
            missing = HEADER_BYTES - len(head)
            head, rest = head + bytes(piece[:missing]), piece[missing:]
            if len(head) == HEADER_BYTES:
                _check(head, incoming.size, expected, sealed)
        if rest.nbytes:
            if done + rest.nbytes > size:
                raise WireError(f"expected {expected}, found more bytes than that")
            total.update(rest)
            ctypes.memmove(target + done, np.frombuffer(rest, np.uint8).ctypes.data, rest.nbytes)
            done += rest.nbytes
    if len(head) < HEADER_BYTES:
        _check(head, incoming.size, expected, sealed)
    if done != size:
        raise WireError(f"expected {expected}, found {done} bytes of it")
    compare(total.intdigest(), int.from_bytes(head[-_CHECKSUM_BYTES:], "little"))


def receive_bytes(incoming: Incoming, operation: str) -> bytes:
    """Read a message of dtype uint8 and one dimension, whatever its size. Raises WireError."""
    return plain_payload(b"".join(incoming.pieces), operation)


def _check(head: bytes, size: int, expected: Header, sealed: bytes) -> None:
    """Raise WireError unless the header, as far as it came, is of the message that is expected."""
    check_header(head, expected, sealed)
    if size != HEADER_BYTES + expected.nbytes:
        raise WireError(f"expected {expected}, found {size - HEADER_BYTES} bytes of it")
