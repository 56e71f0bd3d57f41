"""Lines in virtual time: exact to the rate, never faster, and nothing saved up while idle."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.shaping import LinkDirection, Rates

RATE, LATENCY_S = 10e6, 0.04
#: Tries in real time, until one is not held up by what else the machine does.
TRIES = 20


class Clock:
    """A clock that moves by sleeping; `late_s` is how much later than asked every sleep ends."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 1000.0
        self.late_s = late_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.late_s


def line(clock: Clock, rate: float | None = RATE, latency_s: float = 0.0) -> LinkDirection:
    return LinkDirection(rate, latency_s, clock=clock, sleep=clock.sleep)


def transfer(one: LinkDirection, clock: Clock, nbytes: int, storing_s: float = 0.0) -> float:
    """What a transfer takes, with storing beside it, as a put does it."""
    began_s = clock.now_s
    free_s = one.carry(nbytes, one.ask())
    clock.now_s += storing_s
    one.done(free_s)
    return clock.now_s - began_s


@pytest.mark.parametrize(
    ("nbytes", "latency_s", "takes_s"),
    [(1_000_000, 0.0, 0.1), (128, 0.0, 12.8e-6), (1_000_000, 0.04, 0.14), (0, 0.04, 0.04)],
)
def test_what_one_transfer_takes(nbytes: int, latency_s: float, takes_s: float) -> None:
    clock = Clock()
    one = line(clock, latency_s=latency_s)
    assert transfer(one, clock, nbytes) == pytest.approx(takes_s, abs=1e-9)


def test_without_a_rate_only_the_latency_counts() -> None:
    clock = Clock()
    assert transfer(line(clock, None, 0.04), clock, 10**9) == pytest.approx(0.04)


def test_an_idle_line_saves_nothing_up() -> None:
    clock = Clock()
    one = line(clock, latency_s=LATENCY_S)
    for idle_s in (0.011, 1.0, 1000.0):
        transfer(one, clock, 1_000_000)
        clock.now_s += idle_s
        assert transfer(one, clock, 1_000_000) == pytest.approx(0.1 + LATENCY_S)


def test_calls_one_after_another_pay_the_latency_each_time() -> None:
    clock = Clock()
    one = line(clock, latency_s=LATENCY_S)
    taken = [transfer(one, clock, 1_000_000) for _ in range(5)]
    assert taken == pytest.approx(5 * [0.1 + LATENCY_S])


def test_calls_at_once_pay_the_latency_beside_each_other() -> None:
    """Five of 10 ms and 100 ms of latency: 150 ms together, and 550 one after another."""

    def together_s() -> float:
        one = LinkDirection(RATE, 0.1)
        begun = threading.Barrier(5)

        def call() -> None:
            begun.wait(30)
            one.done(one.carry(int(RATE / 100), one.ask()))

        began_s = time.monotonic()
        with ThreadPoolExecutor(5) as pool:
            for called in [pool.submit(call) for _ in range(5)]:
                called.result()
        took_s = time.monotonic() - began_s
        assert took_s >= 0.148
        return took_s

    assert any(together_s() < 0.5 for _ in range(TRIES))


def test_soon_after_a_late_one_no_lateness_is_paid_again() -> None:
    clock = Clock(late_s=0.002)
    one = line(clock, latency_s=LATENCY_S)
    transfer(one, clock, 1_000)
    clock.now_s += 0.005
    assert transfer(one, clock, 100_000) == pytest.approx(0.01 + LATENCY_S, abs=0.0021)
    ended_s = 1000 + 0.0001 + 0.005 + 0.01 + 2 * LATENCY_S
    assert ended_s - 1e-9 <= clock.now_s <= ended_s + 0.0021


SIZES = st.lists(st.integers(1, 20_000_000), min_size=1, max_size=20)
LATE = st.floats(0, 0.005)


@given(sizes=SIZES, late_s=LATE, storing_s=LATE, latency_s=st.sampled_from([0.0, 0.001, 0.04]))
def test_calls_take_their_bytes_at_the_rate(
    sizes: list[int], late_s: float, storing_s: float, latency_s: float
) -> None:
    """However late it wakes up: what one transfer was late, the next does not pay again."""
    clock = Clock(late_s)
    one = line(clock, latency_s=latency_s)
    began_s, sent = clock.now_s, 0
    for number, size in enumerate(sizes):
        transfer(one, clock, size, storing_s)
        sent += size
        least_s = sent / RATE + (number + 1) * latency_s
        assert least_s - 1e-6 <= clock.now_s - began_s
        # A message of less than a late wake-up has that to catch up with.
        assert clock.now_s - began_s <= least_s + len(sizes) * (late_s + storing_s) + 1e-6
    if min(sizes) / RATE > 2 * (late_s + storing_s):
        assert clock.now_s - began_s <= least_s + 2 * (late_s + storing_s) + 1e-6


@given(sizes=SIZES, pauses_s=st.lists(st.floats(0, 3), min_size=20, max_size=20))
def test_no_transfer_is_faster_than_the_rate(sizes: list[int], pauses_s: list[float]) -> None:
    clock = Clock()
    one = line(clock, latency_s=LATENCY_S)
    for size, pause_s in zip(sizes, pauses_s, strict=False):
        assert transfer(one, clock, size) >= size / RATE - 1e-6
        clock.now_s += pause_s


ASKED = st.lists(st.tuples(st.integers(1, 10**7), st.floats(0, 1)), min_size=1, max_size=30)


@given(asked=ASKED)
def test_all_who_ask_together_are_no_faster_than_the_rate(asked: list[tuple[int, float]]) -> None:
    """Whenever each of them wants to start: a line carries one after another."""
    clock = Clock()
    one = line(clock)
    starts_s = [1000 + later_s for _, later_s in asked]
    ends_s = [one.carry(size, start_s) for (size, _), start_s in zip(asked, starts_s, strict=True)]
    assert max(ends_s) - min(starts_s) >= sum(size for size, _ in asked) / RATE - 1e-6
    for (size, _), start_s, end_s in zip(asked, starts_s, ends_s, strict=True):
        assert end_s - start_s >= size / RATE - 1e-6


def test_being_early_is_made_up_for() -> None:
    """A put stores ahead of its time, by what storing takes."""
    clock = Clock()
    one = line(clock, latency_s=LATENCY_S)
    free_s = one.carry(1_000_000, one.ask(), ahead_s=0.02)
    assert clock.now_s == pytest.approx(1000 + 0.1 + LATENCY_S - 0.02)
    one.done(free_s)
    assert clock.now_s == pytest.approx(1000 + 0.1 + LATENCY_S)


def test_threads_share_a_line() -> None:
    """In real time: together no faster than the rate, and a small one is not stuck for long."""

    def both_s() -> dict[int, float]:
        one = LinkDirection(RATE, 0.0)
        ends_s: dict[int, float] = {}
        began_s = time.monotonic()

        def send(nbytes: int) -> None:
            one.done(one.carry(nbytes, one.ask()))
            ends_s[nbytes] = time.monotonic() - began_s

        threads = [threading.Thread(target=send, args=[size]) for size in (4_000_000, 300_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert max(ends_s.values()) >= 0.43
        return ends_s

    tries = (both_s() for _ in range(TRIES))
    assert any(ends_s[300_000] < ends_s[4_000_000] for ends_s in tries)


@pytest.mark.parametrize(
    "rates", [{"up_bytes_per_s": 0.0}, {"down_bytes_per_s": -1.0}, {"latency_s": -0.1}]
)
def test_rates_that_cannot_be(rates: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Rates(**rates)


def test_nothing_is_limited_unless_asked_for() -> None:
    assert not Rates().limited
    assert Rates(latency_s=0.01).limited
    assert Rates(up_bytes_per_s=1.0).limited
