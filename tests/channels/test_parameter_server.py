"""The parameter server alone: what it adds, what it refuses, and what it leaves behind."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import RequestError, WaitTimeout, WireError
from dayfly.wire.authentication import Authenticator
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, TOKEN, put, tensor
from dayfly.wire.channels.kinds import ParameterServer
from dayfly.wire.channels.parameter_server import ParameterServerChannel
from dayfly.wire.keys import COORDINATOR, EVERYONE, HEADER_BYTES, SERVER, Key
from dayfly.wire.message import DTYPES, Header, as_bytes
from dayfly.wire.sockets import process, sums
from dayfly.wire.sockets.table import MessageTable
from tests.channels import apart
from tests.channels.kit import MIB, SUM, eventually, handles, kept_port, part, plan, push, site

KIND = ParameterServer()
RANKS = 3
#: Element types that it adds.
ADDED = DTYPES[: len(sums.DTYPES)]


@pytest.fixture(scope="module")
def channels() -> Iterator[list[Channel]]:
    """One of each rank's, at one server; a test has its own steps."""
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        place = site(Path(root), "ps://")
        stack.enter_context(KIND.create(place, plan(RANKS)))
        yield [stack.enter_context(KIND.open(place, rank)) for rank in range(RANKS)]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[ParameterServerChannel]:
    """The coordinator's end of a server of this test's own."""
    channel = KIND.create(site(tmp_path, "ps://"), plan(RANKS, budget_bytes=8 * MIB))
    assert isinstance(channel, ParameterServerChannel)
    with channel:
        yield channel


def sum_of(step: int) -> Key:
    return Key(step, "grad-sum-0", SERVER, EVERYONE)


def test_it_says_what_it_can_do() -> None:
    assert KIND.abilities.sums
    assert not KIND.abilities.replays
    assert KIND.cost(1000).bytes_up == 1000 + HEADER_BYTES


def test_the_types_of_headers_are_those_of_sums() -> None:
    assert [str(dtype).removeprefix("torch.") for dtype in ADDED] == list(sums.DTYPES)


def test_the_server_does_without_torch() -> None:
    """It is small, and there in a moment."""
    code = "import sys, dayfly.wire.sockets.process; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


STEPS = iter(range(1000))


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_sums_are_in_rank_order_bit_for_bit(channels: list[Channel], data: st.DataObject) -> None:
    """Whoever comes first, at once or one after another."""
    dtype = data.draw(st.sampled_from(ADDED))
    order = data.draw(st.permutations(range(RANKS)))
    seed = data.draw(st.integers(0, 2**32 - 1))
    step = next(STEPS)
    terms = [random_bits(dtype, 1000, seed + rank) for rank in range(RANKS)]
    if data.draw(st.booleans()):
        with ThreadPoolExecutor(RANKS) as pool:
            list(pool.map(lambda rank: push(channels[rank], rank, terms[rank], step), order))
    else:
        for rank in order:
            assert push(channels[rank], rank, terms[rank], step)
    wanted = reduce(torch.add, terms)
    for channel in channels:
        got = torch.zeros_like(wanted)
        channel.get(sum_of(step), got, SOON_S)
        assert same_bits(got, wanted)


def random_bits(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Elements of every kind: also subnormal and infinite ones, and such as are no numbers."""
    if dtype is torch.bool:
        return torch.from_numpy(np.random.default_rng(seed).integers(0, 2, count) > 0)
    if not count:
        return torch.empty(0, dtype=dtype)
    raw = np.random.default_rng(seed).bytes(count * dtype.itemsize)
    return torch.frombuffer(bytearray(raw), dtype=dtype)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """What is no number has many forms, and either addition may choose.

    Torch multiplies complex terms by one before it adds, which spoils those with an infinite part.
    """
    if one.is_complex():
        finite = torch.isfinite(one) & torch.isfinite(other)
        bits = torch.view_as_real(one).eq(torch.view_as_real(other)).all(1)
        return bool((bits | ~finite).all()) and not (torch.isfinite(other) & ~finite).any()
    if not one.is_floating_point():
        return torch.equal(one, other)
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[one.itemsize]
    bits = one.view(whole) == other.view(whole)
    return bool((bits | (one.isnan() & other.isnan())).all())


@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(ADDED), count=st.integers(0, 200_000))
@settings(deadline=None, max_examples=40)
def test_adding_is_torchs(seed: int, dtype: torch.dtype, count: int) -> None:
    one, other = random_bits(dtype, count, seed), random_bits(dtype, count, seed + 1)
    wanted = one + other
    sums.add(DTYPES.index(dtype), as_bytes(one), as_bytes(other))
    assert same_bits(one, wanted)


@pytest.mark.parametrize("dtype", DTYPES[len(ADDED) :], ids=str)
def test_what_it_cannot_add_is_refused(channels: list[Channel], dtype: torch.dtype) -> None:
    number = DTYPES.index(dtype)
    with pytest.raises(WireError, match=f"elements of type {number} are not added: send .*bool"):
        push(channels[0], 0, torch.zeros(4, dtype=dtype), next(STEPS))


def test_a_contribution_counts_once(channels: list[Channel]) -> None:
    step = next(STEPS)
    for rank in (0, 2):
        assert push(channels[rank], rank, torch.full((4,), 1.0), step)
        assert not push(channels[rank], rank, torch.full((4,), 5.0), step)
    with pytest.raises(WaitTimeout, match=rf"{sum_of(step)} did not arrive within 0\.01 s"):
        channels[0].get(sum_of(step), torch.zeros(4), 0.01)
    assert push(channels[1], 1, torch.full((4,), 1.0), step)
    assert not push(channels[1], 1, torch.full((4,), 1.0), step)  # also after the sum is made
    for channel in channels:
        got = torch.zeros(4)
        for _ in range(2 if channel is not channels[-1] else 1):  # read again until all have
            channel.get(sum_of(step), got, SOON_S)
            assert got.tolist() == [3.0] * 4
    assert channels[2].stored([sum_of(step)]) == set()
    assert not push(channels[1], 1, torch.full((4,), 1.0), step)  # and after it is freed
    assert channels[1].stored([sum_of(step)]) == set()


def test_the_servers_memory_is_free_again(made: Channel, tmp_path: Path) -> None:
    """Ranks in order: one sum, whoever pushes; the last first: all are kept until it is due."""
    size, place = MIB, site(tmp_path, "ps://")
    value = torch.ones(size // 4)
    with ExitStack() as stack:
        ends = [stack.enter_context(KIND.open(place, rank)) for rank in range(RANKS)]
        for step, order in enumerate([(0, 1, 2), (2, 1, 0)]):
            taken = []
            for rank in order:
                push(ends[rank], rank, value, step)
                taken.append(made.size_bytes() // size)
            assert taken == ([1, 1, 1] if step == 0 else [1, 2, 1])
            for end in ends:
                end.get(sum_of(step), torch.empty_like(value), SOON_S)
            # It goes once its last reader has said that it arrived.
            eventually(lambda: made.size_bytes() == 0, "its room is given back")
        push(ends[0], 0, value, 2)
        push(ends[2], 2, value, 2)
        made.trim(3)
        assert made.size_bytes() == 0


def test_what_a_rank_sends_to_all_goes_when_all_others_have_it(
    made: Channel, tmp_path: Path
) -> None:
    """Sums of collectives that do not leave the adding to the server; nothing is replayed here."""
    place, key, value = site(tmp_path, "ps://"), Key(0, "grad-sum", 1, EVERYONE), tensor((100,))
    with ExitStack() as stack:
        ends = [stack.enter_context(KIND.open(place, rank)) for rank in range(RANKS)]
        put(ends[1], key, value)
        for rank, left in ((0, True), (2, False)):
            ends[rank].get(key, torch.empty_like(value), SOON_S)
            ends[rank].stored([key])  # heard after what it said of the value
            assert bool(made.size_bytes()) is left
        stop = Key(0, "stop", COORDINATOR, EVERYONE)
        made.put_bytes(stop, b"x")
        for end in ends:
            assert end.get_bytes(stop, SOON_S) == b"x"
        assert made.stored([stop]) == {stop}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (torch.ones(5), r"rank 0 pushed float32\[4\], rank 2 float32\[5\]"),
        (torch.ones(4, dtype=torch.int32), r"rank 0 pushed float32\[4\], rank 2 int32\[4\]"),
        (torch.ones(2, 2), r"rank 0 pushed float32\[4\], rank 2 float32\[2, 2\]"),
    ],
)
def test_ranks_that_differ_are_named_to_all(
    channels: list[Channel], other: torch.Tensor, says: str
) -> None:
    step = next(STEPS)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(channels[0].get, sum_of(step), torch.zeros(4), SOON_S)
        push(channels[0], 0, torch.ones(4), step)
        with pytest.raises(WireError, match=says):
            push(channels[2], 2, other, step)
        with pytest.raises(WireError, match=rf"^{sum_of(step)}: {says}"):
            waits.result(SOON_S)
    with pytest.raises(WireError, match=says):
        push(channels[1], 1, torch.ones(4), step)
    with pytest.raises(WireError, match=says):
        channels[1].get(sum_of(step), torch.zeros(4), SOON_S)


def test_what_is_no_contribution_is_refused(channels: list[Channel]) -> None:
    step, value = next(STEPS), torch.ones(4)
    with pytest.raises(WireError, match="is called <operation>-part-<chunk>"):
        put(channels[0], Key(step, "grad", 0, SERVER), value)
    with pytest.raises(WireError, match="from 7 to server: of 3 ranks"):
        put(channels[0], part(7, step), value)
    with pytest.raises(WireError, match="found 16 bytes of other"):
        put(channels[0], part(0, step), value, "other")
    header = Header("grad-part-0", torch.float32, (4,))
    by = Authenticator(TOKEN, NAMESPACE.run, NAMESPACE.generation)
    sealed = header.seal(as_bytes(value), part(0, step), by)
    whole = bytearray(sealed + bytes(as_bytes(value)))
    whole[-1] ^= 1
    with pytest.raises(WireError, match="not authentic"):
        channels[0]._client.put(part(0, step), bytes(whole))  # type: ignore[attr-defined]
    assert push(channels[0], 0, value, step)  # none of them counted


def test_a_full_server_names_its_remedy(made: Channel) -> None:
    big = Key(0, "a", 0, 1)
    with pytest.raises(WireError, match=rf"^{big}: no room for 9.0 MiB.* of 8.0 MiB.*--log-budget"):
        put(made, big, torch.zeros(9 * MIB, dtype=torch.uint8))
    assert put(made, big, torch.zeros(MIB, dtype=torch.uint8))  # the connection is as good
    with pytest.raises(WireError, match="--log-budget"):
        push(made, 0, torch.zeros(8 * MIB, dtype=torch.uint8))


@pytest.mark.long
def test_a_port_in_use_and_a_foreign_address_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WireError, match=rf"cannot listen at 127.0.0.1:{port}: Address already"):
            KIND.create(site(tmp_path, f"ps://127.0.0.1:{port}"), plan(RANKS))
    with pytest.raises(WireError, match=r"cannot listen at 192\.0\.2\.1: .*; give an address of"):
        KIND.create(site(tmp_path, "ps://192.0.2.1"), plan(RANKS))
    assert not list(tmp_path.rglob("*.json"))


def test_a_port_of_ones_own_can_be_had_again_at_once(tmp_path: Path) -> None:
    with kept_port() as port:
        place = site(tmp_path, f"ps://127.0.0.1:{port}")
        for _ in range(2):
            with KIND.create(place, plan(RANKS)) as made, KIND.open(place, 0) as worker:
                assert push(worker, 0, torch.ones(4))
                made.destroy()


@pytest.mark.parametrize(
    "url", ["ps://host:port", "ps://h:70000", "ps://h/x", "ps://:5", "ps://me@h", "ps://0.0.0.0"]
)
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"give ps:// or ps://host:port"):
        channel_kind(url)


def test_a_channel_is_made_once(made: Channel, tmp_path: Path) -> None:
    with pytest.raises(WireError, match="has a parameter server already"):
        KIND.create(site(tmp_path, "ps://"), plan(RANKS))


def test_a_killed_server_is_named_to_whoever_waits(
    made: ParameterServerChannel, tmp_path: Path
) -> None:
    with KIND.open(site(tmp_path, "ps://"), 0) as worker, ThreadPoolExecutor(1) as pool:
        assert made._process is not None
        waits = pool.submit(worker.get, SUM, torch.zeros(4), SOON_S)
        worker.stored([SUM])
        os.kill(made._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, made._process.pid, os.WEXITED | os.WNOWAIT)  # it has come to its end
        with pytest.raises(WireError, match=rf"^{SUM}: the parameter server .* does not answer"):
            waits.result(SOON_S)
        with pytest.raises(WireError, match=r"does not answer \(it was killed by signal 9\)"):
            made.size_bytes()
        with pytest.raises(WireError, match=r"does not answer .*Connection refused"):
            push(worker, 0, torch.ones(4))


@pytest.mark.long
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    place = site(tmp_path, "ps://")
    with KIND.create(place, plan(RANKS)):  # whatever Python opens once, it has opened
        pass
    KIND.remove(place)
    before = handles()
    with KIND.create(place, plan(RANKS)) as made, KIND.open(place, 0) as worker:
        put(worker, Key(0, "a", 0, 1), tensor((4,)))
        with pytest.raises(WaitTimeout):
            worker.get_bytes(Key(0, "b", 0, 1), 0)
        folder = tmp_path / "sockets"
        assert folder.stat().st_mode & 0o077 == 0
        for record in folder.rglob("*.json"):
            assert TOKEN not in record.read_text()
            assert worker._by.handshake not in record.read_text()  # type: ignore[attr-defined]
        made.destroy()
        assert not list(tmp_path.rglob("*.json"))
    assert not handles() - before


@pytest.mark.long
def test_the_server_dies_with_its_coordinator(tmp_path: Path) -> None:
    """Also by kill -9; what it left in the store does not hinder the next."""
    with apart.start("coordinator", tmp_path) as coordinator:
        try:
            assert coordinator.stdout is not None
            pidfd = os.pidfd_open(int(coordinator.stdout.readline()))
        finally:
            coordinator.kill()
    try:
        poll = select.poll()
        poll.register(pidfd)
        assert poll.poll(1000 * SOON_S), "the server is still there"
    finally:
        os.close(pidfd)
    place = site(tmp_path, "ps://")
    KIND.remove(place)
    with KIND.create(place, plan(RANKS)) as made:
        assert made.size_bytes() == 0


def test_a_server_that_does_not_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.sys, "executable", "/bin/false")
    with pytest.raises(WireError, match="the parameter server did not start: it ended with status"):
        KIND.create(site(tmp_path, "ps://"), plan(RANKS))
    monkeypatch.setattr(process.sys, "executable", str(tmp_path / "none"))
    with pytest.raises(WireError, match="cannot start the parameter server"):
        KIND.create(site(tmp_path, "ps://"), plan(RANKS))


def test_many_sums_at_once_from_many_threads() -> None:
    """The adding thread takes what others bring meanwhile; nothing is lost or counted twice."""
    table = MessageTable(lambda key: set(range(8)), limit_bytes=2**30, full="")
    by = Authenticator(TOKEN, "run", 0)
    adds = sums.ServerSums(table, 8, by)
    chance = random.Random(3)
    work = [(rank, step) for rank in range(8) for step in range(20)]
    chance.shuffle(work)
    barrier = threading.Barrier(4)

    def bring(some: list[tuple[int, int]]) -> None:
        barrier.wait(SOON_S)
        for rank, step in some:
            value = torch.full((5000,), rank + step)
            header = Header("grad-part-0", value.dtype, (5000,))
            sealed = header.seal(as_bytes(value), part(rank, step), by)
            blob = memoryview(bytearray(sealed + bytes(as_bytes(value))))
            table.reserve(blob.nbytes)
            assert adds.push(part(rank, step), blob)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(bring, [work[at::4] for at in range(4)]))
    for step in range(20):
        message = table.wait(sum_of(step), 0)
        assert message is not None
        got = np.frombuffer(message.blob[HEADER_BYTES:], np.int64)
        assert set(got.tolist()) == {28 + 8 * step}
        for rank in range(8):
            table.read(sum_of(step), message, rank)
    assert table.size_bytes() == 0
