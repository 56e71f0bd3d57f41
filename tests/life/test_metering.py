"""The bill: billed time, memory and requests, in dollars."""

from __future__ import annotations

import pytest

from dayfly.catalogue.prices import function_prices
from dayfly.life.metering import Used, bill

AWS = function_prices("aws-lambda")


def used(init_s: float, run_s: float, memory_mib: int = 1024) -> Used:
    return Used(
        function="worker-0",
        attempt=0,
        memory_mib=memory_mib,
        init_s=init_s,
        run_s=run_s,
        outcome="returned",
    )


def test_a_known_case() -> None:
    """An hour of 1769 MiB and 1000.5 ms of 512 MiB: 6219.1 GB-s and a little, two requests."""
    found = bill([used(10, 3590, 1769), used(0.2, 0.8005, 512)], AWS)
    assert found.billed_s == 3601.001
    assert found.gb_s == pytest.approx(3600 * 1769 / 1024 + 1.001 / 2)
    assert found.requests == 2
    assert found.compute_usd == pytest.approx(0.10366, abs=5e-6)
    assert found.requests_usd == pytest.approx(0.0000004)
    assert found.cost_usd == pytest.approx(0.10366, abs=5e-6)
    assert found.price_list == "aws-lambda"
    assert [row["billed_ms"] for row in found.invocations] == [3_600_000, 1001]


def test_a_million_short_calls() -> None:
    """120 ms at 1536 MiB a million times: 180,000 GB-s for 3.00 dollars, and 0.20 of requests."""
    one = bill([used(0.02, 0.1, 1536)], AWS)
    assert one.gb_s * 1e6 == pytest.approx(180_000)
    assert one.compute_usd * 1e6 == pytest.approx(3.0, abs=0.001)
    assert one.requests_usd * 1e6 == pytest.approx(0.2)


def test_each_invocation_is_rounded_up_by_itself() -> None:
    """Initialisation is billed with the run, before rounding."""
    found = bill([used(0.0004, 0.0004)] * 10, AWS)
    assert found.billed_s == 0.010


def test_the_rows_are_the_whole() -> None:
    found = bill([used(0.1 * n, 0.37 * n, 128 * n) for n in range(1, 9)], AWS)
    assert sum(row["cost_usd"] for row in found.invocations) == pytest.approx(found.cost_usd)
    assert sum(row["gb_s"] for row in found.invocations) == pytest.approx(found.gb_s)
    dumped = found.dump()
    assert dumped["cost_usd"] == found.cost_usd
    assert dumped["invocations"][0]["function"] == "worker-0"


def test_nothing_used_costs_nothing() -> None:
    assert bill([], AWS).cost_usd == bill([], AWS).billed_s == 0
