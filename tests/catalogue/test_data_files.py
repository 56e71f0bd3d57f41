"""Every built-in data file: read by the loader, sourced, dated, and sane in its units."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.rows import Row
from dayfly.errors import RequestError

KNOWN = Catalogue()
ENTRIES = [("platforms", name) for name in KNOWN.platforms()]
ENTRIES += [("stores", name) for name in KNOWN.stores()]
#: Bounds outside which a unit was mistaken, by how a row's name ends; the first counts.
UNITS = {
    "_mib": (1, 2**20),
    "_bytes": (128, 2**40),
    "bytes_per_s": (1e6, 1e11),
    "flops_per_s": (1e8, 1e14),
    "ts_per_s": (1, 1e7),
    "_ms": (1, 3_600_000),
    "_s": (0.001, 10**6),
    "_hour": (0.001, 50),
}


def test_what_the_issue_names_is_there() -> None:
    assert set(KNOWN.platforms()) >= {
        "aws-lambda",
        "alibaba-fc",
        "cloud-run",
        "fargate",
        "azure-containers",
        "vm-c5-9xlarge",
        "vm-m5-large",
        "vm-p2-xlarge",
        "vm-p3-2xlarge",
        "vm-nc6",
    }
    assert set(KNOWN.stores()) >= {"s3", "s3-express", "dynamodb", "elasticache"}


def every_row() -> Iterator[tuple[str, Row, str]]:
    """Key, row, and where it stands, of all files."""
    for folder, name in ENTRIES:
        rows = KNOWN.rows(folder, name)
        assert rows, name
        for key, row in rows.items():
            yield key, row, f"{folder}/{name}: {key}"


def test_every_value_has_a_source_and_a_month() -> None:
    for _, row, where in every_row():
        assert len(row.source) > 8, where
        assert "2017-01" <= row.as_of <= "2026-12", where
        assert not row.own, where


def test_units_are_sane() -> None:
    for key, row, where in every_row():
        if key.startswith("usd_") and not key.endswith(("_hour", "_month")):
            low, high = 1e-10, 0.01
        else:
            fits = [bounds for end, bounds in UNITS.items() if key.endswith(end)]
            low, high = fits[0] if fits else (0, float("inf"))
        if isinstance(row.value, (int, float)):
            assert low <= row.value <= high, where


@pytest.mark.parametrize("name", KNOWN.platforms())
def test_more_memory_never_gives_fewer_vcpus_or_costs_less(name: str) -> None:
    platform = KNOWN.platform(name)
    assert platform.prices is not None
    least, most = platform.memory_min_mib or 128, platform.memory_max_mib or 16384
    sizes = sorted({least, most, *range(least, most, 500)})
    for smaller, larger in pairwise(sizes):
        few, many = platform.vcpus(smaller), platform.vcpus(larger)
        assert few is not None
        assert many is not None
        assert 0 < few <= many <= (platform.vcpus_max or many)
        prices = platform.prices
        assert 0 < prices.usd_for_1_s(smaller, few) <= prices.usd_for_1_s(larger, many)


@pytest.mark.parametrize("name", KNOWN.platforms())
def test_the_size_with_one_vcpu_can_be_had(name: str) -> None:
    platform = KNOWN.platform(name)
    assert platform.one_vcpu_mib is not None
    platform.check(memory_mib=platform.next_size_mib(platform.one_vcpu_mib))
    if platform.machine_vcpus is None:
        assert platform.vcpus(platform.one_vcpu_mib) == max(1, platform.vcpus_min or 0)


@pytest.mark.parametrize("name", KNOWN.platforms())
def test_the_next_size_can_be_had_and_is_no_smaller(name: str) -> None:
    platform = KNOWN.platform(name)
    for asked in (1, 127, 600, 1769, 2049, 5000, 31000, 70000):
        size = platform.next_size_mib(asked)
        assert size >= asked
        if asked <= (platform.memory_max_mib or asked):
            platform.check(memory_mib=size)
        else:
            assert size >= asked
            with pytest.raises(RequestError):
                platform.check(memory_mib=size)


@pytest.mark.parametrize("name", KNOWN.platforms())
def test_a_gpu_is_whole(name: str) -> None:
    """Its type and number go together."""
    platform = KNOWN.platform(name)
    assert (platform.gpu is None) == (platform.gpus is None)


def test_lambda() -> None:
    found = KNOWN.platform("aws-lambda")
    assert (found.memory_min_mib, found.memory_max_mib, found.memory_step_mib) == (128, 10240, 1)
    assert (found.lifetime_max_s, found.payload_sync_bytes) == (900, 6 * 2**20)
    assert found.vcpus(1769) == 1
    assert found.vcpus(885) == pytest.approx(0.5, abs=1e-3)
    assert found.up_bytes_per_s(512) == found.down_bytes_per_s(10240) == 70e6
    assert found.prices is not None
    assert found.prices.usd_for_1_s(1024, 1) == 1.66667e-5
    assert found.prices.usd_per_request == 2e-7


def test_a_hydrozoa_worker_costs_what_its_table_says() -> None:
    """One K80, 4 vCPUs and 6 GB: 0.5121 dollars an hour (docs/errata.md)."""
    found = KNOWN.platform("azure-containers-k80")
    assert found.prices is not None
    assert found.vcpus(6144) == 4
    assert found.prices.usd_for_1_s(6144, 4) * 3600 == pytest.approx(0.5121)


def test_functions_with_gpus_have_a_grid_of_their_own() -> None:
    one = KNOWN.platform("cloud-run-l4")
    assert [one.vcpu_choices(gib * 1024) for gib in (16, 24, 32)] == [(4, 6, 8), (6, 8), (8,)]
    assert one.billed_size(None) == (16384, 4)
    with pytest.raises(RequestError, match="no functions of 2048 MiB: give 16384 to 32768 MiB"):
        one.check(memory_mib=2048)
    with pytest.raises(RequestError, match="no functions of 2 vCPUs: give 4 to 8"):
        one.check(vcpus=2)
    k80, v100 = (KNOWN.platform(f"azure-containers-{gpu}") for gpu in ("k80", "v100"))
    assert k80.vcpu_choices(56 * 1024) == v100.vcpu_choices(112 * 1024) == (1, 2, 3, 4, 5, 6)
    with pytest.raises(RequestError, match="no functions of 58368 MiB: give at most 57344 MiB"):
        k80.check(memory_mib=57 * 1024)


def test_compute_units_are_dollars() -> None:
    """Alibaba's own example: 3 million calls of 0.2 s, 512 MB, 0.25 vCPU: 22,500 CU of calls,
    45,000 of memory and 150,000 of vCPUs."""
    prices = KNOWN.platform("alibaba-fc").prices
    assert prices is not None
    calls_usd = 3e6 * prices.usd_per_request
    time_usd = 3e6 * 0.2 * prices.usd_for_1_s(512, 0.25)
    assert calls_usd / 2e-5 == pytest.approx(22_500)
    assert time_usd / 2e-5 == pytest.approx(45_000 + 150_000)


def test_a_gpu_is_in_the_price() -> None:
    with_gpu = KNOWN.platform("alibaba-fc-t4").prices
    without = KNOWN.platform("alibaba-fc").prices
    assert with_gpu is not None
    assert without is not None
    difference = with_gpu.usd_for_1_s(4096, 1) - without.usd_for_1_s(4096, 1)
    assert difference == pytest.approx(16 * 2.1 * 2e-5)


def test_amazons_own_example_of_s3_express() -> None:
    """A million puts and nine million gets of 10 KB: 1.13, 0.27, 0.03 and 0.05 dollars."""
    store = KNOWN.store("s3-express")
    million = 10**6
    assert store.puts_usd(million, 10240 * million) == pytest.approx(1.13)
    assert store.gets_usd(9 * million, 9 * 10240 * million) == pytest.approx(0.27)
    moved_usd = store.transfer_usd(10240 * million, 9 * 10240 * million)
    assert moved_usd == pytest.approx(0.0305 + 0.0515, abs=1e-3)
    assert store.storage_usd(10 * 2**30, 730 * 3600) == pytest.approx(1.10)


def test_units_of_dynamodb() -> None:
    """A put of 1 KB is one unit, of a byte more two; a million bytes cannot be one item."""
    store = KNOWN.store("dynamodb")
    assert store.puts_usd(10, 10 * 1024) == pytest.approx(10 * 6.25e-7)
    assert store.puts_usd(10, 10 * 1025) == pytest.approx(20 * 6.25e-7)
    assert store.puts_usd(1, 10) == pytest.approx(6.25e-7)
    assert store.gets_usd(1, 4097) == pytest.approx(2 * 1.25e-7)
    assert store.gets_usd(0, 0) == 0
    assert store.puts_usd(1, 409_600 * 3) == pytest.approx(3 * 400 * 6.25e-7)


def test_elasticache_keeps_100_mb_at_least() -> None:
    store = KNOWN.store("elasticache")
    assert store.storage_usd(0, 3600) == store.storage_usd(100 * 2**20, 3600) > 0
    assert store.storage_usd(2**30, 3600) == pytest.approx(0.084)


def test_caps_of_whole_stores() -> None:
    assert KNOWN.store("alibaba-oss").bytes_per_s == 10e9 / 8
    assert KNOWN.store("s3").bytes_per_s is None
