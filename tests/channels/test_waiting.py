"""A get waits for its message and wakes up when it comes, not when a clock says so."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dayfly.errors import WaitTimeout
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import EVERYONE, Key
from tests.channels.conftest import Connect
from tests.channels.places import SOON_S, Place, put


def _got(channel: Channel, key: Key, started: threading.Barrier) -> int:
    into = torch.zeros(1, dtype=torch.int64)
    started.wait(SOON_S)
    channel.get(key, into, SOON_S)
    return int(into)


def test_all_waiters_of_one_process_wake_up(
    connect: Connect, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two waiters for one key, one for another, one for the box of everyone; many rounds.

    (Where workers talk directly, a message to one rank is for one waiter: two for everyone's.)

    Readers do not look again by themselves, so one event that is missed fails the test.
    """
    place.only_events(monkeypatch)
    reader, writer = connect(0), connect(1)
    with ThreadPoolExecutor(4) as pool:
        for step in range(40):
            keys = [Key(step, "a", 1, 0), Key(step, "b", 1, 0), Key(step, "c", 1, EVERYONE)]
            started = threading.Barrier(5)
            twice = 2 if reader.abilities.direct else 0
            waiters = [pool.submit(_got, reader, key, started) for key in (keys[twice], *keys)]
            started.wait(SOON_S)
            for turn in range(3):
                number = (step + turn) % 3
                put(writer, keys[number], torch.tensor([number]))
            assert [waiter.result(SOON_S) for waiter in waiters] == [twice, 0, 1, 2]


def test_a_waiter_outlives_the_timeout_of_another(
    connect: Connect, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever watches for all gives up: one of the others must take over."""
    place.only_events(monkeypatch)
    reader, writer = connect(0), connect(1)
    box = EVERYONE if reader.abilities.direct else 0  # a message to one rank is for one waiter
    with ThreadPoolExecutor(4) as pool:
        for step in range(5):
            key = Key(step, "a", 1, box)
            started = threading.Barrier(3)
            waiters = [pool.submit(_got, reader, key, started) for _ in range(2)]
            started.wait(SOON_S)
            with pytest.raises(WaitTimeout):
                reader.get(Key(step, "never", 1, 0), torch.zeros(1), 0.01)
            put(writer, key, torch.tensor([5]))
            assert [waiter.result(SOON_S) for waiter in waiters] == [5, 5]


def test_waiters_of_different_channels_wake_up(
    connect: Connect, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.only_events(monkeypatch)
    readers, key = [connect(rank) for rank in range(3)], Key(0, "sum", 3, EVERYONE)
    started = threading.Barrier(4)
    with ThreadPoolExecutor(3) as pool:
        waiters = [pool.submit(_got, reader, key, started) for reader in readers]
        started.wait(SOON_S)
        put(connect(3), key, torch.tensor([9]))
        assert [waiter.result(SOON_S) for waiter in waiters] == [9, 9, 9]
