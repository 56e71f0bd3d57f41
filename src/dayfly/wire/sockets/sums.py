"""What makes a parameter server of a server: it adds what is pushed to it.

A rank pushes the chunk c of an operation X as `X-part-c` to `keys.SERVER`. When all n ranks have,
their sum is there as `X-sum-c`, from SERVER to everyone, and is freed when every rank has read it.
Workers weight what they push by their share of the samples, so that the sum is the mean over the
batch; the server knows nothing of weights.

The order is fixed: ((r0 + r1) + r2) + ..., whoever comes first, in the element type of the
message. So the sum has the same bits as one that a worker makes. What comes in order is added at
once and its memory is free again; what comes early is kept until it is its turn. So a sum of s
bytes takes s when ranks come in order, and n s when rank 0 comes last.

As in VM-PS (CE-scaling, section II), Cirrus, lambda-DNN and HybridPS (FuncPipe, sections 2.2 and
5.1), one server moves all bytes of all workers: n pushes and n pulls of the whole model a step.

This module is imported by the server, so it does without torch. NumPy adds with the same bits; it
has no bfloat16, which is added here as torch does it: in float32, rounded to the nearest, ties to
even.
"""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dayfly.errors import WireError
from dayfly.wire.authentication import Authenticator
from dayfly.wire.keys import EVERYONE, HEADER_BYTES, SERVER, Fields, Key
from dayfly.wire.sockets.table import MessageTable

#: Element types by their number in the header: of `dayfly.wire.message.DTYPES`, which goes on with
#: those that torch does not add, or NumPy does not know.
DTYPES = (
    "uint8",
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "bool",
    "complex64",
    "complex128",
)
_BFLOAT16 = DTYPES.index("bfloat16")
#: Elements that are added at a time where adding takes memory beside the two terms.
_PIECE = 2**16
#: Finished sums that are remembered, so that a contribution that is sent again is not taken for
#: the first of another sum.
_REMEMBERED = 2**16

_PART = re.compile(r"(.+)-part-([0-9]+)")


def sum_key(part: Key) -> Key:
    """The key of the sum that a contribution goes into. Raises WireError if it is none."""
    match = _PART.fullmatch(part.operation)
    if match is None:
        raise WireError(f"{part}: what is pushed to the server is called <operation>-part-<chunk>")
    return Key(part.step, f"{match[1]}-sum-{match[2]}", SERVER, EVERYONE)


@dataclass(slots=True)
class _Sum:
    """One sum that is not whole yet: of ranks 0 to `following - 1`.

    Attributes:
        layout: type and shape, as `first` pushed them.
        early: contributions whose turn has not come.
        adding: whether a thread is adding.
    """

    layout: tuple[int, tuple[int, ...]]
    first: int
    following: int = 0
    total: memoryview | None = None
    early: dict[int, memoryview] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    adding: bool = False


class ServerSums:
    """Adds contributions, and stores the sums.

    Args:
        table: stores the sums.
        world_size: number of ranks that contribute.
        by: checks the contributions, and seals the sums.
    """

    def __init__(self, table: MessageTable, world_size: int, by: Authenticator) -> None:
        self._table = table
        self._by = by
        self._world_size = world_size
        self._lock = threading.Lock()
        self._sums: dict[Key, _Sum] = {}
        self._finished: OrderedDict[Key, None] = OrderedDict()

    def push(self, key: Key, blob: memoryview) -> bool:
        """Takes a contribution, in the room that was reserved for it.

        Args:
            key: of the contribution.
            blob: header and payload; it becomes the server's.

        Returns:
            False if it came before.

        Raises:
            WireError: it is damaged, or differs in type or shape from what another rank pushed;
                then that sum fails for all ranks.
        """
        kept = False
        try:
            kept = self._push(key, blob)
        finally:
            if not kept:
                self._table.release(blob.nbytes)
        return kept

    def trim(self, before_step: int) -> None:
        """Forget sums of earlier steps, whole or not."""
        with self._lock:
            for target in [one for one in self._sums if one.step < before_step]:
                # What a thread just adds is given back by it; see `_add_up`.
                pending = self._sums.pop(target)
                self._table.release(sum(blob.nbytes for blob in pending.early.values()))
                pending.early.clear()
                if not pending.adding and pending.total is not None:
                    self._table.release(pending.total.nbytes)
            for target in [one for one in self._finished if one.step < before_step]:
                del self._finished[target]

    def _push(self, key: Key, blob: memoryview) -> bool:
        target = sum_key(key)
        if not 0 <= key.source < self._world_size:
            raise WireError(f"{key}: of {self._world_size} ranks")
        fields = _fields(key, blob)
        self._by.check(key, blob, blob[HEADER_BYTES:])
        layout = fields.dtype, fields.shape
        with self._lock:
            if (why := self._table.failure(target)) is not None:
                raise WireError(why)
            if target in self._finished:
                return False
            pending = self._sums.setdefault(target, _Sum(layout, key.source))
            if key.source in pending.seen:
                return False
            if layout != pending.layout:
                self._give_up(target, pending, layout, key.source)
            pending.seen.add(key.source)
            pending.early[key.source] = blob
            if pending.adding:
                return True  # by the thread that is at it
            pending.adding = True
        self._add_up(target, pending)
        return True

    def _give_up(
        self, target: Key, pending: _Sum, layout: tuple[int, tuple[int, ...]], rank: int
    ) -> None:
        why = (
            f"{target}: rank {pending.first} pushed {_in_words(pending.layout)}, "
            f"rank {rank} {_in_words(layout)}"
        )
        del self._sums[target]
        held = [*pending.early.values(), *([pending.total] if not pending.adding else [])]
        pending.early.clear()
        self._table.release(sum(blob.nbytes for blob in held if blob is not None))
        self._table.fail(target, why)
        raise WireError(why)

    def _add_up(self, target: Key, pending: _Sum) -> None:
        """Add whatever is due; others may push meanwhile."""
        while True:
            with self._lock:
                if self._sums.get(target) is not pending:
                    # Trimmed, or failed, while this thread was adding.
                    if pending.total is not None:
                        self._table.release(pending.total.nbytes)
                    return
                if pending.following == self._world_size:
                    del self._sums[target]
                    self._finished[target] = None
                    if len(self._finished) > _REMEMBERED:
                        self._finished.popitem(last=False)
                    break
                blob = pending.early.pop(pending.following, None)
                if blob is None:
                    pending.adding = False
                    return
            if pending.total is None:
                pending.total = blob
            else:
                add(pending.layout[0], pending.total[HEADER_BYTES:], blob[HEADER_BYTES:])
                self._table.release(blob.nbytes)
            pending.following += 1
        assert pending.total is not None
        fields = replace(Fields.unpack(pending.total), operation=target.operation)
        payload = pending.total[HEADER_BYTES:]
        pending.total[:HEADER_BYTES] = self._by.seal(target, fields.pack(), payload)
        self._table.keep(target, pending.total)


def add(number: int, total: memoryview, term: memoryview) -> None:
    """Add elements of the type `number` of `DTYPES` in place, with the bits that torch gives.

    Complex numbers with an infinite part are no numbers in torch, and infinite here.
    """
    if not term.nbytes:
        return
    with np.errstate(all="ignore"):  # infinite sums are the workers' to notice
        if number != _BFLOAT16:
            dtype = np.dtype(DTYPES[number])
            into = np.frombuffer(total, dtype)
            np.add(into, np.frombuffer(term, dtype), out=into)
            return
        totals, terms = np.frombuffer(total, np.uint16), np.frombuffer(term, np.uint16)
        for start in range(0, totals.size, _PIECE):
            piece = slice(start, start + _PIECE)
            totals[piece] = _to_bfloat16(_to_float32(totals[piece]) + _to_float32(terms[piece]))


def _to_float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def _fields(key: Key, blob: memoryview) -> Fields:
    """What the header of a contribution says. Raises WireError unless it is one, of its size."""
    try:
        fields = Fields.unpack(blob)
    except WireError as error:
        raise WireError(f"{key}: {error}") from error
    if fields.dtype >= len(DTYPES):
        raise WireError(f"{key}: elements of type {fields.dtype} are not added: send {DTYPES}")
    elements = math.prod(fields.shape)
    itemsize = 2 if fields.dtype == _BFLOAT16 else np.dtype(DTYPES[fields.dtype]).itemsize
    size, found = elements * itemsize, blob.nbytes - HEADER_BYTES
    if fields.operation != key.operation or found != size:
        raise WireError(
            f"{key}: expected {size} bytes of it, found {found} bytes of {fields.operation}"
        )
    return fields


def _in_words(layout: tuple[int, tuple[int, ...]]) -> str:
    return f"{DTYPES[layout[0]]}{list(layout[1])}"
