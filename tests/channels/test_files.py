"""The file channel alone: full disks and logs, doorbells, and what it leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from dayfly.errors import NoRoom, WaitTimeout, WireError
from dayfly.wire.channels import files
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, put, tensor
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import COORDINATOR, EVERYONE, Key
from dayfly.wire.message import Header
from dayfly.wire.segments import layout
from dayfly.wire.segments import segment as segments
from dayfly.wire.segments import writer as writers
from dayfly.wire.segments.segment import Doorbells
from dayfly.wire.segments.writer import SegmentWriter
from tests.channels.kit import handles
from tests.channels.places import FilePlace, make

KEY = Key(0, "a", 1, 0)
LARGE = Key(1, "a", 1, 0)
MIB = 2**20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small tmpfs")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "dayfly-test", tmp_path], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def opened(root: Path) -> FileChannel:
    return FileChannel(root, NAMESPACE)


@needs_root
def test_a_full_disk_is_named_with_its_remedy(small: Path) -> None:
    """To the worker that puts, and to the coordinator, whose place it is to act."""
    says = f"no space left for messages at {small}/run.*--channel"
    with make(small, senders=2, budget_bytes=4 * MIB) as coordinators, opened(small) as channel:
        assert put(channel, KEY, tensor((1000,)))
        with pytest.raises(WireError, match=f"^{LARGE}: {says}"):
            put(channel, LARGE, tensor((MIB // 2,)))
        assert channel.traffic.bytes_up == 4128
        for act in (lambda: coordinators.waiting(COORDINATOR), lambda: coordinators.trim(1)):
            with pytest.raises(WireError, match=says):
                act()
        assert put(channel, LARGE, tensor((1000,)))  # where there is room still


@needs_root
def test_no_space_to_make_it_is_named_and_nothing_stays(small: Path) -> None:
    (small / "filler").write_bytes(bytes(MIB - 200_000))
    with pytest.raises(WireError, match=f"no space left for messages at {small}/run.*--channel"):
        make(small)
    assert list(small.rglob("from-*")) == []


def test_a_full_log_is_named_with_its_remedy(tmp_path: Path) -> None:
    with make(tmp_path, senders=2, budget_bytes=MIB) as coordinators, opened(tmp_path) as channel:
        for _ in range(2):
            with pytest.raises(WireError, match=f"^{LARGE}: no room at {tmp_path}.*--log-budget"):
                put(channel, LARGE, tensor((MIB // 4,)))
        assert put(channel, LARGE, tensor((MIB // 8,)))
        coordinators.trim(5)
        assert put(channel, KEY, tensor((MIB // 8,)))
        assert list(coordinators.waiting(0)) == [KEY]


def test_a_full_log_has_room_again_once_messages_are_dropped(tmp_path: Path) -> None:
    """And asks for none that is not there, however often it is tried."""
    half = tensor((MIB // 8,))  # and two of it, with their headers, are more than there is
    with make(tmp_path, senders=2, budget_bytes=MIB) as coordinators, opened(tmp_path) as channel:
        assert put(channel, KEY, half)
        for _ in range(3):
            with pytest.raises(NoRoom, match=f"^{LARGE}: no room at .* the messages fill"):
                put(channel, LARGE, half)
        coordinators.drop([KEY])
        assert put(channel, LARGE, half)
        with pytest.raises(NoRoom):
            put(channel, KEY, half)


def test_what_can_never_fit_is_told_from_what_can_later(tmp_path: Path) -> None:
    with make(tmp_path, senders=2, budget_bytes=MIB), opened(tmp_path) as channel:
        for length in (MIB // 5, MIB // 4, 2 * MIB):
            if length == 2 * MIB:  # also with others there
                assert put(channel, KEY, tensor((1000,)))
            with pytest.raises(WireError, match=r"larger than what is left .* 0\.9 MiB") as raised:
                put(channel, LARGE, tensor((length,)))
            assert not isinstance(raised.value, NoRoom)


def test_whoever_makes_no_room_is_named_with_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is gone, or so slow that the worker had better say what it waits for."""
    monkeypatch.setattr(writers, "ROOM_TIMEOUT_S", 0.05)
    coordinators = make(tmp_path)
    with opened(tmp_path) as channel:
        coordinators.close()
        with pytest.raises(WireError, match=rf"^{LARGE}: the coordinator made no room .*0\.05 s"):
            put(channel, LARGE, tensor((4 * MIB,)))


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WireError, match=f"cannot make {tmp_path}/file/run.*: Not a directory"):
        make(tmp_path / "file")


def test_a_channel_is_made_once(tmp_path: Path) -> None:
    with make(tmp_path) as channel:
        put(channel, KEY, tensor((4,)))
        with pytest.raises(WireError, match=f"cannot make {tmp_path}/run/000000"):
            make(tmp_path)
        assert channel.stored([KEY]) == {KEY}
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"000000", ".dayfly"}


def test_what_was_not_made_or_planned_for_is_named(tmp_path: Path) -> None:
    with pytest.raises(WireError, match=f"{tmp_path}/run/000000/from-coordinator cannot be opened"):
        opened(tmp_path)
    with make(tmp_path, senders=2), opened(tmp_path) as channel:
        key = Key(0, "a", 2, 0)
        for act in (lambda: put(channel, key, tensor((1,))), lambda: channel.get_bytes(key, 0)):
            with pytest.raises(WireError, match=f"^{key}: no rank 2 was planned for at {tmp_path}"):
                act()


def test_a_closed_channel_says_so(tmp_path: Path) -> None:
    with make(tmp_path):
        channel = opened(tmp_path)
        channel.close()
        with pytest.raises(WireError, match=f"^{KEY}: the channel at {tmp_path}/.* is closed"):
            put(channel, KEY, tensor((1,)))


@pytest.mark.long
def test_closed_channels_leave_no_handles_and_threads(tmp_path: Path) -> None:
    before = handles()
    for generation in range(3):
        namespace = Namespace("run", generation)
        with make(tmp_path, namespace), FileChannel(tmp_path, namespace) as channel:
            put(channel, KEY, tensor((4,)))
            channel.get(KEY, torch.zeros(4), SOON_S)
            with pytest.raises(WireError):
                channel.get(KEY, torch.zeros(5), SOON_S)
    assert not handles() - before
    assert mapped(tmp_path) == 0


def mapped(root: Path) -> int:
    """How many files below are mapped by this process."""
    return Path("/proc/self/maps").read_text().count(str(root))


def test_what_is_held_outlives_the_channel(tmp_path: Path) -> None:
    """It is the message itself, and nothing is unmapped under its reader's feet."""
    with make(tmp_path), opened(tmp_path) as channel:
        put(channel, KEY, tensor((10, 100)))
        held, _ = channel.fetch(KEY, Header("a", torch.float32, (10, 100)), SOON_S)
        again, _ = channel.fetch(KEY, Header("a", torch.float32, (10, 100)), SOON_S)
        assert again.data_ptr() == held.data_ptr()
        channel.destroy()
    assert torch.equal(held, tensor((10, 100)))
    del held, again
    assert mapped(tmp_path) == 0


def test_one_ring_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter sleeps until its sender sends something to its box: here another, then its own."""
    FilePlace(tmp_path).only_events(monkeypatch)
    asleep, wait = threading.Semaphore(0), Doorbells.wait

    def counted(bells: Doorbells, bell: int, seen: int, timeout_s: float) -> None:
        if bell == layout.bell_of(KEY.destination):
            asleep.release()
        wait(bells, bell, seen, timeout_s)

    with make(tmp_path), opened(tmp_path) as reader, ThreadPoolExecutor(1) as pool:
        got = torch.zeros(4)
        put(reader, Key(0, "first", 1, 0), tensor((4,)))
        monkeypatch.setattr(Doorbells, "wait", counted)
        waiter = pool.submit(reader.get, KEY, got, SOON_S)
        with opened(tmp_path) as writer:
            assert asleep.acquire(timeout=SOON_S)
            for other in (Key(0, "other", 1, EVERYONE), Key(0, "a", 2, 0), Key(0, "a", 1, 3)):
                put(writer, other, tensor((4,)))
            for key in (Key(0, "other", 1, 0), KEY):
                assert not waiter.done()
                put(writer, key, tensor((4,)))
                assert key == KEY or asleep.acquire(timeout=SOON_S)
            waiter.result(SOON_S)
    assert not asleep.acquire(blocking=False)
    assert torch.equal(got, tensor((4,)))


def test_without_a_futex_it_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "futex_number", lambda: None)
    with make(tmp_path), opened(tmp_path) as reader, ThreadPoolExecutor(2) as pool:
        got = [torch.zeros(MIB), torch.zeros(MIB)]
        waiters = [pool.submit(reader.get, KEY, into, SOON_S) for into in got]
        put(reader, KEY, tensor((MIB,)))  # more than is touched at first
        for waiter in waiters:
            waiter.result(SOON_S)
    assert torch.equal(torch.stack(got), torch.stack([tensor((MIB,))] * 2))


def test_a_forked_channel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fork two processes would hold one lock, and both believe to have it alone."""
    with make(tmp_path), opened(tmp_path) as channel:
        put(channel, KEY, tensor((4,)))
        own = os.getpid()
        monkeypatch.setattr(writers.os, "getpid", lambda: own + 1)
        with pytest.raises(WireError, match=f"^{LARGE}: .* opened by process {own}"):
            put(channel, LARGE, tensor((4,)))


PIECES = [0, 1, 100, files._SMALL_BYTES, files._SMALL_BYTES + 1, 3 * files._PIECE_BYTES + 5]


@pytest.mark.parametrize("size", PIECES)
def test_every_size_arrives_whole(tmp_path: Path, size: int) -> None:
    """Copied at once or in pieces, from any alignment."""
    whole = tensor((size + 3,), torch.uint8)
    with make(tmp_path), opened(tmp_path) as channel:
        sent = whole[3:]
        assert put(channel, KEY, sent)
        got = torch.zeros(size + 1, dtype=torch.uint8)[1:]
        channel.get(KEY, got, SOON_S)
        held, _ = channel.fetch(KEY, Header("a", torch.uint8, (size,)), SOON_S)
        assert torch.equal(got, sent)
        assert torch.equal(held, sent)
        assert channel.get_bytes(KEY, SOON_S) == bytes(sent.tolist())


@pytest.mark.parametrize("size", PIECES[2:])
def test_damage_in_any_piece_is_noticed(tmp_path: Path, size: int) -> None:
    place = FilePlace(tmp_path)
    with make(tmp_path), opened(tmp_path) as channel:
        put(channel, KEY, tensor((size,), torch.uint8))
        whole = place.raw(NAMESPACE, KEY)
        for step, at in enumerate((128, 128 + size // 2, len(whole) - 1), 1):
            key = Key(step, "a", 1, 0)
            place.plant(NAMESPACE, key, whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with pytest.raises(WireError, match=f"^{key}: checksum"):
                channel.get(key, torch.zeros(size, dtype=torch.uint8), SOON_S)
            with pytest.raises(WireError, match=f"^{key}: checksum"):
                channel.fetch(key, Header("a", torch.uint8, (size,)), SOON_S)


def test_a_disk_that_vanished_is_a_wire_error(tmp_path: Path) -> None:
    with make(tmp_path), opened(tmp_path) as channel:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(WireError, match=f"^{KEY}: .* cannot be opened"):
            put(channel, KEY, tensor((4,)))
        with pytest.raises(WaitTimeout):
            channel.get_bytes(Key(0, "a", COORDINATOR, 0), 0)


def test_threads_that_race_make_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would keep its descriptor for ever."""
    with make(tmp_path) as channel:
        both, made = threading.Barrier(2), list[SegmentWriter]()
        find, writer = channel._segment, files.SegmentWriter

        def find_together(source: int) -> segments.Segment:
            both.wait(SOON_S)
            return find(source)

        def made_one(*what: Any) -> SegmentWriter:
            made.append(writer(*what))
            return made[-1]

        monkeypatch.setattr(channel, "_segment", find_together)
        monkeypatch.setattr(files, "SegmentWriter", made_one)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(channel._writer, [0, 0]))
        assert found == [*made, *made]
