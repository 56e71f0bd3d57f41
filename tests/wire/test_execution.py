"""How a schedule is run over a link: how much is under way at once, and what it leaves."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dayfly.errors import WireError
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.collectives.conformance_world import LinkedChannel as Distant
from dayfly.wire.execution import Execution
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.message import Header, as_bytes
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span
from tests.wire.rank_0 import engine, four, play_rank_1

SOON_S = 30.0


class Slow(Distant):
    """Puts that take until they are let go of, one by one."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.under_way = self.most = 0
        self.lock = threading.Lock()

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.begun.release()
        assert self.go.acquire(timeout=SOON_S)
        try:
            return super().put(key, header, payload)
        finally:
            with self.lock:
                self.under_way -= 1


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    namespace = Namespace("run", 0)
    with FileChannel.make(tmp_path, namespace, senders=4, budget_bytes=2**24, ahead_bytes=2**18):
        yield Slow(tmp_path, namespace)  # type: ignore[misc]


def puts(count: int) -> Schedule:
    return Schedule(
        tuple(Op(Kind.PUT, Span(at, at + 1), Name(f"x-{at}", 0, 1)) for at in range(count))
    )


def test_a_lane_has_a_window_of_requests_under_way(slow: Slow) -> None:
    """Three at once, and a fourth when the first is done: that is what fills a round trip."""
    buffer = torch.arange(10.0)
    with engine(slow) as rank_0, ThreadPoolExecutor(1) as pool:
        running = pool.submit(rank_0.run, puts(10), buffer, 0, "grad")
        for _ in range(3):
            assert slow.begun.acquire(timeout=SOON_S)
        assert not slow.begun.acquire(timeout=0.05)
        for _ in range(10):
            slow.go.release()
        running.result(SOON_S)
    assert slow.most == 3
    assert len(slow.waiting(1)) == 10


def test_what_waits_does_not_hold_up_the_window(slow: Slow) -> None:
    """The first message never comes; the two behind it are read, and the fourth is not begun."""
    names = [Name(f"x-{number}", 1, 0) for number in range(4)]
    for name in names[1:]:
        key = Key(0, f"grad-{name.phase}", 1, 0)
        slow.go.release()
        slow.put(key, Header(key.operation, torch.float32, (1,)), as_bytes(torch.ones(1)))
    done: list[Name | None] = []
    second = threading.Semaphore(0)

    def observe(op: Op) -> None:
        done.append(op.name)
        second.release()

    ops = tuple(Op(Kind.GET, Span(at, at + 1), name) for at, name in enumerate(names))
    with engine(slow, observe=observe) as rank_0, ThreadPoolExecutor(1) as pool:
        running = pool.submit(rank_0.run, Schedule(ops), buffer := torch.zeros(4), 0, "grad")
        for _ in range(2):
            assert second.acquire(timeout=SOON_S)
        assert not second.acquire(timeout=0.05)
        assert set(done) == {names[1], names[2]}
        rank_0.give_up(WireError("enough"))
        with pytest.raises(WireError, match="given up"):
            running.result(SOON_S)
    assert buffer.tolist() == [0, 1, 1, 0]


def test_collectives_run_beside_each_other(slow: Slow) -> None:
    """The second is over before the first, whose peer is late."""
    first, second = four(), four()
    for _ in range(40):
        slow.go.release()
    with engine(slow) as rank_0, ThreadPoolExecutor(2) as pool:
        late = pool.submit(rank_0.all_reduce, first, 0, "grad")
        play_rank_1(slow, 1)
        pool.submit(rank_0.all_reduce, second, 1, "grad").result(SOON_S)
        assert second.tolist() == [2, 4, 6, 8]
        assert not late.done()
        play_rank_1(slow, 0)
        late.result(SOON_S)
    assert first.tolist() == [2, 4, 6, 8]


class Halves:
    """A codec that sends float16, and counts what it is asked for."""

    def __init__(self) -> None:
        self.encoded: list[tuple[Span, bool]] = []

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]]:
        return torch.float16, (length,)

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        self.encoded.append((span, total))
        return values_P.to(torch.float16)

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        into_P.copy_(travelled)


def test_what_is_sent_is_what_all_ranks_have(slow: Slow) -> None:
    """2049 is no float16: the owner of the sum must go on with what its peers read, 2048."""
    for _ in range(10):
        slow.go.release()
    for phase, destination, values in (("part", 0, [1024, 1]), ("sum", EVERYONE, [6, 8])):
        value = torch.tensor(values, dtype=torch.float16)
        key = Key(0, f"grad-{phase}", 1, destination)
        slow.put(key, Header(key.operation, value.dtype, (2,)), as_bytes(value))
    codec = Halves()
    buffer = torch.tensor([1025.0, 2.0, 3.0, 4.0])
    with engine(slow) as rank_0:
        rank_0.all_reduce(buffer, 0, "grad", packing=Packing(codec))
    assert buffer.tolist() == [2048, 3, 6, 8]
    assert codec.encoded == [(Span(2, 4), False), (Span(0, 2), True)]


def test_who_is_superseded_stores_its_own_sums_first(tmp_path: Path) -> None:
    """What was summed up in the buffer is no contribution any more: it is not to be summed again.

    Ops of rank 0 of 2: what it contributes to rank 1 is put, its own sum is made and not yet put.
    """
    namespace = Namespace("run", 0)
    with (
        FileChannel.make(tmp_path, namespace, senders=2, budget_bytes=2**20, ahead_bytes=0),
        FileChannel(tmp_path, namespace) as channel,
        engine(channel) as ours,
    ):
        buffer_P = torch.tensor([6.0, 8.0, 3.0, 4.0])
        plan = ours._plan(buffer_P, None)
        execution = Execution(ours._setting, plan, buffer_P, 0, "grad")
        (sum_at,) = (
            at
            for at, op in enumerate(plan.schedule)
            if op.kind is Kind.PUT and op.name is not None and op.name.destination == EVERYONE
        )
        for at in range(sum_at):
            execution._done[at] = True
        execution._store_own_sums()
        part, total = Key(0, "grad-part", 0, 1), Key(0, "grad-sum", 0, EVERYONE)
        assert channel.stored([part, total]) == {total}
        into = torch.zeros(2)
        channel.get(total, into, SOON_S)
        assert into.tolist() == [6.0, 8.0]
        execution._done[sum_at] = True
        channel.drop([total])
        execution._store_own_sums()
        assert channel.stored([total]) == frozenset()
