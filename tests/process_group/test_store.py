"""The store of all ranks, over every channel: through torch's own wrappers, threads, processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _store_based_barrier

from dayfly.life.reports import Reporter, read_reports
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, ChannelPlace
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.process_group.store import ChannelStore, StoreServer
from tests.channels.places import PLACES
from tests.channels.processes import in_processes

pytestmark = pytest.mark.long

FILES = "files-tmpfs"
SOON = timedelta(seconds=SOON_S)
Open = Callable[[int], Channel]


class Served:
    """A channel whose coordinator serves, by a thread as often as a coordinator's loop would."""

    def __init__(self, place: ChannelPlace, coordinator: Channel, stack: ExitStack) -> None:
        self.place = place
        self.coordinator = coordinator
        self._stack = stack

    def channel(self, rank: int) -> Channel:
        return self._stack.enter_context(self.place.open(NAMESPACE, rank))

    def store(self, rank: int) -> ChannelStore:
        store = ChannelStore(self.channel(rank), rank)
        store.set_timeout(SOON)
        return store


@contextmanager
def served_at(place: ChannelPlace) -> Iterator[Served]:
    with ExitStack() as stack:
        coordinator = stack.enter_context(place.make(NAMESPACE))
        # Nobody is billed here.
        coordinator.abilities = replace(coordinator.abilities, list_every_s=0.0)
        over = threading.Event()

        def serve() -> None:
            server = StoreServer(coordinator)
            while not over.wait(0.01):
                server.serve_once()

        pool = stack.enter_context(ThreadPoolExecutor(1))
        serving = pool.submit(serve)
        try:
            yield Served(place, coordinator, stack)
        finally:
            over.set()
            serving.result(SOON_S)


#: Each kind of waiting; the others pass the same conformance suite of channels as these.
WAITS = {FILES, "redis", "s3", "ps", "tcp"}


@pytest.fixture(
    params=[
        pytest.param(one, marks=[] if one in WAITS else pytest.mark.slow) for one in sorted(PLACES)
    ]
)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with PLACES[request.param]() as place, served_at(place) as served:
        yield served


@pytest.fixture
def in_files() -> Iterator[Served]:
    with PLACES[FILES]() as place, served_at(place) as served:
        yield served


def test_every_operation_through_torch(served: Served) -> None:
    """torch puts a prefix before keys, and calls from C++."""
    mine, theirs = served.store(0), served.store(1)
    one, other = dist.PrefixStore("p", mine), dist.PrefixStore("p", theirs)
    one.set("text", "hällo")
    one.set("bytes", b"\0\xff")
    assert other.get("text") == "hällo".encode()
    assert other.multi_get(["bytes", "text"]) == [b"\0\xff", "hällo".encode()]
    assert [one.add("n", 3), other.add("n", -5), one.add("n", 0)] == [3, -2, -2]
    assert other.check(["text", "n"])
    assert not other.check(["text", "none"])
    assert one.compare_set("lock", "", "0") == b"0"
    assert other.compare_set("lock", "", "1") == b"0"
    assert other.compare_set("lock", "0", "1") == b"1"
    one.append("log", "a")
    other.append("log", "b")
    one.multi_set(["x", "y"], ["1", "2"])
    other.wait(["log", "x", "y"], SOON)
    assert other.get("log") == b"ab"
    assert theirs.get("p/y") == b"2"
    assert mine.num_keys() == one.num_keys() == 7
    assert [other.delete_key("x"), one.delete_key("x")] == [True, False]
    assert one.has_extended_api()


def test_a_wait_is_over_when_the_key_is_there(served: Served) -> None:
    waiting, setting = served.store(0), served.store(1)
    with ThreadPoolExecutor(3) as pool:
        got = pool.submit(waiting.get, "later")
        both = pool.submit(waiting.wait, ["later", "latest"], SOON)
        assert setting.add("others are served", 1) == 1
        assert not got.done()
        setting.set("later", b"now")
        assert got.result(SOON_S) == b"now"
        assert not both.done()
        setting.set("latest", b"")
        assert both.result(SOON_S) is None


def test_a_wait_ends_with_its_time(in_files: Served) -> None:
    store = in_files.store(0)
    store.set("there", "1")
    with pytest.raises(dist.DistStoreError, match=r"wait timeout after 0\.1 s, keys: there, not"):
        store.wait(["there", "not"], timedelta(seconds=0.1))
    prefixed = dist.PrefixStore("p", store)
    prefixed.set_timeout(timedelta(seconds=0.2))
    assert store.timeout == timedelta(seconds=0.2)
    with pytest.raises(RuntimeError, match=r"wait timeout after 0\.2 s, keys: p/not"):
        prefixed.get("not")
    store.wait(["there"], timedelta(0))


def test_what_cannot_be_done_is_said(in_files: Served) -> None:
    store = in_files.store(0)
    store.set("secret", "hunter2")
    with pytest.raises(dist.DistStoreError, match=r"^add of secret: what is there is no number$"):
        store.add("secret", 1)


def test_a_coordinator_that_is_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dayfly.wire.process_group.store._ANSWER_S", 0.1)
    silent = pytest.raises(dist.DistStoreError, match="coordinator has not answered set of rank 3")
    with (
        PLACES[FILES]() as place,
        place.make(NAMESPACE),
        place.open(NAMESPACE, 3) as channel,
        silent,
    ):
        ChannelStore(channel, 3).set("a", "b")


def test_a_clone_has_a_timeout_of_its_own_and_lives_in_torch(in_files: Served) -> None:
    store = in_files.store(0)
    clone = dist.PrefixStore("p", store).clone()
    clone.set_timeout(timedelta(seconds=1))
    assert store.timeout == SOON
    clone.set("a", "1")
    assert store.get("p/a") == b"1"


def test_many_threads_count_together(in_files: Served) -> None:
    stores = [in_files.store(rank) for rank in range(3)]
    with ThreadPoolExecutor(12) as pool:
        counts = list(pool.map(lambda turn: stores[turn % 3].add("n", 1), range(60)))
    assert sorted(counts) == list(range(1, 61))


def test_a_request_that_comes_twice_is_done_once() -> None:
    """As after an outage, when a put whose answer was lost is tried again."""
    with PLACES[FILES]() as place, place.make(NAMESPACE) as coordinator:
        server = StoreServer(coordinator)
        with place.open(NAMESPACE, 1) as channel, ThreadPoolExecutor(1) as pool:
            store = ChannelStore(channel, 1)
            for expected in (1, 2, 3):
                adding = pool.submit(store.add, "n", 1)
                (key,) = until(lambda: coordinator.waiting(COORDINATOR))
                request = coordinator.get_bytes(key, SOON_S)
                server.serve_once()
                assert adding.result(SOON_S) == expected
                channel.put_bytes(key, request)
                server.serve_once()
                assert coordinator.waiting(COORDINATOR) == []


def test_a_wait_asks_once_and_leaves_nothing() -> None:
    with PLACES[FILES]() as place, place.make(NAMESPACE) as coordinator:
        now = [0.0]
        server = StoreServer(coordinator, clock=lambda: now[0])
        with place.open(NAMESPACE, 0) as channel, ThreadPoolExecutor(1) as pool:
            store = ChannelStore(channel, 0)
            store.set_timeout(timedelta(seconds=50))
            empty = coordinator.size_bytes()
            getting = pool.submit(store.get, "never")
            keys = until(lambda: coordinator.waiting(COORDINATOR))
            for now[0] in (0.0, 10.0, 49.9):
                server.serve_once(keys if now[0] == 0.0 else [])
                assert not getting.done()
                assert coordinator.waiting(COORDINATOR) == []
            # It is counted once it is stored, and served as soon as it is.
            until(lambda: channel.traffic.counters()["puts"])
            assert channel.traffic.counters()["puts"] == 1
            now[0] = 50.0
            server.serve_once()
            with pytest.raises(dist.DistStoreError, match="wait timeout after 50 s"):
                getting.result(SOON_S)
            assert channel.traffic.counters()["gets"] == 1
            assert coordinator.size_bytes() == empty


def test_listings_are_as_rare_as_the_channel_has_it() -> None:
    with PLACES["s3"]() as place, place.make(NAMESPACE) as coordinator:
        now = [0.0]
        server = StoreServer(coordinator, clock=lambda: now[0])
        before = coordinator.traffic.counters()["requests"]
        for tick in range(100):  # of 50 ms, as a coordinator's loop
            now[0] = tick * 0.05
            server.serve_once()
        listings = coordinator.traffic.counters()["requests"] - before
        assert listings == pytest.approx(5.0 / coordinator.abilities.list_every_s, abs=2)


def test_reports_and_requests_do_not_trip_over_each_other() -> None:
    with PLACES[FILES]() as place, place.make(NAMESPACE) as coordinator:
        server = StoreServer(coordinator)
        with place.open(NAMESPACE, 2) as channel, ThreadPoolExecutor(1) as pool:
            adding = pool.submit(ChannelStore(channel, 2).add, "n", 4)
            until(lambda: coordinator.waiting(COORDINATOR))
            with Reporter(channel, rank=2, attempt=0) as reporter:
                reporter.add("step", urgent=True, step=7)
            keys = coordinator.waiting(COORDINATOR)
            assert len(keys) == 2
            (report,) = read_reports(coordinator, keys)
            assert [record["step"] for record in report.records] == [7]
            assert not adding.done()
            assert list(read_reports(coordinator)) == []
            server.serve_once(keys)
            assert adding.result(SOON_S) == 4


@pytest.mark.parametrize("name", [pytest.param(FILES, marks=pytest.mark.slow), "redis"])
def test_processes_meet_by_it_and_so_does_torch_in_them(name: str) -> None:
    """Three processes pass torch's own barrier; then its gloo finds its peers by this store."""
    with PLACES[name]() as place, served_at(place):
        found = in_processes(_meet, place)
    assert found == [6.0, 6.0, 6.0]


def _meet(place: ChannelPlace, rank: int, world_size: int, result: Connection) -> None:
    with place.open(NAMESPACE, rank) as channel:
        store = ChannelStore(channel, rank)
        _store_based_barrier(rank, dist.PrefixStore("b", store), "0", world_size, 2 * SOON)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=world_size, timeout=2 * SOON
        )
        value = torch.tensor([rank + 1.0])
        dist.all_reduce(value)
        store.barrier("last", world_size)
        dist.destroy_process_group()
        result.send(value.item())


def until(found: Callable[[], object]) -> object:
    """What is there soon."""
    by = time.monotonic() + SOON_S
    while not (result := found()):
        assert time.monotonic() < by
        time.sleep(0.005)
    return result
