"""How the engine fails, and that it can be used again and closed afterwards."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.schedule import Kind, Name, Op
from tests.wire.rank_0 import engine, four, play_rank_1, put

#: A generous bound on what is to end promptly.
PROMPT_S = 20.0


def test_a_missing_peer_is_named_with_step_and_key(channel: Channel) -> None:
    key = Key(12, "grad-part", 1, 0)
    with engine(channel, timeout_s=0.05) as rank_0:
        with pytest.raises(WaitTimeout, match=rf"rank 0 for the {key}: .* 0\.05 s"):
            rank_0.all_reduce(four(), 12, "grad")
        put(channel, 12, "part", 1, torch.tensor([1.0, 2.0]))
        key = Key(12, "grad-sum", 1, EVERYONE)
        with pytest.raises(WaitTimeout, match=rf"rank 0 for the {key}: .* 0\.05 s"):
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
        assert len(calls) == 2
        play_rank_1(channel, 1)
        rank_0.all_reduce(buffer_P := four(), 1, "grad")  # usable afterwards
    assert buffer_P.tolist() == [2, 4, 6, 8]
    assert time.monotonic() - started < PROMPT_S


def test_a_message_that_does_not_fit_is_an_error_of_its_own(channel: Channel) -> None:
    put(channel, 0, "part", 1, torch.tensor([1.0, 2.0, 3.0]))
    with (
        engine(channel) as rank_0,
        pytest.raises(WireError, match=r"expected .*\[2\], found .*\[3\]"),
    ):
        rank_0.all_reduce(four(), 0, "grad")


@pytest.mark.parametrize("kind", [Kind.PUT, Kind.FETCH, Kind.REDUCE, Kind.DROP])
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
        for peer in (1, 2):
            put(channel, 1, "part", peer, torch.tensor([1.0, 2.0]))
        with pytest.raises(Interrupted, match=str(kind)):  # it still runs schedules
            rank_0.all_reduce(torch.ones(6), 1, "grad")
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
    assert bool(set(threading.enumerate()) - before) != channel.immediate
    rank_0.close()
    rank_0.close()
    assert not set(threading.enumerate()) - before
