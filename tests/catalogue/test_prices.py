"""Billed time, and dollars a second from the figures that sources print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.prices import FunctionPrices, PriceFigures
from dayfly.errors import RequestError

KNOWN = Catalogue()


def prices(step_ms: int, min_ms: int = 0) -> FunctionPrices:
    return FunctionPrices(usd_per_gb_s=1, billing_step_ms=step_ms, billing_min_ms=min_ms)


def of(figures: PriceFigures, gpus: int | None = None) -> FunctionPrices | None:
    return FunctionPrices.of("p", figures, gpus, 2048)


@pytest.mark.parametrize(
    ("seconds", "step_ms", "min_ms", "billed_ms"),
    [
        (0.0, 1, 0, 1),
        (0.0001, 1, 0, 1),
        (0.001, 1, 0, 1),
        (0.0011, 1, 0, 2),
        (0.1 + 0.2, 1, 0, 300),
        (1.0000000001, 1, 0, 1000),
        (900.0, 1, 0, 900_000),
        (0.0, 100, 0, 100),
        (0.1, 100, 0, 100),
        (0.101, 100, 0, 200),
        (0.0, 1000, 60_000, 60_000),
        (59.9, 1000, 60_000, 60_000),
        (60.0, 1000, 60_000, 60_000),
        (60.001, 1000, 60_000, 61_000),
        (0.01, 100, 250, 300),
    ],
)
def test_billed_time_is_rounded_up(
    seconds: float, step_ms: int, min_ms: int, billed_ms: int
) -> None:
    assert prices(step_ms, min_ms).billed_ms(seconds) == billed_ms


@given(milliseconds=st.integers(1, 10**7), step_ms=st.sampled_from([1, 10, 100, 1000]))
def test_whole_milliseconds_are_billed_as_they_are(milliseconds: int, step_ms: int) -> None:
    """Seconds as floats are a little off; that is not a millisecond more."""
    billed = prices(step_ms).billed_ms(milliseconds / 1000)
    assert billed == -(-milliseconds // step_ms) * step_ms


@given(seconds=st.floats(0, 10**6), name=st.sampled_from(KNOWN.platforms()))
def test_never_less_than_used_and_at_most_a_step_or_the_minimum_more(
    seconds: float, name: str
) -> None:
    listed = KNOWN.platform(name).prices
    assert listed is not None
    billed_ms = listed.billed_ms(seconds)
    used_ms = max(seconds * 1000, listed.billing_min_ms)
    assert billed_ms % listed.billing_step_ms == 0
    assert used_ms - 1e-5 <= billed_ms <= used_ms + listed.billing_step_ms


@given(st.floats(0, 10**5), st.floats(0, 10**5), st.sampled_from(KNOWN.platforms()))
def test_longer_is_never_cheaper(one: float, other: float, name: str) -> None:
    listed = KNOWN.platform(name).prices
    assert listed is not None
    shorter, longer = sorted((one, other))
    assert listed.billed_ms(shorter) <= listed.billed_ms(longer)


@pytest.mark.parametrize(
    ("name", "seconds", "billed_ms"),
    [
        ("aws-lambda", 1.2345, 1235),
        ("cloud-run", 1.2345, 1300),
        ("fargate", 1.2345, 60_000),
        ("fargate", 61.2, 62_000),
        ("azure-containers", 1.2345, 2000),
        ("vm-p3-2xlarge", 1.2345, 60_000),
        ("alibaba-fc", 1.2345, 1235),
    ],
)
def test_each_platform_rounds_in_its_way(name: str, seconds: float, billed_ms: int) -> None:
    listed = KNOWN.platform(name).prices
    assert listed is not None
    assert listed.billed_ms(seconds) == billed_ms


def test_an_hour_has_3600_seconds() -> None:
    hourly = of(PriceFigures(usd_per_gb_hour=3.6, usd_per_vcpu_hour=7.2, usd_per_gpu_hour=36), 2)
    assert hourly is not None
    assert hourly.usd_for_1_s(2048, 3) == pytest.approx(2 * 0.001 + 3 * 0.002 + 2 * 0.01)
    machine = of(PriceFigures(usd_per_machine_hour=3.6))
    assert machine is not None
    assert machine.usd_for_1_s(2048, 3) == pytest.approx(0.001)


def test_a_gpu_that_a_function_does_not_have_costs_nothing() -> None:
    found = of(PriceFigures(usd_per_gb_s=1, usd_per_gpu_hour=3600))
    assert found is not None
    assert found.usd_for_1_s(1024, 1) == 1


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (PriceFigures(usd_per_vcpu_s=1, usd_per_vcpu_hour=1), "p prices vCPUs in two ways"),
        (PriceFigures(usd_per_gb_s=1, usd_per_cu=1, cu_per_gb_s=1), "p prices memory in two ways"),
        (PriceFigures(cu_per_gb_s=1), "but no usd_per_cu"),
    ],
)
def test_a_price_is_given_once(figures: PriceFigures, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        of(figures)


def test_without_a_price_of_time_there_is_no_list() -> None:
    assert of(PriceFigures(usd_per_request=1, billing_step_ms=1)) is None
