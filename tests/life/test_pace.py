"""How often workers report and look for a wish to stop, where requests are paid for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.pace import HEARTBEAT_LEAST_S, HEARTBEAT_MOST_S, Pace, heartbeat_s

LAMBDA, S3 = Catalogue().platform("aws-lambda"), Catalogue().store("s3")


def pace(memory_mib: int, workers: int = 1) -> Pace:
    functions = [FunctionSpec(memory_mib=one) for one in (10240, memory_mib)]
    return Pace.of(functions, LAMBDA, S3, workers=workers, immediate=False)


@pytest.mark.parametrize("workers", [1, 2, 8, 1000])
@pytest.mark.parametrize(
    ("memory_mib", "report_s", "look_s"), [(512, 120, 9.6), (1769, 34.7, 2.78), (10240, 6, 1)]
)
def test_what_is_paid_for_is_at_most_a_hundredth_of_each_worker(
    memory_mib: int, report_s: float, look_s: float, workers: int
) -> None:
    """By the price list alone: a put and a get of S3, and a second of Lambda on x86."""
    found = pace(memory_mib, workers)
    assert found.report_s == pytest.approx(report_s, rel=1e-3)
    assert found.look_s >= look_s * 0.999
    usd_per_s = 1.66667e-5 * memory_mib / 1024
    share = (5e-6 / found.report_s + 4e-7 / found.look_s) / usd_per_s
    assert share <= 0.01 + 1e-9
    if memory_mib <= 1769 and workers == 1:
        assert share == pytest.approx(0.01)


def test_workers_look_by_turns() -> None:
    """
    worker 0   look      .    .    look
    worker 1    .      look   .     .    look
    worker 2    .        .   look   .      .    look
    """
    eight = pace(1769, 8)
    assert (eight.look_s, eight.lookers) == (3.0, 3)
    assert [eight.first_look_s(rank) for rank in range(4)] == [0, 1, 2, float("inf")]
    two = pace(1769, 2)
    assert two.lookers == 2
    assert two.first_look_s(1) == pytest.approx(2.778 / 2, rel=1e-3)


def test_what_is_free_is_as_often_as_before() -> None:
    one = [FunctionSpec()]
    memory = Pace.of(one, LAMBDA, S3, workers=4, immediate=True)
    assert memory == Pace(report_s=0.3, look_s=0.1, lookers=1)
    for store in (None, replace(S3, usd_per_put=None, usd_per_get=None)):
        found = Pace.of(one, LAMBDA, store, workers=4, immediate=False)
        assert found == Pace(report_s=1.0, look_s=1.0, lookers=1)


@pytest.mark.parametrize(
    ("memory_mib", "every_s"), [(256, 60), (512, 60), (1024, 30), (1769, 17.36), (10240, 5)]
)
def test_heartbeats_cost_at_most_a_hundredth_from_512_mib_up(
    memory_mib: int, every_s: float
) -> None:
    """A put of S3, and a second of Lambda on x86."""
    functions = [FunctionSpec(memory_mib=memory_mib)]
    found = Pace.of(functions, LAMBDA, S3, workers=2, immediate=False, heartbeats=True).heartbeat_s
    assert found == pytest.approx(every_s, rel=1e-3)
    share = 5e-6 / found / (1.66667e-5 * memory_mib / 1024)
    assert (share < 0.0100001) == (memory_mib >= 512)


@pytest.mark.parametrize(
    ("usd_per_put", "usd_per_s", "every_s"),
    [
        (0.0, 1.0, HEARTBEAT_LEAST_S),
        (0.0, 0.0, HEARTBEAT_LEAST_S),
        (1e-9, math.inf, HEARTBEAT_LEAST_S),
        (1e-6, 0.0, HEARTBEAT_MOST_S),
        (1e-6, 1e-5, 10.0),
        (1.0, 1e-5, HEARTBEAT_MOST_S),
    ],
)
def test_heartbeats_are_never_more_than_a_minute_apart(
    usd_per_put: float, usd_per_s: float, every_s: float
) -> None:
    assert heartbeat_s(usd_per_put, usd_per_s) == pytest.approx(every_s)


def test_there_are_no_heartbeats_where_they_tell_nothing() -> None:
    one = [FunctionSpec(memory_mib=1769)]
    assert Pace.of(one, LAMBDA, S3, workers=2, immediate=False).heartbeat_s is None
    alone = Pace.of(one, LAMBDA, S3, workers=1, immediate=False, heartbeats=True)
    memory = Pace.of(one, LAMBDA, None, workers=2, immediate=True, heartbeats=True)
    assert alone.heartbeat_s is memory.heartbeat_s is None
