"""Channel and store behind a line, in real time: asserted is that nothing is ever too fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from dayfly.errors import WaitTimeout
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.channels.kinds import Direct
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.collectives.k_reduce import scatter_reduce
from dayfly.wire.engine import Engine
from dayfly.wire.keys import EVERYONE, HEADER_BYTES, Key
from dayfly.wire.message import Header, as_bytes
from dayfly.wire.shaped import ShapedChannel, ShapedStore, shaped_channel, shaped_store
from dayfly.wire.shaping import Rates, ShapedLink
from dayfly.wire.stores.files import FileStore
from dayfly.wire.virtual import Link, finish_s, simulate

RATES = Rates(up_bytes_per_s=10e6, down_bytes_per_s=20e6, latency_s=0.03)
ELEMENTS = 250_000  # a megabyte
UP_S, DOWN_S = 0.1 + 0.03, 0.05 + 0.03
#: Seconds after which what a transfer was late is not made up for by the next.
LATER_S = 0.02
#: All-reduces in real time, at least, and until one is not held up by what else the machine does.
LEAST, MOST = 4, 40
KEY = Key(0, "grad-part", 0, 1)


def made(root: Path, senders: int) -> Channel:
    return FileChannel.make(
        root, Namespace("run", 0), senders=senders, budget_bytes=2**26, ahead_bytes=2**23
    )


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Channel]:
    with made(tmp_path, senders=2) as channel:
        yield channel


def put(channel: Channel, key: Key = KEY, elements: int = ELEMENTS) -> bool:
    value = torch.ones(elements)
    return channel.put(key, Header(key.operation, value.dtype, (elements,)), as_bytes(value))


def timed_s(action: object) -> float:
    began = time.monotonic()
    action()  # type: ignore[operator]
    return time.monotonic() - began


def test_a_put_takes_its_time_and_is_not_there_before(plain: Channel) -> None:
    channel = ShapedChannel(plain, ShapedLink(RATES))
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: (put(channel), time.monotonic()))
        plain.get(KEY, torch.empty(ELEMENTS), 30)
        arrived_s = time.monotonic() - began
        won, put_at = done.result()
    assert won
    assert arrived_s >= 0.98 * UP_S
    assert put_at - began >= 0.98 * UP_S
    assert plain.traffic.bytes_up == channel.traffic.bytes_up == 4 * ELEMENTS + HEADER_BYTES


@pytest.mark.parametrize(("destination", "copies"), [(1, 1), (EVERYONE, 3)])
def test_what_goes_to_everyone_directly_leaves_once_a_reader(
    tmp_path: Path, destination: int, copies: int
) -> None:
    kind = Direct()
    site = Site(
        url="tcp://", namespace=Namespace("run", 0), rendezvous=FileStore(tmp_path), token="00" * 32
    )
    plan = ChannelSpec(senders=4, budget_bytes=2**26, ahead_bytes=2**23)
    with kind.create(site, plan) as coordinators, kind.open(site, 0) as plain:
        channel = ShapedChannel(plain, ShapedLink(RATES))
        assert channel.abilities.direct
        key = Key(0, "sum", 0, destination)
        assert timed_s(lambda: put(channel, key)) >= 0.98 * (0.1 * copies + 0.03)
        assert channel.traffic.bytes_up == copies * (4 * ELEMENTS + HEADER_BYTES)
        coordinators.destroy()


def test_the_first_put_wins_behind_a_line_too(plain: Channel) -> None:
    channel = ShapedChannel(plain, ShapedLink(RATES))
    assert put(plain)
    assert not put(channel)


@pytest.mark.parametrize("as_tensor", [True, False])
def test_a_get_takes_its_time(plain: Channel, as_tensor: bool) -> None:
    channel = ShapedChannel(plain, ShapedLink(RATES))
    plain.put_bytes(KEY, b"x" * 4 * ELEMENTS)
    into = torch.empty(4 * ELEMENTS, dtype=torch.uint8)
    if as_tensor:
        took_s = timed_s(lambda: channel.get(KEY, into, 30))
        assert bytes(into[:3]) == b"xxx"
    else:
        took_s = timed_s(lambda: channel.get_bytes(KEY, 30))
    assert took_s >= 0.98 * DOWN_S


def test_a_get_takes_its_time_from_when_the_message_came(plain: Channel) -> None:
    channel = ShapedChannel(plain, ShapedLink(RATES))
    came: list[float] = []

    def send() -> None:
        time.sleep(0.1)
        came.append(time.monotonic())
        put(plain)

    sender = threading.Thread(target=send)
    sender.start()
    channel.get(KEY, torch.empty(ELEMENTS), 30)
    assert time.monotonic() - came[0] >= 0.98 * DOWN_S
    sender.join()


def test_a_message_that_does_not_come_is_no_traffic(plain: Channel) -> None:
    channel = ShapedChannel(plain, ShapedLink(RATES))
    with pytest.raises(WaitTimeout):
        channel.get(KEY, torch.empty(ELEMENTS), 0.0)


def test_looking_costs_the_latency(plain: Channel) -> None:
    channel = ShapedChannel(plain, ShapedLink(RATES))
    assert timed_s(lambda: channel.stored([KEY])) >= 0.98 * 0.03
    assert timed_s(lambda: channel.waiting(1)) >= 0.98 * 0.03


def test_channel_and_store_share_the_downlink(plain: Channel, tmp_path: Path) -> None:
    FileStore(tmp_path / "store").put("data", bytes(1_000_000))
    way = ShapedLink(RATES)
    channel, store = ShapedChannel(plain, way), ShapedStore(FileStore(tmp_path / "store"), way)
    put(plain)
    into = memoryview(bytearray(1_000_000))
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(channel.get, KEY, torch.empty(ELEMENTS), 30)
        other = pool.submit(store.read_into, "data", [(0, into)])
        one.result(), other.result()
    assert time.monotonic() - began >= 0.98 * 0.13


def test_a_store_takes_its_time(tmp_path: Path) -> None:
    store = ShapedStore(FileStore(tmp_path), ShapedLink(RATES))
    into = memoryview(bytearray(10**6))
    data = bytes(1_000_000)
    assert timed_s(lambda: store.put("a", data)) >= 0.98 * UP_S
    time.sleep(LATER_S)
    assert timed_s(lambda: store.put_new("b", data)) >= 0.98 * UP_S
    assert timed_s(lambda: store.get("a")) >= 0.98 * DOWN_S
    time.sleep(LATER_S)
    assert timed_s(lambda: store.read_into("b", [(0, into)])) >= 0.98 * DOWN_S
    assert store.get("a") == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_without_lines_nothing_is_put_between(plain: Channel, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert shaped_channel(plain, None) is plain
    assert shaped_store(store, None) is store


@pytest.mark.parametrize("size", [2, 4])
def test_an_all_reduce_takes_what_virtual_time_says(size: int, tmp_path: Path) -> None:
    """FuncPipe's equation (1) says the same; never less, and not much more at best of several."""
    link = Link(up_bytes_per_s=10e6, down_bytes_per_s=20e6, latency_s=0.03)
    schedules = [scatter_reduce(rank, size, ELEMENTS) for rank in range(size)]
    predicted_s = finish_s(simulate(schedules, link))
    taken_s = []
    with ExitStack() as stack:
        engines = []
        coordinators = stack.enter_context(made(tmp_path, senders=size))
        for rank in range(size):
            channel = FileChannel(tmp_path, Namespace("run", 0))
            shaped = stack.enter_context(ShapedChannel(channel, ShapedLink(RATES)))
            engine = Engine(shaped, COLLECTIVES["scatter-reduce"], rank, size, timeout_s=30)
            engines.append(stack.enter_context(engine))
        pool = stack.enter_context(ThreadPoolExecutor(size))
        while len(taken_s) < LEAST or (min(taken_s) > 1.5 * predicted_s and len(taken_s) < MOST):
            step = len(taken_s)
            buffers = [torch.full((ELEMENTS,), float(rank)) for rank in range(size)]

            def reduce(rank: int, step: int = step, buffers: list[torch.Tensor] = buffers) -> None:
                engines[rank].all_reduce(buffers[rank], step, "grad")

            taken_s.append(timed_s(lambda reduce=reduce: list(pool.map(reduce, range(size)))))
            assert {float(buffer[0]) for buffer in buffers} == {sum(range(size))}
            coordinators.trim(step + 1)
            time.sleep(LATER_S)
    assert min(taken_s) >= 0.98 * predicted_s
    assert min(taken_s) <= 1.5 * predicted_s
