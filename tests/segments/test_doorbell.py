"""Doorbells: waking between processes, and what happens where there is no futex."""

from __future__ import annotations

import mmap
import multiprocessing
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from types import SimpleNamespace

import numpy as np
import pytest

from dayfly.wire.segments import segment as doorbell
from dayfly.wire.segments.segment import Doorbells, futex_number

BELL, OTHER = 3, 4
SOON_S = 30.0
needs_futex = pytest.mark.skipif(futex_number() is None, reason="no futex on this machine")


def bells(memory: mmap.mmap, futex: int | None) -> Doorbells:
    address = int(np.frombuffer(memory, np.uint8).ctypes.data)
    return Doorbells(memoryview(memory).cast("I"), address, futex)


@pytest.fixture
def shared() -> mmap.mmap:
    return mmap.mmap(-1, mmap.PAGESIZE)


def test_this_machine_has_a_futex() -> None:
    known = platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64")
    assert (futex_number() is not None) == known


def test_other_machines_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert futex_number() is None


@needs_futex
def test_a_ring_before_the_wait_is_not_missed(
    shared: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "LOOK_AGAIN_S", 10 * SOON_S)
    own = bells(shared, futex_number())
    seen = own.seen(BELL)
    own.ring(BELL)
    own.wait(BELL, seen, 10 * SOON_S)
    assert own.seen(BELL) != seen
    assert own.seen(OTHER) == 0


def _ring_for_ever(shared: mmap.mmap, told: Connection) -> None:
    own = bells(shared, futex_number())
    while told.recv():
        own.ring(BELL)


@needs_futex
def test_all_waiters_of_another_process_wake_up(
    shared: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not look again by themselves, so one ring that is missed fails the test."""
    monkeypatch.setattr(doorbell, "LOOK_AGAIN_S", 10 * SOON_S)
    context = multiprocessing.get_context("fork")
    told, tell = context.Pipe(duplex=False)
    process = context.Process(target=_ring_for_ever, args=(shared, told), daemon=True)
    process.start()
    own = bells(shared, futex_number())
    with ThreadPoolExecutor(3) as pool:
        for _ in range(50):
            seen = own.seen(BELL)
            waiters = [pool.submit(own.wait, BELL, seen, 10 * SOON_S) for _ in range(3)]
            tell.send(True)
            for waiter in waiters:
                waiter.result(SOON_S)
            assert own.seen(BELL) != seen
    tell.send(False)
    process.join(SOON_S)
    assert process.exitcode == 0


@pytest.mark.parametrize("futex", [futex_number(), None])
def test_a_wait_ends_with_its_time(shared: mmap.mmap, futex: int | None) -> None:
    own = bells(shared, futex)
    for timeout_s in (0.0, 0.001):
        own.wait(BELL, own.seen(BELL), timeout_s)


def test_a_futex_that_fails_is_no_busy_loop(
    shared: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the call is forbidden it fails at once, and the waiter sleeps a little instead."""
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(doorbell, "time", clock)
    own = bells(shared, 2**20)  # no system call
    own.wait(BELL, own.seen(BELL), SOON_S)
    assert slept == [doorbell.POLL_S]
    own.ring(BELL)
    assert own.seen(BELL) != 0


@pytest.mark.parametrize("futex", [futex_number(), None])
def test_two_rings_are_two_numbers(shared: mmap.mmap, futex: int | None) -> None:
    own = bells(shared, futex)
    before = time.monotonic_ns()
    numbers = set()
    for _ in range(100):
        own.ring(BELL)
        numbers.add(own.seen(BELL))
    assert len(numbers) == 100 or time.monotonic_ns() - before > 2**32
