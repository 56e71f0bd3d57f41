"""KubeML's tables 4.3 to 4.5 in both readings of Lambda's price, and what they then say."""

from __future__ import annotations

import pytest
from benchmarks.parts.papers.formulas.kubeml import Reading
from benchmarks.parts.papers.kubeml import COSTS, Cost

from dayfly.catalogue.lookup import Catalogue

LENET, RESNET34, VGG16 = COSTS


def test_as_printed() -> None:
    """$0.00527, $0.69 and $0.768; invocations are next to nothing."""
    said = [f"{table.lambda_usd(Reading.AS_PRINTED):.3g}" for table in COSTS]
    assert said == ["0.00527", "0.693", "0.768"]
    assert [table.functions_usd(Reading.AS_PRINTED)[1] for table in COSTS] == pytest.approx(
        [48e-6, 64e-6, 32e-6]
    )


def test_as_aws_charges() -> None:
    """$0.0527, $6.93 and $7.68."""
    said = [f"{table.lambda_usd(Reading.PER_100_MS):.3g}" for table in COSTS]
    assert said == ["0.0527", "6.93", "7.68"]


@pytest.mark.parametrize("table", COSTS, ids=lambda one: one.model)
def test_the_catalogues_price_is_that_of_100_ms(table: Cost) -> None:
    """Lambda's price by the second, for this memory, is ten times the tables' figure."""
    prices = Catalogue().platform("aws-lambda").prices
    assert prices is not None
    second_usd = prices.usd_for_1_s(1024 * table.memory_gb, 0.0)
    assert second_usd == pytest.approx(10 * table.usd_per_duration, rel=1e-4)


def test_kubemls_own_cost() -> None:
    """$0.23 and $0.506 as printed. LeNet's are $0.02657, where table 4.3 has $0.02676."""
    assert f"{RESNET34.kubeml_usd():.2f}" == "0.23"
    assert f"{VGG16.kubeml_usd():.3f}" == "0.506"
    assert f"{LENET.kubeml_usd():.5f}" == "0.02657"


def test_the_conclusion_for_small_networks_turns_around() -> None:
    """As printed, LeNet is five times cheaper on Lambda; in truth, twice as dear."""
    ratios = {
        reading: [table.lambda_usd(reading) / table.kubeml_usd() for table in COSTS]
        for reading in Reading
    }
    assert [f"{one:.1f}" for one in ratios[Reading.AS_PRINTED]] == ["0.2", "3.0", "1.5"]
    assert [f"{one:.1f}" for one in ratios[Reading.PER_100_MS]] == ["2.0", "30.1", "15.2"]
