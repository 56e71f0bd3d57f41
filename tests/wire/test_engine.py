"""The engine: what it moves, how it fails, and that it can be used again and closed afterwards."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.engine import Engine
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.message import Header
from dayfly.wire.schedule import Kind, Name, Op
from dayfly.wire.tensors import as_bytes

SCATTER_REDUCE = COLLECTIVES["scatter-reduce"]
#: Far longer than any test takes: who waits for it was not ended.
LONG_S = 600.0
#: A generous bound on what is to end promptly.
PROMPT_S = 20.0


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    """Rank 0's channel; tests play the other ranks by hand on it."""
    with FileChannel(tmp_path, Namespace("run", 0), 0) as channel:
        yield channel


def engine(channel: Channel, size: int = 2, **more: object) -> Engine:
    """Rank 0's engine."""
    return Engine(channel, SCATTER_REDUCE, 0, size, **{"timeout_s": LONG_S, **more})  # type: ignore[arg-type]


def put(channel: Channel, step: int, phase: str, source: int, value: torch.Tensor) -> None:
    """A message of another rank: its part for rank 0, or its sum for everyone."""
    key = Key(step, f"grad-{phase}", source, 0 if phase == "part" else EVERYONE)
    assert channel.put(key, Header(key.operation, value.dtype, tuple(value.shape)), as_bytes(value))


def play_rank_1(channel: Channel, step: int, dtype: torch.dtype = torch.float32) -> None:
    """What rank 1 of 2 sends when both hold (1, 2, 3, 4)."""
    put(channel, step, "part", 1, torch.tensor([1, 2], dtype=dtype))
    put(channel, step, "sum", 1, torch.tensor([6, 8], dtype=dtype))


def four(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor([1, 2, 3, 4], dtype=dtype)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64], ids=str
)
def test_buffers_of_any_type_are_summed_in_place(channel: Channel, dtype: torch.dtype) -> None:
    play_rank_1(channel, 0, dtype)
    buffer_P = four(dtype)
    with engine(channel) as rank_0:
        rank_0.all_reduce(buffer_P, 0, "grad")
    assert buffer_P.dtype is dtype
    assert buffer_P.tolist() == [2, 4, 6, 8]


def test_a_part_of_a_larger_buffer_leaves_the_rest(channel: Channel) -> None:
    play_rank_1(channel, 0)
    whole = torch.cat([torch.tensor([7.0]), four(), torch.tensor([7.0])])
    with engine(channel) as rank_0:
        rank_0.all_reduce(whole[1:5], 0, "grad")
    assert whole.tolist() == [7, 2, 4, 6, 8, 7]


def test_a_put_that_loses_adopts_the_stored_sum(channel: Channel) -> None:
    """An earlier life stored another sum; the peers read that one, so it counts."""
    play_rank_1(channel, 0)
    put(channel, 0, "sum", 0, torch.tensor([20.0, 40.0]))
    buffer_P = four()
    with engine(channel) as rank_0:
        rank_0.all_reduce(buffer_P, 0, "grad")
    assert buffer_P.tolist() == [20, 40, 6, 8]


def test_steps_and_operations_do_not_mix(channel: Channel) -> None:
    play_rank_1(channel, 0)
    with engine(channel, timeout_s=0.01) as rank_0:
        for step, operation in ((1, "grad"), (0, "loss")):
            with pytest.raises(WaitTimeout, match=f"{operation}-part of step {step} "):
                rank_0.all_reduce(four(), step, operation)
        rank_0.all_reduce(buffer_P := four(), 0, "grad")
    assert buffer_P.tolist() == [2, 4, 6, 8]


def test_stored_sums_are_those_in_the_channel(channel: Channel) -> None:
    with engine(channel) as rank_0:
        assert rank_0.sums == (Name("sum", 0), Name("sum", 1))
        assert rank_0.stored_sums(3, "grad") == frozenset()
        put(channel, 3, "sum", 1, four())
        assert rank_0.stored_sums(3, "grad") == {Name("sum", 1)}
        assert rank_0.stored_sums(4, "grad") == rank_0.stored_sums(3, "loss") == frozenset()
    with engine(channel, 1) as alone:
        assert alone.stored_sums(3, "grad") == frozenset()


def test_a_missing_peer_is_named_with_step_and_key(channel: Channel) -> None:
    key = Key(12, "grad-part", 1, 0)
    with engine(channel, timeout_s=0.05) as rank_0:
        with pytest.raises(WaitTimeout, match=rf"rank 0 waited 0.05 s for the {key}: is that"):
            rank_0.all_reduce(four(), 12, "grad")
        put(channel, 12, "part", 1, torch.tensor([1.0, 2.0]))
        key = Key(12, "grad-sum", 1, EVERYONE)
        with pytest.raises(WaitTimeout, match=rf"rank 0 waited 0.05 s for the {key}: is that"):
            rank_0.all_reduce(four(), 12, "grad")


class Interrupted(Exception):
    """Injected."""


def test_an_interrupt_ends_the_wait_by_its_own_exception(channel: Channel) -> None:
    calls = []

    def interrupt() -> None:
        calls.append(threading.current_thread())
        if len(calls) == 2:
            raise Interrupted("stop")

    started = time.monotonic()
    with engine(channel, interrupt=interrupt) as rank_0:
        with pytest.raises(Interrupted, match="stop"):
            rank_0.all_reduce(four(), 0, "grad")
        play_rank_1(channel, 1)
        rank_0.all_reduce(buffer_P := four(), 1, "grad")  # usable afterwards
    assert buffer_P.tolist() == [2, 4, 6, 8]
    assert len(calls) == 2
    assert time.monotonic() - started < PROMPT_S


def test_a_message_that_does_not_fit_is_an_error_of_its_own(channel: Channel) -> None:
    put(channel, 0, "part", 1, torch.tensor([1.0, 2.0, 3.0]))
    with (
        engine(channel) as rank_0,
        pytest.raises(WireError, match=r"expected .*\[2\], found .*\[3\]"),
    ):
        rank_0.all_reduce(four(), 0, "grad")


@pytest.mark.parametrize("kind", [Kind.PUT, Kind.HOLD, Kind.REDUCE, Kind.DROP])
def test_an_error_in_one_lane_ends_the_others(channel: Channel, kind: Kind) -> None:
    """Rank 2 of 3 never sends a sum, so the downlink would wait; rank 1's part comes."""
    for peer in (1, 2):
        put(channel, 0, "part", peer, torch.tensor([1.0, 2.0]))

    def observe(op: Op) -> None:
        if op.kind is kind:
            raise Interrupted(str(kind))

    started = time.monotonic()
    with engine(channel, 3, observe=observe) as rank_0:
        with pytest.raises(Interrupted, match=str(kind)):
            rank_0.all_reduce(torch.ones(6), 0, "grad")
        with pytest.raises(Interrupted):  # it still runs schedules
            rank_0.all_reduce(torch.ones(6), 0, "grad")
    assert time.monotonic() - started < PROMPT_S


def test_a_signal_in_the_callers_thread_ends_the_lanes(channel: Channel) -> None:
    """Ctrl-C, or the platform's notice, while the caller has nothing to do but wait."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted("signal")

    def interrupt() -> None:  # in the downlink's thread, which waits for the sum of rank 1
        if not sent:
            sent.append(True)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    sent: list[bool] = []
    put(channel, 0, "sum", 0, torch.tensor([2.0, 4.0]))
    before = signal.signal(signal.SIGUSR1, handler)
    started = time.monotonic()
    try:
        with engine(channel, timeout_s=2 * PROMPT_S, interrupt=interrupt) as rank_0:
            with pytest.raises(Interrupted):
                rank_0.all_reduce(four(), 0, "grad", {Name("sum", 0)})
            play_rank_1(channel, 1)
            rank_0.all_reduce(four(), 1, "grad")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - started < PROMPT_S


def test_observe_sees_each_operation_once_in_its_lanes_order(channel: Channel) -> None:
    play_rank_1(channel, 0)
    seen: list[tuple[Op, str]] = []
    with engine(channel, observe=lambda op: seen.append((op, _lane()))) as rank_0:
        schedule = rank_0.schedule(4)
        rank_0.all_reduce(four(), 0, "grad")
    ops = [op for op, _ in seen]
    assert len(ops) == len(schedule)
    assert set(ops) == set(schedule)
    for position, op in enumerate(schedule):
        assert all(ops.index(schedule.ops[earlier]) < ops.index(op) for earlier in op.after)
        assert (op, op.lane.value) in seen, position


def _lane() -> str:
    """The lane that this thread is, by its name."""
    if threading.current_thread() is threading.main_thread():
        return "compute"
    return threading.current_thread().name.split("-")[1].split("_")[0]


@pytest.mark.parametrize("fails", [False, True])
def test_close_leaves_no_threads(channel: Channel, fails: bool) -> None:
    before = set(threading.enumerate())
    rank_0 = engine(channel, timeout_s=0.01)
    if not fails:
        play_rank_1(channel, 0)
        rank_0.all_reduce(four(), 0, "grad")
    else:
        with pytest.raises(WaitTimeout):
            rank_0.all_reduce(four(), 0, "grad")
    assert len(set(threading.enumerate()) - before) == 2
    rank_0.close()
    rank_0.close()
    assert set(threading.enumerate()) == before


def test_one_rank_keeps_its_buffer_and_sends_nothing(channel: Channel) -> None:
    with engine(channel, 1) as alone:
        alone.all_reduce(buffer_P := four(), 0, "grad")
    assert buffer_P.tolist() == [1, 2, 3, 4]
    assert channel.traffic.requests == 0


def test_a_buffer_that_is_not_contiguous_is_refused(channel: Channel) -> None:
    with engine(channel) as rank_0, pytest.raises(ValueError, match="strides"):
        rank_0.all_reduce(torch.zeros(8)[::2], 0, "grad")
