"""Prices come from data files, each figure with its source and date."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.prices import FunctionPrices, function_prices
from dayfly.errors import RequestError

LISTS = [f for f in resources.files("dayfly.catalogue").iterdir() if f.name.endswith(".toml")]


def prices(step_ms: int) -> FunctionPrices:
    return FunctionPrices(
        name="p", usd_per_gb_s=1, usd_per_request=1, billing_step_ms=step_ms, mib_per_vcpu=1
    )


def test_aws_lambda() -> None:
    assert function_prices("aws-lambda") == FunctionPrices(
        name="aws-lambda",
        usd_per_gb_s=0.0000166667,
        usd_per_request=0.0000002,
        billing_step_ms=1,
        mib_per_vcpu=1769,
    )


@pytest.mark.parametrize("file", LISTS, ids=lambda file: file.name)
def test_every_figure_has_its_source_and_date(file) -> None:
    tree = tomllib.loads(file.read_text())
    assert tree.pop("name") == file.name.removesuffix(".toml")
    for figure in tree.values():
        assert sorted(figure) == ["as_of", "source", "value"]
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", figure["as_of"])
        assert figure["source"]


@pytest.mark.parametrize(
    "name", ["", "azure", "../aws-lambda", "aws-lambda.toml", "/etc/passwd", "-"]
)
def test_a_price_list_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as refused:
        function_prices(name)
    assert str(refused.value) == (
        f"the catalogue has no price list {name!r}: give one of aws-lambda"
    )


@pytest.mark.parametrize(
    ("seconds", "step_ms", "billed_ms"),
    [
        (0.0, 1, 1),
        (0.0001, 1, 1),
        (0.001, 1, 1),
        (0.0011, 1, 2),
        (0.1 + 0.2, 1, 300),
        (1.0000000001, 1, 1000),
        (900.0, 1, 900_000),
        (0.0, 100, 100),
        (0.1, 100, 100),
        (0.101, 100, 200),
    ],
)
def test_billed_time_is_rounded_up(seconds: float, step_ms: int, billed_ms: int) -> None:
    assert prices(step_ms).billed_ms(seconds) == billed_ms


@given(milliseconds=st.integers(1, 10**7), step_ms=st.sampled_from([1, 10, 100, 1000]))
def test_whole_milliseconds_are_billed_as_they_are(milliseconds: int, step_ms: int) -> None:
    """Seconds as floats are a little off; that is not a millisecond more."""
    billed = prices(step_ms).billed_ms(milliseconds / 1000)
    assert billed == -(-milliseconds // step_ms) * step_ms
