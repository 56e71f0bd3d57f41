"""The direct channel alone: outboxes that empty, peers that go and come back, last messages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from dayfly.errors import RequestError, WaitTimeout, WireError
from dayfly.wire.channels import channel_kind, direct
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import SOON_S, put, tensor
from dayfly.wire.channels.kinds import Direct
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, HEADER_BYTES, SERVER, Key
from tests.channels import apart
from tests.channels.kit import MIB, eventually_only, handles, plan, site

KIND = Direct()
KEY = Key(0, "a", 1, 0)
STOP = Key(FOREVER, "stop", COORDINATOR, EVERYONE)


@pytest.fixture
def coordinators(tmp_path: Path) -> Iterator[Channel]:
    with KIND.create(site(tmp_path, "tcp://"), plan(3)) as channel:
        yield channel
        channel.destroy()  # whoever waits for readers of its last messages need not


@pytest.fixture
def ranks(coordinators: Channel, tmp_path: Path) -> Iterator[list[Channel]]:
    with ExitStack() as stack:
        yield [stack.enter_context(KIND.open(site(tmp_path, "tcp://"), rank)) for rank in range(3)]
        coordinators.destroy()


def test_it_says_what_it_can_do() -> None:
    assert KIND.abilities.direct
    assert not KIND.abilities.replays
    assert not KIND.abilities.sums


def test_an_outbox_empties_as_its_readers_read(ranks: list[Channel]) -> None:
    to_one, to_all = Key(0, "a", 1, 0), Key(0, "b", 1, EVERYONE)
    for key in (to_one, to_all):
        assert put(ranks[1], key, tensor((100,)))
    got = torch.zeros(100)
    ranks[0].get(to_one, got, SOON_S)
    assert ranks[0].stored([to_one, to_all]) == {to_all}
    requests = ranks[0].traffic.requests
    ranks[0].drop([to_one])
    assert ranks[0].traffic.requests == requests
    for reader in (0, 0, 1):  # a reader counts once, and the sender does not
        ranks[reader].get(to_all, got, SOON_S)
        assert ranks[0].stored([to_all]) == {to_all}
    ranks[2].get(to_all, got, SOON_S)
    assert ranks[2].stored([to_all]) == set()
    assert ranks[1].size_bytes() == 0


def test_a_message_to_everyone_leaves_once_a_reader(ranks: list[Channel]) -> None:
    size = HEADER_BYTES + 400
    put(ranks[1], Key(0, "a", 1, 0), tensor((100,)))
    assert ranks[1].traffic.bytes_up == size
    put(ranks[1], Key(0, "a", 1, EVERYONE), tensor((100,)))
    assert ranks[1].traffic.bytes_up == 3 * size
    assert ranks[1].copies(KEY) == 1


def test_a_ring_in_a_small_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank sends eight times what its outbox holds: a put waits for the reader."""
    monkeypatch.setattr(direct, "_LEAST_OUTBOX_BYTES", 0)
    elements, steps = 2**17, 32
    outbox_bytes = 4 * (4 * elements)
    place = site(tmp_path, "tcp://")
    most = [0] * 3
    with (
        KIND.create(place, plan(3, ahead_bytes=outbox_bytes // 2)),
        ExitStack() as stack,
        ThreadPoolExecutor(6) as pool,
    ):
        ends = [stack.enter_context(KIND.open(place, rank)) for rank in range(3)]

        def send(rank: int) -> None:
            for step in range(steps):
                value = torch.full((elements,), float(rank * steps + step))
                assert put(ends[rank], Key(step, "ring", rank, (rank + 1) % 3), value)
                most[rank] = max(most[rank], ends[rank]._server.table.size_bytes())  # type: ignore[attr-defined]

        def receive(rank: int) -> None:
            before, got = (rank - 1) % 3, torch.empty(elements)
            for step in range(steps):
                ends[rank].get(Key(step, "ring", before, rank), got, SOON_S)
                assert got[0] == got[-1] == before * steps + step

        for done in [pool.submit(work, rank) for work in (send, receive) for rank in range(3)]:
            done.result(SOON_S)
        assert max(most) <= outbox_bytes


def test_an_outbox_that_stays_full_names_its_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_LEAST_OUTBOX_BYTES", 0)
    monkeypatch.setattr(direct, "ROOM_S", 0.05)
    place = site(tmp_path, "tcp://")
    with KIND.create(place, plan(3, ahead_bytes=MIB)) as made, KIND.open(place, 1) as worker:
        value = torch.zeros(MIB + MIB // 2, dtype=torch.uint8)
        assert put(worker, KEY, value)
        later = Key(1, "a", 1, 0)
        with pytest.raises(WireError, match=rf"^{later}: no room .*0\.05 s.*not read: {KEY}, by 0"):
            put(worker, later, value)
        made.trim(1)
        assert put(worker, later, value)
        made.destroy()


def test_reports_outlive_their_worker(coordinators: Channel, tmp_path: Path) -> None:
    report = Key(0, "report-0", 1, COORDINATOR)
    with KIND.open(site(tmp_path, "tcp://"), 1) as worker:
        worker.put_bytes(report, b"{}")
    assert list(coordinators.waiting(COORDINATOR)) == [report]
    assert coordinators.get_bytes(report, 0) == b"{}"
    assert coordinators.get_bytes(report, 0) == b"{}"
    coordinators.drop([report])
    assert list(coordinators.waiting(COORDINATOR)) == []


def test_the_coordinators_word_stays(coordinators: Channel, ranks: list[Channel]) -> None:
    assert ranks[0].stored([STOP]) == set()
    coordinators.put_bytes(STOP, b"")
    for rank in (0, 1, 2, 0):
        assert ranks[rank].stored([STOP]) == {STOP}
        assert ranks[rank].get_bytes(STOP, 0) == b""


def test_a_worker_that_is_not_there_yet_is_waited_for(
    coordinators: Channel, tmp_path: Path
) -> None:
    place = site(tmp_path, "tcp://")
    with KIND.open(place, 0) as reader, ThreadPoolExecutor(1) as pool:
        with pytest.raises(WaitTimeout, match=rf"{KEY} did not .* 0 s: rank 1 left no address yet"):
            reader.get(KEY, torch.zeros(4), 0)
        got = torch.zeros(4)
        waits = pool.submit(reader.get, KEY, got, SOON_S)
        with KIND.open(place, 1) as late:
            put(late, KEY, tensor((4,)))
            waits.result(SOON_S)
        assert torch.equal(got, tensor((4,)))


@pytest.mark.long
def test_a_killed_peer_is_named_and_its_successor_found(
    coordinators: Channel, tmp_path: Path
) -> None:
    place, got = site(tmp_path, "tcp://"), torch.zeros(4)
    with KIND.open(place, 0) as reader, ThreadPoolExecutor(1) as pool:
        with apart.start("worker", tmp_path) as peer:
            try:
                assert peer.stdout is not None
                assert peer.stdout.readline() == "open\n"
                waits = pool.submit(reader.get, KEY, got, 2 * SOON_S)
                with pytest.raises(WaitTimeout):
                    reader.get(Key(1, "b", 1, 0), got, 0)
            finally:
                peer.kill()
        assert not waits.done()
        with pytest.raises(WaitTimeout, match=rf"^{KEY} .*: rank 1 is not there"):
            reader.get(KEY, torch.zeros(4), 0.1)
        assert reader.stored([KEY]) == set()
        coordinators.trim(1)  # passes over who is not there
        with KIND.open(place, 1) as successor:
            put(successor, KEY, tensor((4,)))
            waits.result(SOON_S)
    assert torch.equal(got, tensor((4,)))


def test_last_messages_are_waited_for(
    coordinators: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is done closes when its readers have read; its peers may be slower."""
    monkeypatch.setattr(direct, "LINGER_S", 10 * SOON_S)
    place, got = site(tmp_path, "tcp://"), torch.zeros(4)
    with KIND.open(place, 0) as reader, ThreadPoolExecutor(1) as pool:
        worker = KIND.open(place, 1)
        put(worker, KEY, tensor((4,)))
        closing = pool.submit(worker.close)
        time.sleep(0.3)
        assert not closing.done()
        reader.get(KEY, got, SOON_S)
        closing.result(SOON_S)
    assert torch.equal(got, tensor((4,)))


@pytest.mark.parametrize("how", ["destroyed", "coordinator gone", "nobody reads"])
def test_a_worker_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(direct, "LINGER_S", 0.3 if how == "nobody reads" else 10 * SOON_S)
    place = site(tmp_path, "tcp://")
    with KIND.create(place, plan(3)) as made, ThreadPoolExecutor(1) as pool:
        worker = KIND.open(place, 1)
        put(worker, KEY, tensor((4,)))
        closing = pool.submit(worker.close)
        if how == "destroyed":
            made.destroy()
        elif how == "coordinator gone":
            made.close()
        closing.result(SOON_S)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (Key(0, "a", 3, 0), "no rank 3 was planned for"),
        (Key(0, "a-part-0", 0, SERVER), "no parameter server"),
    ],
)
def test_whom_a_message_is_from_is_checked(ranks: list[Channel], key: Key, says: str) -> None:
    for act in (lambda: ranks[0].put_bytes(key, b""), lambda: ranks[0].get_bytes(key, 0)):
        with pytest.raises(WireError, match=rf"^{key}: .*{says}"):
            act()


def test_a_worker_without_a_run_says_whom_it_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "MEET_S", 0.05)
    with pytest.raises(WireError, match=r"coordinator left no address in .* within 0\.05 s"):
        KIND.open(site(tmp_path, "tcp://"), 0)


@pytest.mark.parametrize("url", ["tcp://h:80", "tcp://h/x", "tcp://h:x", "tcp://0.0.0.0"])
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"give tcp:// or tcp://address"):
        channel_kind(url)


def test_a_foreign_address_is_named(tmp_path: Path) -> None:
    with pytest.raises(WireError, match=r"cannot listen at 192\.0\.2\.1: "):
        KIND.create(site(tmp_path, "tcp://192.0.2.1"), plan(3))


def test_workers_listen_where_the_coordinator_reaches_them(tmp_path: Path) -> None:
    place = site(tmp_path, "tcp://127.0.0.2")
    with KIND.create(place, plan(3)) as made, KIND.open(place, 0) as worker:
        records = [json.loads(path.read_bytes()) for path in tmp_path.rglob("*.json")]
        assert {record["host"] for record in records} <= {"127.0.0.1", "127.0.0.2"}
        worker.put_bytes(Key(0, "report-0", 0, COORDINATOR), b"x")
        assert len(made.waiting(COORDINATOR)) == 1


@pytest.mark.long
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = handles()
    place = site(tmp_path, "tcp://")
    with KIND.create(place, plan(3)) as made:
        with KIND.open(place, 0) as reader, KIND.open(place, 1) as worker:
            put(worker, KEY, tensor((4,)))
            reader.get(KEY, torch.zeros(4), SOON_S)
            with pytest.raises(WireError):
                reader.get(Key(0, "b", 1, 0), torch.zeros(4), 0)
        made.destroy()
        assert not list(tmp_path.rglob("*.json"))
    eventually_only(before)
