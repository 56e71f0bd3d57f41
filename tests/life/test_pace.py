"""How often workers report and look for a wish to stop, where requests are paid for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.pace import Pace

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
