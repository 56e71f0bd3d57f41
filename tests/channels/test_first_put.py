"""The first put wins, whoever else tries; readers see all of one message or nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import pytest
import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, EVERYONE, Key
from tests.channels.conftest import Connect
from tests.channels.places import NAMESPACE, SOON_S, Place, put
from tests.channels.processes import CONTEXT, in_processes

pytestmark = pytest.mark.long

SIZE = 100_000
KEYS = [Key(step, "race", 0, EVERYONE) for step in range(8)]


def test_the_second_put_changes_nothing(connect: Connect) -> None:
    channel, key = connect(0), KEYS[0]
    assert put(channel, key, torch.full((4,), 1.0)) is True
    assert put(channel, key, torch.full((4,), 2.0)) is False
    assert put(connect(1), key, torch.full((9,), 3.0)) is False
    got = torch.zeros(4)
    channel.get(key, got, SOON_S)
    assert got.tolist() == [1.0] * 4


def test_a_dropped_key_can_be_put_again(connect: Connect) -> None:
    channel, key = connect(0), KEYS[0]
    assert put(channel, key, torch.full((4,), 1.0))
    channel.drop([key])
    assert put(channel, key, torch.full((4,), 2.0))


def test_eight_threads_race(connect: Connect) -> None:
    """Two threads on each of four channels, so both within one channel and between them."""
    channels = [connect(rank) for rank in range(4)]
    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(9) as pool:
        races = [
            pool.submit(_put_all, channels[writer % 4], writer, barrier) for writer in range(8)
        ]
        read = pool.submit(_read_all, connect(9))
        _assert_one_winner([race.result(SOON_S) for race in races], read.result(SOON_S))


def test_four_processes_race(connect: Connect, place: Place) -> None:
    """A fifth reads beside them what each key holds."""
    connect(COORDINATOR)
    race = partial(_race, CONTEXT.Barrier(4))
    *won, read = in_processes(race, place, 5)
    _assert_one_winner(won, read)


def _race(barrier: Barrier, place: Place, rank: int, _: int, result: Connection) -> None:
    with place.open(NAMESPACE, rank) as channel:
        result.send(_put_all(channel, rank, barrier) if rank < 4 else _read_all(channel))


def _put_all(channel: Channel, writer: int, barrier: threading.Barrier | Barrier) -> list[bool]:
    """Put every key when all others do too; whether each was stored."""
    mine = torch.full((SIZE,), writer, dtype=torch.int32)
    won = []
    for key in KEYS:
        barrier.wait(SOON_S)
        won.append(put(channel, key, mine))
    return won


def _read_all(channel: Channel) -> list[set[int]]:
    """Get every key as soon as it is there; the writers whose numbers are in each."""
    got = torch.empty(SIZE, dtype=torch.int32)
    found = []
    for key in KEYS:
        channel.get(key, got, SOON_S)
        found.append(set(got.unique().tolist()))
    return found


def _assert_one_winner(won: list[list[bool]], read: list[set[int]]) -> None:
    for key, outcome, seen in zip(KEYS, zip(*won, strict=True), read, strict=True):
        winners = {writer for writer, stored in enumerate(outcome) if stored}
        assert len(winners) == 1, f"{key}: stored by {winners}"
        assert seen == winners, f"{key}: read {seen}, stored by {winners}"
