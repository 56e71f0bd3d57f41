"""A message that comes in pieces: checked against what its reader expects, and put in its place.

Each piece is copied once, from where the store's client has it to where it is to lie, and
authenticated on the way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from dayfly.errors import WireError
from dayfly.wire.authentication import Checking
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.message import Header, Opening
from dayfly.wire.tensors import address_of


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that a store has. size: of header and payload; pieces: the bytes, in order.

    requests: that it took to get it, more than one where it is stored in parts.
    """

    size: int
    pieces: Iterable[memoryview]
    requests: int = 1


def receive_tensor(incoming: Incoming, into: torch.Tensor, opening: Opening) -> None:
    """Read a message into a contiguous CPU tensor.

    Raises WireError, saying what was expected and found; the tensor is not defined then.
    """
    expected = Header(opening.key.operation, into.dtype, tuple(into.shape))
    target, done, size = address_of(into), 0, into.nbytes
    checking: Checking | None = None
    head = b""
    for piece in incoming.pieces:
        rest = piece
        if checking is None:
            missing = HEADER_BYTES - len(head)
            head, rest = head + bytes(piece[:missing]), piece[missing:]
            if len(head) < HEADER_BYTES:
                continue
            checking = _begin(head, incoming.size, expected, opening)
        if rest.nbytes:
            if done + rest.nbytes > size:
                raise WireError(f"expected {expected}, found more bytes than that")
            checking.update(rest)
            ctypes.memmove(target + done, np.frombuffer(rest, np.uint8).ctypes.data, rest.nbytes)
            done += rest.nbytes
    if checking is None:
        checking = _begin(head, incoming.size, expected, opening)
    if done != size:
        raise WireError(f"expected {expected}, found {done} bytes of it")
    checking.finish()


def receive_bytes(incoming: Incoming, opening: Opening) -> bytes:
    """Read a message of dtype uint8 and one dimension, whatever its size. Raises WireError."""
    return opening.plain(b"".join(incoming.pieces))


def _begin(head: bytes, size: int, expected: Header, opening: Opening) -> Checking:
    """Raise WireError unless the header, as far as it came, is of the message that is expected."""
    checking = opening.begin(head, expected)
    if size != HEADER_BYTES + expected.nbytes:
        raise WireError(f"expected {expected}, found {size - HEADER_BYTES} bytes of it")
    return checking
