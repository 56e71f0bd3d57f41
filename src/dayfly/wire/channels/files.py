"""The file channel: messages in memory that all workers on this machine see, best on tmpfs.

    <root>/<run>/<generation>/from-0            the messages that rank 0 sent
    <root>/<run>/<generation>/from-coordinator

Each is a segment (see `wire.segments`): the coordinator makes them, workers map them. To put is to
copy into the own segment and to get is to copy from another's; a doorbell wakes who waits. All
workers must be on one machine, also where the directory is on a disk or a network.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import xxhash

from dayfly import owned
from dayfly.errors import MessagesRemoved, WaitTimeout, WireError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.kind import ChannelFactory, ChannelSpec, Site
from dayfly.wire.channels.kinds import Files
from dayfly.wire.keys import COORDINATOR, FOREVER, HEADER_BYTES, Key
from dayfly.wire.message import (
    Header,
    address_of,
    check_header,
    checksum,
    compare,
    plain_payload,
    verify,
)
from dayfly.wire.segments import layout
from dayfly.wire.segments.pool import PagePool, failure, make_segments, mark_gone, segment_path
from dayfly.wire.segments.segment import Found, Segment
from dayfly.wire.segments.writer import SegmentWriter

Result = TypeVar("Result")

#: Up to here a payload is copied at once, without letting other threads run.
_SMALL_BYTES = 64 * 1024
#: Larger ones are copied and checked in pieces that stay in the processor's cache.
_PIECE_BYTES = 2**20
#: Looks at a message whose checksum is wrong before it counts as damaged: on some processors
#: another's writing may be seen out of order for a moment.
_LOOKS = 3


# Other threads do not run meanwhile, which would take longer than the copying of a small payload.
_copy_at_once = ctypes.PyDLL(None).memmove
_copy_at_once.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_copy_at_once.restype = None


class FileChannel(Channel):
    """Messages under `root`, in segments that were made before.

    Args:
        pool: the coordinator's.
    """

    abilities = Files.abilities
    immediate = Files.immediate
    zero_copy = Files.zero_copy

    def __init__(self, root: Path, namespace: Namespace, pool: PagePool | None = None) -> None:
        super().__init__(namespace)
        self._run = root / namespace.run
        self._place = _place(root, namespace)
        self._pool = pool
        self._closed = False
        self._lock = threading.Lock()
        self._segments: dict[int, Segment] = {}
        self._writers: dict[int, SegmentWriter] = {}
        self._waiting: dict[tuple[int, int], tuple[int, list[bytes]]] = {}
        self._sources: Sequence[int] = (COORDINATOR,)
        self._sources = (COORDINATOR, *range(self._segment(COORDINATOR).layout.senders))

    @classmethod
    def make(
        cls, root: Path, namespace: Namespace, *, senders: int, budget_bytes: int, ahead_bytes: int
    ) -> FileChannel:
        """Make the segments and open the coordinator's end, which keeps their pages touched."""
        place = _place(root, namespace)
        try:
            owned.claim(place.parent, namespace.run)
        except OSError as error:
            raise failure(error, place) from error
        make_segments(place, senders, budget_bytes)
        pool = PagePool(place, senders, ahead_bytes)
        try:
            return cls(root, namespace, pool)
        except BaseException:
            pool.close()
            raise

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        sealed, seed = header.summed(payload.nbytes)
        address, digest = layout.address_of(key)
        size = HEADER_BYTES + payload.nbytes
        segment = self._segment_of(key)

        def copy(at: int) -> None:
            checksum = _copy_in(segment, at + HEADER_BYTES, payload, seed)
            segment.map[at : at + HEADER_BYTES] = sealed + checksum.to_bytes(8, "little")

        try:
            won = self._writer(key.source).put(address, digest, size, copy)
        except WireError as error:
            raise type(error)(f"{key}: {error}") from error
        if won:
            segment.bells.ring(layout.bell_of(key.destination))
        self.traffic.count(up=size if won else 0)
        return won

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        expected = Header(key.operation, into.dtype, tuple(into.shape))
        size = into.nbytes
        target = address_of(into)
        sealed, seed = expected.summed(size)

        def copy(segment: Segment, found: Found) -> None:
            _check_header(segment, found, expected, sealed)
            _copy_out(segment, found.at, target, size, seed)

        return self._read(key, timeout_s, copy)[1]

    def fetch(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        size = expected.nbytes
        sealed, seed = expected.summed(size)

        def view(segment: Segment, found: Found) -> torch.Tensor:
            _check_header(segment, found, expected, sealed)
            at = found.at + HEADER_BYTES
            compare(checksum(segment.bytes[at : at + size], seed), _sent(segment, found.at))
            if not size:
                return torch.empty(expected.shape, dtype=expected.dtype)
            count = size // expected.dtype.itemsize
            flat = torch.frombuffer(segment.map, dtype=expected.dtype, count=count, offset=at)
            return flat.view(expected.shape)

        return self._read(key, timeout_s, view)

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        def copy(segment: Segment, found: Found) -> bytes:
            raw = segment.map[found.at : found.at + found.size]
            return plain_payload(raw, key.operation, verify)

        return self._read(key, timeout_s, copy)[0]

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        stored = frozenset(key for key in keys if self._find(key) is not None)
        self.traffic.count()
        return stored

    def waiting(self, destination: int) -> Sequence[Key]:
        self._check_pool()
        bell = layout.bell_of(destination)
        keys: list[Key] = []
        for source in self._sources:
            segment = self._segment(source)
            rung = segment.bells.seen(bell)
            before, addresses = self._waiting.get((source, destination), (-1, []))
            if rung != before:
                addresses = list(segment.addresses(destination))
            # What came before the bell rang was found then, so only drops are to be looked for.
            addresses = [one for one in addresses if segment.find(*layout.digested(one))]
            self._waiting[source, destination] = rung, addresses
            keys += [layout.key_of(address) for address in addresses]
        return sorted(keys)

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if (found := self._find(key)) is not None:
                self._segment(key.source).drop(found)

    def trim(self, before_step: int) -> None:
        self._check_pool()
        for source in self._sources:
            self._segment(source).trim(min(before_step, FOREVER), except_to=COORDINATOR)

    def size_bytes(self) -> int:
        return sum(self._segment(source).size_bytes() for source in self._sources)

    def destroy(self) -> None:
        remove_run(self._run.parent, self.namespace.run)

    def close(self) -> None:
        self._closed = True
        if self._pool is not None:
            self._pool.close()
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            # Not unmapped by hand: a held message keeps its segment mapped.
            self._writers.clear()
            self._segments.clear()

    def _segment(self, source: int) -> Segment:
        """Where the messages of a sender are; who is no rank sends by way of the coordinator."""
        source = source if source >= 0 else COORDINATOR
        segment = self._segments.get(source)
        if segment is None:
            with self._lock:
                if self._closed:
                    raise WireError(f"the channel at {self._place} is closed")
                if source not in self._sources:
                    raise WireError(f"no rank {source} was planned for at {self._place}")
                segment = Segment(segment_path(self._place, source))
                self._segments[source] = segment
        return segment

    def _segment_of(self, key: Key) -> Segment:
        try:
            return self._segment(key.source)
        except WireError as error:
            raise WireError(f"{key}: {error}") from error

    def _writer(self, source: int) -> SegmentWriter:
        source = source if source >= 0 else COORDINATOR
        writer = self._writers.get(source)
        if writer is None:
            segment = self._segment(source)
            with self._lock:
                if (writer := self._writers.get(source)) is None:
                    writer = self._writers[source] = SegmentWriter(segment, self._ask)
        return writer

    def _ask(self) -> None:
        self._segment(COORDINATOR).bells.ring(layout.BELL_WANTED)

    def _find(self, key: Key) -> Found | None:
        return self._segment(key.source).find(*layout.address_of(key))

    def _read(
        self, key: Key, timeout_s: float, use: Callable[[Segment, Found], Result]
    ) -> tuple[Result, float]:
        """Wait for a message and use it; once more, if it went away meanwhile.

        Returns what `use` did, and the moment at which the message was there.
        """
        until = time.monotonic() + timeout_s
        segment = self._segment_of(key)
        address, digest = layout.address_of(key)
        looks = _LOOKS
        while True:
            found = segment.find(address, digest)
            if found is None:
                self._wait(key, segment, address, digest, until, timeout_s)
                continue
            there = time.monotonic()
            try:
                result = use(segment, found)
            except WireError as error:
                looks -= segment.counts(found)
                if not looks:
                    raise WireError(f"{key}: {error}") from error
                continue
            if segment.counts(found):
                self.traffic.count(down=found.size)
                return result, there

    def _wait(
        self,
        key: Key,
        segment: Segment,
        address: bytes,
        digest: int,
        until: float,
        timeout_s: float,
    ) -> None:
        bell = layout.bell_of(key.destination)
        while True:
            seen = segment.bells.seen(bell)
            if segment.find(address, digest) is not None:
                return
            if segment.gone:
                raise MessagesRemoved(f"{key}: the run's messages at {self._place} were removed")
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{key} did not arrive within {timeout_s:g} s at {segment.path}")
            segment.bells.wait(bell, seen, left)

    def _check_pool(self) -> None:
        if self._pool is not None:
            self._pool.check()


class FileFactory(ChannelFactory):
    """Makes the channels of `Files`."""

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        return FileChannel.make(
            Files().directory(site.url),
            site.namespace,
            senders=spec.senders,
            budget_bytes=spec.budget_bytes,
            ahead_bytes=spec.ahead_bytes,
        )

    def open(self, site: Site, reader: int) -> Channel:
        return FileChannel(Files().directory(site.url), site.namespace)

    def remove(self, site: Site) -> None:
        remove_run(Files().directory(site.url), site.namespace.run)


def remove_run(root: Path, run: str) -> None:
    """Remove a run's messages of all generations, and tell whoever has them open."""
    if owned.belongs(root / run, run):
        for place in (root / run).iterdir():
            mark_gone(place)
    owned.remove(root / run, run)


def _place(root: Path, namespace: Namespace) -> Path:
    return root / namespace.run / f"{namespace.generation:06d}"


def _copy_in(segment: Segment, at: int, payload: memoryview, seed: int) -> int:
    """Copy a payload into a segment; returns its checksum."""
    size = payload.nbytes
    if size <= _SMALL_BYTES:
        segment.bytes[at : at + size] = payload
        return checksum(payload, seed)
    source = np.frombuffer(payload, np.uint8)
    target = segment.array[at : at + size]
    total = xxhash.xxh3_64(seed=seed)
    for start in range(0, size, _PIECE_BYTES):
        piece = source[start : start + _PIECE_BYTES]
        total.update(piece.data)
        np.copyto(target[start : start + _PIECE_BYTES], piece)
    return total.intdigest()


def _copy_out(segment: Segment, at: int, target: int, size: int, seed: int) -> None:
    """Copy a payload to an address. Raises WireError if its checksum is wrong.

    Each piece is summed first: what the copying reads afterwards is the same, or newer, and that
    the commit word would tell.
    """
    begin = at + HEADER_BYTES
    sent = _sent(segment, at)
    if size <= _SMALL_BYTES:
        compare(checksum(segment.bytes[begin : begin + size], seed), sent)
        _copy_at_once(target, segment.address + begin, size)
        return
    total = xxhash.xxh3_64(seed=seed)
    for start in range(0, size, _PIECE_BYTES):
        stop = min(start + _PIECE_BYTES, size)
        total.update(segment.bytes[begin + start : begin + stop])
        ctypes.memmove(target + start, segment.address + begin + start, stop - start)
    compare(total.intdigest(), sent)


def _sent(segment: Segment, at: int) -> int:
    """The checksum in the header of the message at a place."""
    return int(segment.words[(at + HEADER_BYTES) // 8 - 1])


def _check_header(segment: Segment, found: Found, expected: Header, sealed: bytes) -> None:
    if segment.map[found.at : found.at + len(sealed)] != sealed:
        raw = segment.map[found.at : found.at + found.size][:HEADER_BYTES]
        check_header(raw, expected, sealed)
        raise WireError(f"expected {expected}, found its header damaged")  # and whole again by now
    if found.size != HEADER_BYTES + expected.nbytes:
        raise WireError(f"expected {expected}, found it cut short")
