"""The file channel: a message is a file in a directory that all workers see, best on tmpfs.

    <root>/<run>/<generation>/to-2/000000012.part.0     from rank 0 to rank 2, in step 12
    <root>/<run>/<generation>/to-everyone/000000012.sum.1
    <root>/<run>/<generation>/writing/…                 being written, not yet there

A message is written beside, then linked to its name: readers see all of it or nothing, and the
link fails if the name is taken, so the first put wins. Readers sleep until the directory changes.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.inotify import Doorbell
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, Key, party_name
from dayfly.wire.message import HEADER_BYTES, Header, verify
from dayfly.wire.tensors import as_bytes

#: A file that is being written and has not grown for this long was left by a killed worker.
_ABANDONED_S = 300.0


class FileChannel(Channel):
    """Messages as files under `root`. `reader`: the rank (or party) whose boxes are waited at."""

    immediate = True

    def __init__(self, root: Path, namespace: Namespace, reader: int) -> None:
        super().__init__(namespace)
        self._run = root / namespace.run
        self._here = self._run / f"{namespace.generation:06d}"
        self._writing = self._here / "writing"
        self._boxes: dict[int, Path] = {}
        self._lock = threading.Lock()
        try:
            self._writing.mkdir(parents=True, exist_ok=True, mode=0o700)
            own = [self._box(reader), self._box(EVERYONE)]
        except OSError as error:
            raise WireError(f"file channel: cannot make {self._here}: {error.strerror}") from error
        self._doorbell = Doorbell(own)
        self._prefix = uuid.uuid4().hex[:8]
        self._count = 0

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        with self._lock:
            self._count += 1
            # The process may have forked since: the number alone would name two files the same.
            temporary = self._writing / f"{os.getpid()}-{self._prefix}-{self._count}"
        raw = header.pack(payload)
        try:
            final = self._path(key)
            _write(temporary, raw, payload)
            try:
                won = _link(temporary, final)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise WireError(_cannot_write(key, self._here, error)) from error
        self.traffic.count(up=len(raw) + payload.nbytes if won else 0)
        return won

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        expected = Header(key.operation, into.dtype, tuple(into.shape))
        payload = as_bytes(into)
        with self._opened(key, timeout_s) as file:
            there = time.monotonic()
            raw = bytearray(HEADER_BYTES)
            read = os.readv(file.fileno(), [raw, payload])
            found = _unpack(key, raw[: min(read, HEADER_BYTES)], str(expected))
            if found != expected:
                raise WireError(f"{key}: expected {expected}, found {found}")
            size = HEADER_BYTES + found.nbytes
            while 0 < read < size:  # readv moves 2 GiB at most
                more = os.readv(file.fileno(), [payload[read - HEADER_BYTES :]])
                read = read + more if more else -1
            if read != size:
                raise WireError(f"{key}: expected {expected}, found it cut short")
        _verify(key, raw, payload)
        self.traffic.count(down=size)
        return there

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        with self._opened(key, timeout_s) as file:
            raw = file.read()
        expected = f"{key.operation} of bytes"
        header = _unpack(key, raw, expected)
        if header != Header(key.operation, torch.uint8, (header.nbytes,)):
            raise WireError(f"{key}: expected {expected}, found {header}")
        payload = memoryview(raw)[HEADER_BYTES:]
        if payload.nbytes != header.nbytes:
            raise WireError(f"{key}: expected {header}, found {payload.nbytes} bytes of it")
        _verify(key, raw, payload)
        self.traffic.count(down=len(raw))
        return bytes(payload)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        found = frozenset(key for key in keys if self._path(key).exists())
        self.traffic.count()
        return found

    def waiting(self, destination: int) -> Sequence[Key]:
        names = os.listdir(self._box(destination))
        return sorted(key for name in names if (key := Key.parse(name, destination)))

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._path(key).unlink(missing_ok=True)

    def trim(self, before_step: int) -> None:
        for box in self._here.glob("to-*"):
            if box.name == f"to-{party_name(COORDINATOR)}":
                continue
            for name in os.listdir(box):
                key = Key.parse(name, EVERYONE)
                if key is not None and key.step < min(before_step, FOREVER):
                    (box / name).unlink(missing_ok=True)
        for path in self._writing.iterdir():
            if _age_s(path) > _ABANDONED_S:
                path.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        return sum(_size(path) for path in self._here.glob("*/*"))

    def destroy(self) -> None:
        shutil.rmtree(self._run, ignore_errors=True)

    def close(self) -> None:
        self._doorbell.close()

    def _box(self, party: int) -> Path:
        path = self._boxes.get(party)
        if path is None:
            path = self._here / f"to-{party_name(party)}"
            path.mkdir(exist_ok=True, mode=0o700)
            self._boxes[party] = path
        return path

    def _path(self, key: Key) -> Path:
        return self._box(key.destination) / key.name

    def _opened(self, key: Key, timeout_s: float) -> io.FileIO:
        path = self._path(key)
        until = time.monotonic() + timeout_s
        while True:
            rings = self._doorbell.rings
            try:
                return open(path, "rb", buffering=0)
            except FileNotFoundError:
                left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{key} did not arrive within {timeout_s:g} s at {path}")
            self._doorbell.wait(rings, left)


def _write(path: Path, raw: bytes, payload: memoryview) -> None:
    """Write a new file; if that fails, leave none."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        written = os.writev(fd, [raw, payload])
        while written < len(raw):
            written += os.writev(fd, [raw[written:], payload])
        while written < len(raw) + payload.nbytes:  # writev moves 2 GiB at most
            written += os.write(fd, payload[written - len(raw) :])
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _link(path: Path, final: Path) -> bool:
    """Give a file its name; False if the name is taken."""
    try:
        os.link(path, final)
    except FileExistsError:
        return False
    return True


def _unpack(key: Key, raw: bytes | bytearray, expected: str) -> Header:
    try:
        return Header.unpack(raw)
    except WireError as error:
        raise WireError(f"{key}: expected {expected}, found {error}") from error


def _verify(key: Key, raw: bytes | bytearray, payload: memoryview) -> None:
    try:
        verify(raw, payload)
    except WireError as error:
        raise WireError(f"{key}: {error}") from error


def _cannot_write(key: Key, place: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(place).free if place.exists() else 0
        return (
            f"{key}: no space left for messages at {place} ({free / 2**20:.0f} MiB free): "
            "free some, or name another place with --channel file:///path"
        )
    return f"{key}: cannot be written at {place}: {error.strerror}"


def _age_s(path: Path) -> float:
    """Seconds since a file was last written to; 0 if it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
