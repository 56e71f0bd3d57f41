"""Who asks a store: the first few of each sender's messages; the others when it is their turn."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from dayfly.wire.channels import patience as turns
from dayfly.wire.channels.patience import Turn, Turns

SOON_S = 30.0


def test_the_first_of_each_sender_are_first() -> None:
    line, more = Turns(), 2
    with ExitStack() as stack:
        waits = [stack.enter_context(line.line_up(1)) for _ in range(turns._FIRST + more)]
        other = stack.enter_context(line.line_up(2))
        assert [one.first for one in waits] == [True] * turns._FIRST + [False] * more
        assert other.first


def test_who_is_done_makes_room_and_wakes_the_next() -> None:
    line = Turns()
    asleep = threading.Event()

    def sleep(turn: Turn) -> bool:
        behind = not turn.first
        asleep.set()  # or about to fall asleep: it wakes up all the same
        turn.sleep_until(time.monotonic() + SOON_S, behind=behind)
        return behind and turn.first and not turn.woken

    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        first = [line.line_up(1) for _ in range(turns._FIRST)]
        for one in first:
            one.__enter__()
        last = stack.enter_context(line.line_up(1))
        began = time.monotonic()
        sleeping = pool.submit(sleep, last)
        assert asleep.wait(SOON_S)
        first[2].__exit__(None, None, None)
        assert sleeping.result(SOON_S)
        assert time.monotonic() - began < SOON_S
        for one in (*first[:2], *first[3:]):
            one.__exit__(None, None, None)


def test_all_who_sleep_are_woken() -> None:
    line = Turns()
    with line.line_up(1) as one, line.line_up(2) as other, ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        sleeping = [
            pool.submit(turn.sleep_until, time.monotonic() + SOON_S) for turn in (one, other)
        ]
        line.wake()
        for sleeper in sleeping:
            sleeper.result(SOON_S)
        assert one.woken
        assert other.woken
        assert time.monotonic() - began < SOON_S


def test_a_moment_that_is_past_is_not_slept_for() -> None:
    with Turns().line_up(1) as turn:
        turn.sleep_until(time.monotonic() - 1)
        assert turn.first
        assert not turn.woken


def test_who_came_to_the_front_before_it_slept_does_not_sleep_as_one_behind() -> None:
    line = Turns()
    with ExitStack() as stack:
        first = [line.line_up(1) for _ in range(turns._FIRST)]
        for one in first[1:]:
            stack.enter_context(one)
        with first[0]:
            last = stack.enter_context(line.line_up(1))
            behind = not last.first
        assert behind
        began = time.monotonic()
        last.sleep_until(began + SOON_S, behind=behind)
        assert time.monotonic() - began < SOON_S
