"""What is there, what goes and what stays; whose messages are whose; what is counted."""

from __future__ import annotations

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Namespace
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, HEADER_BYTES, Key
from tests.channels.conftest import Connect
from tests.channels.places import SOON_S, Place, put, tensor

HERE = [
    Key(0, "a", 10, 0),
    Key(0, "a", 2, 0),
    Key(3, "a", 1, 0),
    Key(3, "b", 1, 1),
    Key(4, "a", EVERYONE, 0),
    Key(0, "sum", 1, EVERYONE),
    Key(3, "sum", 1, EVERYONE),
    Key(4, "sum", 1, EVERYONE),
    Key(FOREVER, "stop", COORDINATOR, EVERYONE),
    Key(FOREVER, "stop", COORDINATOR, 1),
    Key(0, "report", 1, COORDINATOR),
    Key(3, "report", 1, COORDINATOR),
]


def test_stored_tells_what_is_there(connect: Connect) -> None:
    channel = connect(0)
    assert channel.stored(HERE) == frozenset()
    for key in HERE[:4]:
        connect(1).put_bytes(key, b"x")
    assert channel.stored(HERE) == set(HERE[:4])
    assert channel.stored(iter(HERE[2:6])) == set(HERE[2:4])
    assert channel.stored([]) == frozenset()


def test_waiting_lists_one_box_in_order(connect: Connect) -> None:
    channel = connect(COORDINATOR)
    assert list(channel.waiting(COORDINATOR)) == []
    for key in reversed(HERE):
        connect(1).put_bytes(key, b"x")
    for box in (0, 1, EVERYONE, COORDINATOR):
        expected = sorted(key for key in HERE if key.destination == box)
        assert list(channel.waiting(box)) == expected
    assert [key.source for key in channel.waiting(0)][:2] == [2, 10]  # by number, not by letter


def test_drop_removes_its_keys_only(connect: Connect) -> None:
    channel = connect(0)
    for key in HERE[:6]:
        channel.put_bytes(key, b"x")
    channel.drop([HERE[0], HERE[5], HERE[9]])  # the last was never there
    assert channel.stored(HERE) == set(HERE[1:5])
    with pytest.raises(WaitTimeout):
        channel.get_bytes(HERE[0], 0)


def test_trim_keeps_later_steps_forever_and_the_coordinators(connect: Connect) -> None:
    channel = connect(2)
    for key in HERE:
        channel.put_bytes(key, b"x")
    channel.trim(0)
    assert channel.stored(HERE) == set(HERE)
    channel.trim(4)
    kept = {key for key in HERE if key.step >= 4 or key.destination == COORDINATOR}
    assert channel.stored(HERE) == kept
    for beyond in (FOREVER, FOREVER + 1):
        channel.trim(beyond)
        kept = {key for key in HERE if key.step == FOREVER or key.destination == COORDINATOR}
        assert channel.stored(HERE) == kept


def test_size_follows_the_messages(connect: Connect) -> None:
    channel = connect(0)
    assert channel.size_bytes() == 0
    put(channel, HERE[0], tensor((1000,)))
    put(channel, HERE[5], tensor((500,)))
    put(channel, HERE[5], tensor((500,)))  # lost: takes no room
    payload = 1500 * 4
    assert payload <= channel.size_bytes() <= payload + 2 * HEADER_BYTES
    assert connect(1).size_bytes() == channel.size_bytes()
    channel.drop([HERE[0]])
    assert 2000 <= channel.size_bytes() <= 2000 + HEADER_BYTES
    channel.trim(1)
    assert channel.size_bytes() == 0


def test_runs_and_generations_do_not_see_each_other(connect: Connect) -> None:
    names = [Namespace("run", 0), Namespace("run", 1), Namespace("run-2", 0)]
    channels = [connect(0, name) for name in names]
    read, key = HERE[:2]
    for number, channel in enumerate(channels):
        assert channel.put_bytes(read, bytes([number]) * 10)
        assert channel.put_bytes(key, b"x")
    for number, channel in enumerate(channels):
        assert channel.get_bytes(read, SOON_S) == bytes([number]) * 10
    size = channels[2].size_bytes()
    channels[0].trim(1)
    channels[1].drop([read, key])
    assert [channel.stored([key]) for channel in channels] == [set(), set(), {key}]
    assert [channel.size_bytes() for channel in channels] == [0, 0, size]


def test_destroy_removes_all_generations_of_its_run_only(connect: Connect) -> None:
    first, second = connect(0), connect(0, Namespace("run", 1))
    other = connect(0, Namespace("other", 0))
    for channel in (first, second, other):
        channel.put_bytes(HERE[0], b"x")
    second.destroy()
    second.destroy()
    assert connect(0, again=True).stored(HERE[:1]) == set()
    assert connect(0, Namespace("run", 1), again=True).stored(HERE[:1]) == set()
    assert other.stored(HERE[:1]) == {HERE[0]}


def test_a_worker_that_outlives_its_run_is_told(connect: Connect) -> None:
    channel = connect(0)
    channel.put_bytes(HERE[0], b"x")
    channel.destroy()
    for key in (HERE[0], Key(0, "a", 0, 7)):  # a box that it knows, and one that it does not
        with pytest.raises(WireError, match=str(key)):
            channel.put_bytes(key, b"x")


def test_traffic_is_counted_exactly(connect: Connect, place: Place) -> None:
    def counted() -> tuple[int, int, int]:
        return channel.traffic.bytes_up, channel.traffic.bytes_down, channel.traffic.requests

    channel, key = connect(0), HERE[0]
    assert counted() == (0, 0, 0)
    put(channel, key, tensor((250,)))
    assert counted() == (HEADER_BYTES + 1000, 0, 1)
    put(channel, key, tensor((250,)))  # lost: asked, but nothing was stored
    assert counted() == (HEADER_BYTES + 1000, 0, 2)
    channel.get(key, torch.zeros(250), SOON_S)
    assert counted() == (HEADER_BYTES + 1000, HEADER_BYTES + 1000, 3)
    channel.put_bytes(HERE[1], b"12345")
    assert channel.get_bytes(HERE[1], SOON_S) == b"12345"
    assert counted() == (2 * HEADER_BYTES + 1005, 2 * HEADER_BYTES + 1005, 5)
    channel.stored(HERE)  # one request, however many keys, or one for each
    requests = 5 + (len(HERE) if place.asks_each else 1)
    assert counted() == (2 * HEADER_BYTES + 1005, 2 * HEADER_BYTES + 1005, requests)
    assert (channel.traffic.puts, channel.traffic.gets) == (3, 2)  # a lost put was asked, too
    assert connect(0).traffic.requests == 0  # each channel counts its own


@pytest.mark.parametrize(
    "run", ["", ".", "..", "../x", "a/b", "/tmp", "a\0", "a b", "é", "-a", "a\n"]
)
def test_a_runs_name_is_never_a_path(run: str) -> None:
    with pytest.raises(ValueError, match="must be letters"):
        Namespace(run, 0)


@pytest.mark.parametrize("generation", [-1, 10**6])
def test_a_generation_has_six_digits(generation: int) -> None:
    with pytest.raises(ValueError, match="generation"):
        Namespace("run", generation)


def test_channels_may_be_closed_twice_and_the_messages_stay(connect: Connect) -> None:
    channel = connect(0)
    channel.put_bytes(HERE[0], b"x")
    channel.close()
    channel.close()
    assert connect(0).get_bytes(HERE[0], SOON_S) == b"x"
