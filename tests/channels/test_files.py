"""The file channel alone: full disks, lost events, directories, and what it leaves behind."""

from __future__ import annotations

import copy
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dayfly.errors import WireError
from dayfly.wire import inotify
from dayfly.wire.channels import files
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.inotify import Doorbell
from dayfly.wire.keys import EVERYONE, Key
from tests.channels.places import NAMESPACE, SOON_S, put, tensor

KEY = Key(0, "a", 1, 0)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small tmpfs")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB and 32 files."""
    options = "size=1m,nr_inodes=32"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "dayfly-test", tmp_path], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def entries(root: Path) -> list[str]:
    """All files below, by their paths from the root."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@needs_root
def test_a_full_disk_is_named_with_its_remedy(small: Path) -> None:
    with FileChannel(small, NAMESPACE, 1) as channel:
        assert put(channel, KEY, tensor((1000,)))
        too_large = Key(1, "a", 1, 0)
        with pytest.raises(WireError, match=f"{too_large}: no space .*{small}.*--channel"):
            put(channel, too_large, tensor((2**20,)))
        assert entries(small) == [f"run/000000/to-0/{KEY.name}"]
        assert channel.traffic.bytes_up == 4128
        assert put(channel, too_large, tensor((1000,)))  # and there is room again


@needs_root
def test_no_room_for_a_new_box_is_named_too(small: Path) -> None:
    with FileChannel(small, NAMESPACE, 1) as channel:
        for number in range(os.statvfs(small).f_ffree):
            (small / f"filler-{number}").touch()
        with pytest.raises(WireError, match=f"{KEY}: no space .*--channel"):
            put(channel, KEY, tensor((1,)))


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WireError, match=f"cannot make {tmp_path}/file/run.*: Not a directory"):
        FileChannel(tmp_path / "file", NAMESPACE, 0)


def test_nothing_is_left_of_writing(tmp_path: Path) -> None:
    with FileChannel(tmp_path, NAMESPACE, 0) as channel:
        assert put(channel, KEY, tensor((4,)))
        assert not put(channel, KEY, tensor((4,)))
    assert entries(tmp_path) == [f"run/000000/to-0/{KEY.name}"]


def test_closed_channels_leave_no_handles(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with FileChannel(tmp_path, NAMESPACE, 0) as channel:
            put(channel, KEY, tensor((4,)))
            channel.get(KEY, torch.zeros(4), SOON_S)
            with pytest.raises(WireError):
                channel.get(KEY, torch.zeros(5), SOON_S)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_strangers_file_in_a_box_is_passed_over(tmp_path: Path) -> None:
    with FileChannel(tmp_path, NAMESPACE, 0) as channel:
        channel.put_bytes(KEY, b"x")
        box = tmp_path / "run/000000/to-0"
        for name in ("notes.txt", ".hidden", "1.a.1", "00000000٣.a.1", "000000003.a.01"):
            (box / name).touch()
        assert channel.waiting(0) == [KEY]
        channel.trim(5)
        assert len(os.listdir(box)) == 5


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write may take any part of what it is given, even of the header."""
    writev, write = os.writev, os.write
    monkeypatch.setattr(files.os, "writev", lambda fd, parts: writev(fd, [parts[0][:100]]))
    monkeypatch.setattr(files.os, "write", lambda fd, data: write(fd, data[:13]))
    with FileChannel(tmp_path, NAMESPACE, 0) as channel:
        put(channel, KEY, tensor((50,)))
        got = torch.zeros(50)
        channel.get(KEY, got, SOON_S)
    assert torch.equal(got, tensor((50,)))


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readv = os.readv

    def short(fd: int, parts: list[bytearray | memoryview]) -> int:
        return readv(fd, [*parts[:-1], memoryview(parts[-1])[:13]])

    with FileChannel(tmp_path, NAMESPACE, 0) as channel:
        put(channel, KEY, tensor((50,)))
        monkeypatch.setattr(files.os, "readv", short)
        got = torch.zeros(50)
        channel.get(KEY, got, SOON_S)
    assert torch.equal(got, tensor((50,)))


def test_one_ring_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter sleeps from event to event: here one for another message, then its own."""
    monkeypatch.setattr(inotify, "LOOK_AGAIN_S", 10 * SOON_S)
    asleep, wait = threading.Semaphore(0), Doorbell.wait

    def counted(bell: Doorbell, seen: int, timeout_s: float) -> None:
        asleep.release()
        wait(bell, seen, timeout_s)

    monkeypatch.setattr(Doorbell, "wait", counted)
    with FileChannel(tmp_path, NAMESPACE, 0) as reader, ThreadPoolExecutor(1) as pool:
        got = torch.zeros(4)
        waiter = pool.submit(reader.get, KEY, got, SOON_S)
        with FileChannel(tmp_path, NAMESPACE, 1) as writer:
            for key in (Key(0, "other", 1, EVERYONE), KEY):
                assert asleep.acquire(timeout=SOON_S)
                assert not waiter.done()
                put(writer, key, tensor((4,)))
            waiter.result(SOON_S)
    assert not asleep.acquire(blocking=False)
    assert torch.equal(got, tensor((4,)))


@pytest.mark.parametrize("broken", ["inotify_init1", "inotify_add_watch"])
def test_without_inotify_it_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(inotify._libc, broken, lambda *_: -1)
    with FileChannel(tmp_path, NAMESPACE, 0) as reader, ThreadPoolExecutor(2) as pool:
        got = [torch.zeros(4), torch.zeros(4)]
        waiters = [pool.submit(reader.get, KEY, into, SOON_S) for into in got]
        put(reader, KEY, tensor((4,)))
        for waiter in waiters:
            waiter.result(SOON_S)
        assert len(os.listdir("/proc/self/fd")) == before
    assert torch.equal(torch.stack(got), torch.stack([tensor((4,))] * 2))


def test_a_forked_channel_writes_beside_its_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a fork two processes have the same channel object, but never the same file."""
    written, write = [], files._write
    monkeypatch.setattr(
        files, "_write", lambda path, *parts: written.append(path) or write(path, *parts)
    )
    with FileChannel(tmp_path, NAMESPACE, 0) as channel:
        twin = copy.copy(channel)
        assert put(channel, KEY, tensor((4,)))
        monkeypatch.setattr(files.os, "getpid", lambda: 1)
        assert not put(twin, KEY, tensor((4,)))
    assert len(set(written)) == 2


def test_only_a_taken_key_is_a_lost_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the unfinished file's name is taken nothing was stored, and nothing is touched."""
    with FileChannel(tmp_path, NAMESPACE, 0) as channel:
        unfinished = tmp_path / "run/000000/writing/other"
        unfinished.write_bytes(b"the other process is at it")
        write = files._write
        monkeypatch.setattr(files, "_write", lambda _, *parts: write(unfinished, *parts))
        with pytest.raises(WireError, match=str(KEY)):
            put(channel, KEY, tensor((4,)))
        assert unfinished.exists()
