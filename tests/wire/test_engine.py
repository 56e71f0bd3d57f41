"""The engine: what it moves, over which lanes, and whose sum counts."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from dayfly.errors import WaitTimeout
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from dayfly.wire.schedule import Name, Op
from tests.wire.rank_0 import LONG_S, engine, four, play_rank_1, put


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
        assert rank_0.sums(four()) == (Name("sum", 0), Name("sum", 1))
        assert rank_0.stored_sums(four(), 3, "grad") == frozenset()
        put(channel, 3, "sum", 1, four())
        assert rank_0.stored_sums(four(), 3, "grad") == {Name("sum", 1)}
        assert (
            rank_0.stored_sums(four(), 4, "grad")
            == rank_0.stored_sums(four(), 3, "loss")
            == frozenset()
        )
    with engine(channel, 1) as alone:
        assert alone.stored_sums(four(), 3, "grad") == frozenset()


def test_observe_sees_each_operation_once_in_its_lanes_order(channel: Channel) -> None:
    play_rank_1(channel, 0)
    seen: list[tuple[Op, str]] = []
    with engine(channel, observe=lambda op: seen.append((op, _lane()))) as rank_0:
        schedule = rank_0.schedule(four())
        rank_0.all_reduce(four(), 0, "grad")
    ops = [op for op, _ in seen]
    assert len(ops) == len(schedule)
    assert set(ops) == set(schedule)
    for position, op in enumerate(schedule):
        assert all(ops.index(schedule.ops[earlier]) < ops.index(op) for earlier in op.after)
        assert (op, "compute" if channel.immediate else op.lane.value) in seen, position
    if channel.immediate:
        assert ops == list(schedule)


def test_watch_is_told_of_uploads_waits_and_downloads(channel: Channel) -> None:
    play_rank_1(channel, 0)
    spans: list[tuple[str, float, float]] = []
    began = time.monotonic()
    with engine(channel, watch=lambda *span: spans.append(span)) as rank_0:
        rank_0.all_reduce(four(), 0, "grad")
    assert sorted(what for what, _, _ in spans) == [
        "download", "download", "upload", "upload", "wait", "wait"
    ]  # fmt: skip
    assert all(began <= start <= end <= time.monotonic() for _, start, end in spans)


def test_a_wait_ends_when_the_message_is_there(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the time goes: a peer that sends late is waited for, not downloaded from."""
    late_s = 0.3
    asked, fetch = threading.Event(), channel.fetch
    spans: list[tuple[str, float, float]] = []

    def held(key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        asked.set()
        return fetch(key, expected, timeout_s)

    def send() -> None:
        assert asked.wait(LONG_S)
        time.sleep(late_s)
        play_rank_1(channel, 0)

    monkeypatch.setattr(channel, "fetch", held)
    with engine(channel, watch=lambda *span: spans.append(span)) as rank_0:
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        rank_0.all_reduce(four(), 0, "grad")
        sender.join()
    waited = [end - start for what, start, end in spans if what == "wait"]
    assert max(waited) >= late_s


def _lane() -> str:
    """The lane that this thread is, by its name."""
    if threading.current_thread() is threading.main_thread():
        return "compute"
    return threading.current_thread().name.split("-")[1].split("_")[0]


def test_one_rank_keeps_its_buffer_and_sends_nothing(channel: Channel) -> None:
    with engine(channel, 1) as alone:
        alone.all_reduce(buffer_P := four(), 0, "grad")
    assert buffer_P.tolist() == [1, 2, 3, 4]
    assert channel.traffic.requests == 0


def test_a_buffer_that_is_not_contiguous_is_refused(channel: Channel) -> None:
    with engine(channel) as rank_0, pytest.raises(ValueError, match="strides"):
        rank_0.all_reduce(torch.zeros(8)[::2], 0, "grad")
