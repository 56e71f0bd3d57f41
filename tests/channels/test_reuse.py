"""A message is dropped and its place used again, just while somebody reads it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from dayfly.errors import WaitTimeout
from dayfly.wire.channels import files
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, put
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from tests.channels.places import make

KEY, OTHER = Key(0, "a", 1, 0), Key(0, "b", 1, 0)
SIZE = 2 * files._PIECE_BYTES
MIB = 2**20


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[FileChannel]:
    with make(tmp_path, budget_bytes=32 * MIB, ahead_bytes=2 * SIZE):
        yield FileChannel(tmp_path, NAMESPACE)


def payload(number: int, size: int = SIZE) -> torch.Tensor:
    return torch.full((size,), number, dtype=torch.uint8)


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None], after: bool
) -> None:
    """Once, before or after the reading function `name` of the channel, this happens."""
    real: Callable[..., Any] = getattr(files, name)
    acted: list[bool] = []

    def wrapped(*arguments: Any) -> Any:
        if not acted and not after:
            acted.append(True)
            act()
        result = real(*arguments)
        if not acted:
            acted.append(True)
            act()
        return result

    monkeypatch.setattr(files, name, wrapped)


@pytest.mark.parametrize("name", ["_check_header", "_copy_out"])
@pytest.mark.parametrize("after", [False, True])
def test_what_was_dropped_and_overwritten_is_not_there(
    channel: FileChannel, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    put(channel, KEY, payload(1))

    def reuse() -> None:
        channel.drop([KEY])
        before = channel._segment(1).find(*files.layout.address_of(OTHER))
        put(channel, OTHER, payload(2))
        assert before is None

    meanwhile(monkeypatch, name, reuse, after)
    with pytest.raises(WaitTimeout, match=str(KEY)):
        channel.get(KEY, torch.zeros(SIZE, dtype=torch.uint8), 0)


@pytest.mark.parametrize("name", ["_check_header", "_copy_out"])
@pytest.mark.parametrize("after", [False, True])
def test_what_was_dropped_and_put_again_is_read_whole(
    channel: FileChannel, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    put(channel, KEY, payload(1))
    got = torch.zeros(SIZE, dtype=torch.uint8)

    def reuse() -> None:
        place = channel._segment(1).find(*files.layout.address_of(KEY))
        channel.drop([KEY])
        assert put(channel, KEY, payload(2))
        again = channel._segment(1).find(*files.layout.address_of(KEY))
        assert place is not None
        assert again is not None
        assert place.at == again.at, "the same place"

    meanwhile(monkeypatch, name, reuse, after)
    channel.get(KEY, got, SOON_S)
    assert torch.equal(got, payload(2))


def test_dropped_but_not_overwritten_is_whole(
    channel: FileChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(channel, KEY, payload(1))
    meanwhile(monkeypatch, "_copy_out", lambda: channel.drop([KEY]), after=False)
    got = torch.zeros(SIZE, dtype=torch.uint8)
    channel.get(KEY, got, SOON_S)
    assert torch.equal(got, payload(1))
    assert channel.stored([KEY]) == set()


@pytest.mark.parametrize("size", [100, SIZE])
def test_a_late_drop_hits_no_later_message(channel: FileChannel, size: int) -> None:
    """Whoever drops may be slow: by then the entry is another message's."""
    put(channel, KEY, payload(1, size))
    segment = channel._segment(1)
    late = segment.find(*files.layout.address_of(KEY))
    assert late is not None
    channel.drop([KEY])
    channel._writer(1)._take_back()
    put(channel, OTHER, payload(2, size))
    again = segment.find(*files.layout.address_of(OTHER))
    assert again is not None
    assert again.word == late.word, "the same entry"
    segment.drop(late)
    assert channel.stored([OTHER]) == {OTHER}


def test_a_wrong_checksum_is_looked_at_again(
    channel: FileChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On some processors the commit word may be seen before the last bytes are."""
    put(channel, KEY, payload(1, 10))
    found = channel._segment(1).find(*files.layout.address_of(KEY))
    assert found is not None
    at = found.at + files.HEADER_BYTES
    channel._segment(1).bytes[at] = 7

    def arrive() -> None:
        channel._segment(1).bytes[at] = 1

    real = files._copy_out

    def late(*arguments: Any) -> None:
        try:
            real(*arguments)
        finally:
            arrive()

    monkeypatch.setattr(files, "_copy_out", late)
    got = torch.zeros(10, dtype=torch.uint8)
    channel.get(KEY, got, SOON_S)
    assert torch.equal(got, payload(1, 10))


def test_readers_and_a_writer_in_a_small_room(tmp_path: Path) -> None:
    """300 messages of all sizes, dropped by two readers that got them, in room for a few."""
    chance = random.Random(5)
    sizes = [chance.choice([0, 9, 300, 5000, 70_000, 200_000]) for _ in range(300)]
    free = threading.Semaphore(3)

    def read(reader: int) -> None:
        with FileChannel(tmp_path, NAMESPACE) as channel:
            for step in range(reader, len(sizes), 2):
                key = Key(step, "a", 1, reader)
                wanted = payload(step % 251, sizes[step])
                if step % 4 < 2:
                    got, _ = channel.fetch(key, Header("a", torch.uint8, (sizes[step],)), SOON_S)
                else:
                    channel.get(key, got := torch.zeros_like(wanted), SOON_S)
                assert torch.equal(got, wanted)
                channel.drop([key])
                free.release()

    budget_bytes = 2 * MIB
    with (
        make(tmp_path, senders=2, budget_bytes=budget_bytes, ahead_bytes=2**16),
        FileChannel(tmp_path, NAMESPACE) as writer,
        ThreadPoolExecutor(2) as pool,
    ):
        readers = [pool.submit(read, reader) for reader in range(2)]
        for step, size in enumerate(sizes):
            assert free.acquire(timeout=SOON_S)
            assert put(writer, Key(step, "a", 1, step % 2), payload(step % 251, size))
        for reader in readers:
            reader.result(SOON_S)
        assert writer.size_bytes() == 0
        assert sum(p.stat().st_blocks for p in tmp_path.rglob("from-*")) * 512 <= budget_bytes
