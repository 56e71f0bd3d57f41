"""A share of a CPU in virtual time, in periods as the kernel gives it out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.processor import SharedProcessor


def finished(processor: SharedProcessor, jobs: list[tuple[float, float]]) -> list[float]:
    """When each job (begins, CPU seconds) is done."""
    ends = [math.nan] * len(jobs)
    coming = sorted(range(len(jobs)), key=lambda job: jobs[job][0])
    while coming or processor.next_s() < math.inf:
        first = jobs[coming[0]][0] if coming else math.inf
        if first <= processor.next_s():
            job = coming.pop(0)
            processor.add(jobs[job][1], job, jobs[job][0])
        else:
            now = processor.next_s()
            ends[processor.finish(now)] = now
    return ends


def test_a_short_burst_runs_at_full_speed() -> None:
    assert finished(SharedProcessor(0.25, 0.02), [(0.0, 0.004)]) == [pytest.approx(0.004)]


def test_long_work_stands_still_until_the_next_period() -> None:
    """5 ms in each 20 ms: 12 ms are 5, 5 and 2."""
    assert finished(SharedProcessor(0.25, 0.02), [(0.0, 0.012)]) == [pytest.approx(0.042)]


def test_what_was_not_used_is_lost() -> None:
    """At 30 ms half of a period is over, and all its quota left; then two more."""
    assert finished(SharedProcessor(0.25, 0.02), [(0.03, 0.012)]) == [pytest.approx(0.062)]


def test_a_slice_in_hand_is_kept_from_one_period_to_the_next() -> None:
    """From 17 ms on: 3 ms, then the other 2 of that slice and 4 of the next."""
    assert finished(SharedProcessor(0.25, 0.02), [(0.017, 0.009)]) == [pytest.approx(0.026)]
    # Of half a core the second slice of a period is not in hand yet, and lost.
    assert finished(SharedProcessor(0.5, 0.02), [(0.017, 0.016)]) == [pytest.approx(0.041)]


def test_of_a_slice_1_ms_is_kept_where_nothing_runs() -> None:
    """After 3 ms of 5, the next period has 6."""
    ends = finished(SharedProcessor(0.25, 0.02), [(0.0, 0.003), (0.02, 0.0065)])
    assert ends == [pytest.approx(0.003), pytest.approx(0.0405)]


def test_two_jobs_use_the_quota_up_twice_as_fast() -> None:
    """2.5 ms each, then 0.5 ms each in the next period."""
    assert finished(SharedProcessor(0.25, 0.02), [(0.0, 0.003), (0.0, 0.003)]) == [
        pytest.approx(0.0205),
        pytest.approx(0.0205),
    ]


def test_a_job_without_work_waits_for_the_next_period_if_the_quota_is_used_up() -> None:
    ends = finished(SharedProcessor(0.25, 0.02), [(0.0, 0.01), (0.01, 0.0)])
    assert ends == [pytest.approx(0.025), pytest.approx(0.02)]


def test_periods_may_have_begun_earlier() -> None:
    """15 ms of the first are over: 5 ms of CPU time until 5 ms, and 5 more at once."""
    assert finished(SharedProcessor(0.25, 0.02, 0.015), [(0.0, 0.008)]) == [pytest.approx(0.008)]


def test_evenly_without_periods() -> None:
    assert finished(SharedProcessor(0.25), [(0.0, 0.01)]) == [pytest.approx(0.04)]
    assert finished(SharedProcessor(0.5), [(0.0, 1.0), (0.0, 1.0)]) == [pytest.approx(4.0)] * 2


def test_no_thread_is_faster_than_one_core() -> None:
    assert finished(SharedProcessor(2.0), [(0.0, 1.0)]) == [pytest.approx(1.0)]
    assert (
        finished(SharedProcessor(1.5, 0.02), [(0.0, 1.0), (0.0, 1.0)])
        == [pytest.approx(4 / 3, abs=0.02)] * 2
    )


def in_small_pieces(share: float, phase: int, begins: int, works: list[int]) -> list[int]:
    """When jobs are done that begin so late, and each 7 pieces after the one before, as the kernel
    has it, a piece of 1/20 ms after another: a slice is taken from the pool, and used up."""
    quota = pool = round(400 * share)
    taken, now, ends = 0, 0, []
    for work in works:
        now += begins
        while work:
            if not taken:
                taken = min(100, pool)
                pool -= taken
            if taken:
                taken, work = taken - 1, work - 1
            now += 1
            if (now + phase) % 400 == 0:
                pool = quota
        ends.append(now)
        pool, taken = pool + max(0, taken - 20), min(taken, 20)
        begins = 7
    return ends


@given(
    st.sampled_from((0.25, 0.375, 0.5, 0.75)),
    st.integers(0, 399),
    st.integers(0, 900),
    st.lists(st.integers(1, 900), min_size=1, max_size=5),
)
def test_it_is_as_the_kernel_in_small_pieces(
    share: float, phase: int, begins: int, works: list[int]
) -> None:
    processor = SharedProcessor(share, 0.02, phase / 20e3)
    now, ends = 0.0, []
    for number, work in enumerate(works):
        now += (7 if number else begins) / 20e3
        processor.add(work / 20e3, number, now)
        now = processor.next_s()
        processor.finish(now)
        ends.append(round(20e3 * now, 3))
    assert ends == in_small_pieces(share, phase, begins, works)


JOBS = st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 0.1)), min_size=1, max_size=6)


@given(JOBS, st.floats(0.05, 1.9), st.floats(0, 0.99))
def test_nobody_gets_more_than_the_share(
    jobs: list[tuple[float, float]], share: float, phase: float
) -> None:
    """All work in so many periods at least, and with one job no later than a period more."""
    period = 0.02
    ends = finished(SharedProcessor(share, period, phase * period), jobs)
    whole = sum(work for _, work in jobs)
    first = min(begin for begin, _ in jobs)
    # The first period and the last may be anywhere in theirs, and have all of their quota.
    assert max(ends) - first >= (whole - 2 * share * period) / share - 1e-9
    for (begin, work), end in zip(jobs, ends, strict=True):
        assert end >= begin + work - 1e-9
        if len(jobs) == 1:
            assert end <= begin + work / min(1.0, share) + period + 1e-9
