"""When a worker sends heartbeats: while it is asked, and while it waits; never else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch

from dayfly.errors import MessagesRemoved, WaitTimeout, WireError
from dayfly.life import heartbeats
from dayfly.life.heartbeats import Fenced, Heartbeats
from dayfly.life.reports import BEAT, Reporter, asked, fenced, read_reports
from dayfly.wire.channels import wrapped
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.keys import COORDINATOR, EVERYONE, SERVER, Key
from dayfly.wire.message import Header

EVERY_S = 20.0


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Memory(Channel):
    """Messages in a dictionary, and how often it was asked."""

    def __init__(self) -> None:
        super().__init__(Namespace("run", 0))
        self.there: dict[Key, bytes] = {}
        self.asked = 0
        self.during: Callable[[], None] = lambda: None

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        return self.there.setdefault(key, bytes(payload)) is not None

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        return len(self.get_bytes(key, timeout_s))

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        self.during()
        if key not in self.there:
            raise WaitTimeout("not there")
        return self.there[key]

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        self.asked += 1
        return frozenset(keys) & self.there.keys()

    def waiting(self, destination: int) -> Sequence[Key]:
        return sorted(key for key in self.there if key.destination == destination)

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            del self.there[key]

    def trim(self, before_step: int) -> None:
        raise AssertionError("not here")

    size_bytes = destroy = trim  # type: ignore[assignment]


class Worker:
    """Rank 1 of three, whose clock is moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        for module in (heartbeats, wrapped):
            monkeypatch.setattr(module, "time", self.clock)
        self.memory = Memory()
        reporter = Reporter(self.memory, 1, 4, every_s=float("inf"))
        self.beats = Heartbeats(self.memory, reporter, 1, 4, 3, EVERY_S, begin=False)
        self.channel = self.beats.channel

    def waits(self, source: int, seconds: float, destination: int = 1) -> None:
        """Look every half heartbeat, in the middle of a wait."""

        def during() -> None:
            self.passes(seconds)
            self.memory.during = lambda: None

        self.memory.during = during
        with pytest.raises(WaitTimeout):
            self.channel.get_bytes(Key(7, "grad-part", source, destination), 0.0)

    def passes(self, seconds: float) -> None:
        for _ in range(int(seconds / (EVERY_S / 2))):
            self.clock.now += EVERY_S / 2
            self.beats.look()

    def told(self) -> list[Any]:
        """Whom it said that it waits for, in each heartbeat since the last call."""
        found = list(read_reports(self.memory))
        records = [record for report in found for record in report.records]
        assert all((report.rank, report.attempt) == (1, 4) for report in found)
        assert all(record["kind"] == BEAT for record in records)
        return [record["waits"] for record in records]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_a_worker_of_short_rounds_asks_nothing_and_says_nothing(worker: Worker) -> None:
    for _ in range(100):
        worker.clock.now += 1.0
        worker.beats.round_ends()
        worker.beats.look()
    assert worker.memory.asked == 0
    assert worker.told() == []


def test_in_a_long_round_it_beats_as_long_as_it_is_asked(worker: Worker) -> None:
    worker.passes(5 * EVERY_S)
    assert worker.told() == []
    worker.channel.tell(asked(1, 4))
    worker.channel.tell(asked(1, 3))
    worker.channel.tell(asked(2, 4))
    worker.passes(5 * EVERY_S)
    assert worker.told() == [[]] * 5
    worker.channel.drop([asked(1, 4)])
    worker.passes(5 * EVERY_S)
    assert worker.told() == []


@pytest.mark.parametrize(
    ("source", "waits"), [(0, [0]), (2, [2]), (SERVER, [0, 2]), (COORDINATOR, None), (1, None)]
)
def test_while_it_waits_it_says_for_whom(
    worker: Worker, source: int, waits: list[int] | None
) -> None:
    worker.waits(source, 3 * EVERY_S, destination=EVERYONE)
    assert worker.told() == [waits] * (3 if waits else 0)
    worker.clock.now += 60.0  # it was given up meanwhile
    worker.passes(EVERY_S)
    assert worker.told() == []


def test_a_sender_of_whom_something_comes_is_not_waited_for(worker: Worker) -> None:
    there = Key(7, "grad-part", 0, 1)
    worker.memory.there[there] = b""

    def during() -> None:
        for _ in range(10):
            worker.clock.now += EVERY_S / 4
            worker.memory.during = lambda: None
            worker.channel.get_bytes(there, 0.0)
            worker.beats.look()

    worker.memory.during = during
    with pytest.raises(WaitTimeout):
        worker.channel.get_bytes(Key(8, "grad-part", 0, 1), 0.0)
    assert worker.told() == []


def test_a_fenced_attempt_says_nothing_any_more_and_ends(worker: Worker) -> None:
    worker.beats.check()
    worker.channel.tell(asked(1, 4))
    worker.channel.tell(fenced(1, 4))
    worker.passes(EVERY_S)
    assert worker.told() == []
    with pytest.raises(Fenced):
        worker.beats.check()


def test_one_that_stood_still_asks_at_once_whether_another_attempt_follows(worker: Worker) -> None:
    worker.clock.now += 10 * EVERY_S
    worker.beats.round_ends()
    worker.beats.look()
    worker.beats.check()
    worker.channel.tell(fenced(1, 4))
    worker.clock.now += EVERY_S / 2
    worker.beats.round_ends()
    worker.beats.look()
    worker.beats.check()
    worker.clock.now += 1.1 * EVERY_S
    worker.beats.round_ends()
    worker.beats.look()
    with pytest.raises(Fenced):
        worker.beats.check()


@pytest.mark.parametrize("error", [MessagesRemoved("removed"), WireError("the store is away")])
def test_a_thread_that_cannot_beat_ends_what_waits_and_all_if_messages_are_gone(
    error: WireError, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory()

    def stored(keys: Iterable[Key]) -> frozenset[Key]:
        raise error

    monkeypatch.setattr(memory, "stored", stored)
    over: list[str] = []
    with Heartbeats(memory, Reporter(memory, 1, 4), 1, 4, 3, 0.01, over=over.append) as beats:
        assert beats._thread is not None
        beats._thread.join(10.0)
        with pytest.raises(WireError, match="cannot be sent any more") as found:
            beats.check()
    assert found.value.__cause__ is error
    assert over == ["removed"] * isinstance(error, MessagesRemoved)


def test_a_thread_that_finds_its_attempt_fenced_says_so_once_and_ends() -> None:
    memory = Memory()
    over: list[str] = []
    memory.tell(asked(1, 4))
    memory.tell(fenced(1, 4))
    with Heartbeats(memory, Reporter(memory, 1, 4), 1, 4, 3, 0.01, over=over.append) as beats:
        assert beats._thread is not None
        beats._thread.join(10.0)
        assert not beats._thread.is_alive()
    assert over == ["it was taken for dead, and another one follows it"]
