"""KubeML's tables 4.3 to 4.5 in both readings of Lambda's price, and what they then say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from benchmarks.parts.papers.formulas.kubeml import Reading, cluster_usd, functions_usd

from dayfly.catalogue.lookup import Catalogue


@dataclass(frozen=True)
class Table:
    """Functions, their seconds and invocations, GB and price for its duration; the cluster's."""

    model: str
    functions: int
    run_s: float
    invocations: int
    memory_gb: float
    usd_per_duration: float
    machine_usd_per_hour: float
    cluster_run_s: float

    def lambda_usd(self, reading: Reading) -> float:
        """For time alone, as the tables have it."""
        return self._lambda_usd(reading)[0]

    def invocations_usd(self) -> float:
        """What is left out."""
        return self._lambda_usd(Reading.AS_PRINTED)[1]

    def kubeml_usd(self) -> float:
        """Two K80, and the cluster's fee."""
        return cluster_usd(
            self.cluster_run_s,
            machine_usd_per_hour=self.machine_usd_per_hour,
            gpus=2,
            gpu_usd_per_hour=0.45,
            cluster_usd_per_hour=0.1,
        )

    def _lambda_usd(self, reading: Reading) -> tuple[float, float]:
        return functions_usd(
            self.functions,
            self.run_s,
            self.invocations,
            usd_per_duration=self.usd_per_duration,
            usd_per_invocation=2e-7,
            reading=reading,
        )


LENET = Table("LeNet", 8, 263.56, 240, 1.5, 2.5e-6, 0.38, 69.3)
RESNET34 = Table("ResNet34", 8, 17_326, 320, 3.0, 5e-6, 0.76, 470.77)
VGG16 = Table("VGG16", 4, 38_409, 160, 3.0, 5e-6, 0.76, 1035)
TABLES = (LENET, RESNET34, VGG16)


def test_as_printed() -> None:
    """$0.00527, $0.69 and $0.768; invocations are next to nothing."""
    said = [f"{table.lambda_usd(Reading.AS_PRINTED):.3g}" for table in TABLES]
    assert said == ["0.00527", "0.693", "0.768"]
    assert [table.invocations_usd() for table in TABLES] == pytest.approx([48e-6, 64e-6, 32e-6])


def test_as_aws_charges() -> None:
    """$0.0527, $6.93 and $7.68."""
    said = [f"{table.lambda_usd(Reading.PER_100_MS):.3g}" for table in TABLES]
    assert said == ["0.0527", "6.93", "7.68"]


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_the_catalogues_price_is_that_of_100_ms(table: Table) -> None:
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
        reading: [table.lambda_usd(reading) / table.kubeml_usd() for table in TABLES]
        for reading in Reading
    }
    assert [f"{one:.1f}" for one in ratios[Reading.AS_PRINTED]] == ["0.2", "3.0", "1.5"]
    assert [f"{one:.1f}" for one in ratios[Reading.PER_100_MS]] == ["2.0", "30.1", "15.2"]
