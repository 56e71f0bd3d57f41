"""The bill: billed time, memory, vCPUs, requests and what went through a store, in dollars."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import Bill, FunctionUse, MeteredInvocation, StoreTraffic, bill
from dayfly.errors import RequestError

KNOWN = Catalogue()
AWS = KNOWN.platform("aws-lambda")
MOVED = {
    "worker-0": StoreTraffic(puts=100, gets=70, requests=180, bytes_up=2**30, bytes_down=2**29),
    "worker-1": StoreTraffic(puts=10, gets=20, requests=30, bytes_up=1000, bytes_down=0),
}


def used(
    init_s: float, run_s: float, memory_mib: int | None = 1024, **more: Any
) -> MeteredInvocation:
    given: dict[str, Any] = {"function": "worker-0", "attempt": 0, "outcome": "returned", **more}
    return MeteredInvocation(memory_mib=memory_mib, init_s=init_s, run_s=run_s, **given)


def test_a_known_case() -> None:
    """An hour of 1769 MiB and 1001 ms of 512 MiB: 6219.1 GB-s and a little, two requests."""
    found = bill([used(10, 3590, 1769), used(0.2, 0.8005, 512)], AWS)
    assert found.billed_s == 3601.001
    assert found.gb_s == pytest.approx(3600 * 1769 / 1024 + 1.001 / 2)
    assert found.requests == 2
    assert found.compute_usd == pytest.approx(0.10366, abs=5e-6)
    assert found.requests_usd == pytest.approx(0.0000004)
    assert found.cost_usd == pytest.approx(0.10366, abs=5e-6)
    assert found.price_list == "aws-lambda"
    assert [row["billed_ms"] for row in found.invocations] == [3_600_000, 1001]


def test_each_invocation_is_priced_by_the_list_that_it_ran_under() -> None:
    """Generations of a run may have lists of their own; what names none has the bill's."""
    own = [used(0.1, 9.9, 2048, vcpus=2.0, price_list="cloud-run"), used(0, 7, price_list=AWS.name)]
    found = bill([used(0, 5), *own], AWS, lists=KNOWN.platform)
    alone = [
        bill([used(0, 5)], AWS),
        bill([replace(own[0], price_list=None)], KNOWN.platform("cloud-run")),
        bill([used(0, 7)], AWS),
    ]
    assert found.cost_usd == pytest.approx(sum(one.cost_usd for one in alone))
    assert found.price_list == "aws-lambda and cloud-run"
    assert [row["price_list"] for row in found.invocations] == [AWS.name, "cloud-run", AWS.name]
    whole = bill([used(0, 5), *own], AWS)
    assert whole.price_list == AWS.name
    assert whole.cost_usd != found.cost_usd


def test_a_million_short_calls() -> None:
    """120 ms at 1536 MiB a million times: 180,000 GB-s for 3.00 dollars, and 0.20 of requests."""
    one = bill([used(0.02, 0.1, 1536)], AWS)
    assert one.gb_s * 1e6 == pytest.approx(180_000)
    assert one.compute_usd * 1e6 == pytest.approx(3.0, abs=0.001)
    assert one.requests_usd * 1e6 == pytest.approx(0.2)


def test_kubemls_cost_of_lambda_is_ten_times_what_it_prints() -> None:
    """Table 4.3: eight functions of 1.5 GB for 263.56 s, invoked anew in each of 30 epochs, are
    printed as $0.00527 and cost ten times as much (docs/errata.md); requests add $0.000048."""
    calls = [used(0, 263.56 / 30, 1536, attempt=n) for n in range(240)]
    found = bill(calls, AWS)
    assert found.compute_usd == pytest.approx(0.0527, abs=1e-4)
    assert found.requests_usd == pytest.approx(0.000048)


def test_each_invocation_is_rounded_up_by_itself() -> None:
    """Initialisation is billed with the run, before rounding."""
    found = bill([used(0.0004, 0.0004)] * 10, AWS)
    assert found.billed_s == 0.010


def test_initialisation_is_billed_and_shown_apart() -> None:
    found = bill([used(2, 6)], AWS)
    assert found.billed_s == 8
    assert found.init_s == 2
    kinds = found.by_kind
    assert kinds["initialisation"] == pytest.approx(2 * 1.66667e-5)
    assert kinds["compute"] == pytest.approx(6 * 1.66667e-5)
    assert found.compute_usd == pytest.approx(kinds["compute"] + kinds["initialisation"])


def test_measuring_the_job_is_a_line_of_its_own() -> None:
    """Each function that measured is rounded and priced in its own size."""
    measuring = [
        FunctionUse(memory_mib=2048, init_s=0.5, run_s=1.5001),
        FunctionUse(memory_mib=1024, init_s=0.5, run_s=0.5),
    ]
    plain, found = (bill([used(2, 6)], AWS, profiling=one) for one in (None, measuring))
    assert found.by_kind["profiling"] == pytest.approx((2 * 2.001 + 1) * 1.66667e-5 + 2 * 2e-7)
    assert found.profiling_s == 3.001
    assert found.cost_usd == pytest.approx(plain.cost_usd + found.by_kind["profiling"])
    assert (found.billed_s, found.requests) == (plain.billed_s, plain.requests)
    assert "profiling" not in plain.by_kind
    assert bill([used(2, 6)], AWS, profiling=()).by_kind["profiling"] == 0.0


def test_what_a_minimum_adds_is_compute() -> None:
    """Fargate bills a minute at least: 2 s of it are initialisation."""
    found = bill([used(2, 1, 2048)], KNOWN.platform("fargate"))
    second_usd = (0.25 * 0.04048 + 2 * 0.004445) / 3600
    assert found.by_kind["initialisation"] == pytest.approx(2 * second_usd)
    assert found.by_kind["compute"] == pytest.approx(58 * second_usd)
    assert found.billed_s == 60


@pytest.mark.parametrize(
    ("name", "memory_mib", "billed_mib", "vcpus", "usd"),
    [
        ("aws-lambda", 1000, 1000, 1000 / 1769, 60 * 1000 / 1024 * 1.66667e-5 + 2e-7),
        ("aws-lambda", None, 1769, 1, 60 * 1769 / 1024 * 1.66667e-5 + 2e-7),
        ("alibaba-fc", 4096, 4096, 1, (60 * (1 + 4 * 0.15) + 0.0075) * 2e-5),
        ("alibaba-fc", 4097, 4160, 4160 / 4096, None),
        ("cloud-run", 5000, 5000, 2, 60 * (2 * 1.8e-5 + 5000 / 1024 * 2e-6)),
        ("cloud-run", None, 4096, 1, 60 * (1.8e-5 + 4 * 2e-6)),
        ("fargate", 1500, 2048, 0.25, (0.25 * 0.04048 + 2 * 0.004445) / 60),
        ("fargate", None, 8192, 1, (0.04048 + 8 * 0.004445) / 60),
        ("azure-containers", 6144, 6144, 4, (4 * 0.0405 + 6 * 0.00445) / 60),
        ("azure-containers-k80", 6144, 6144, 4, 0.5121 / 60),
        ("azure-containers", None, 2048, 1, (0.0405 + 2 * 0.00445) / 60),
        ("vm-c5-9xlarge", 1000, 73728, 36, 1.53 / 60),
        ("vm-c5-9xlarge", None, 73728, 36, 1.53 / 60),
        ("vm-nc6", None, 57344, 6, 0.9 / 60),
    ],
)
def test_a_minute_everywhere(
    name: str, memory_mib: int | None, billed_mib: int, vcpus: float, usd: float | None
) -> None:
    """In the next size that can be had, with the vCPUs that come with it."""
    found = bill([used(1, 59, memory_mib)], KNOWN.platform(name))
    (row,) = found.invocations
    assert row["memory_mib"] == billed_mib
    assert row["vcpus"] == pytest.approx(vcpus)
    assert found.vcpu_s == pytest.approx(60 * vcpus)
    assert found.gb_s == pytest.approx(60 * billed_mib / 1024)
    if usd is not None:
        assert found.cost_usd == pytest.approx(usd)


def test_vcpus_that_were_asked_for_are_billed() -> None:
    found = bill([used(0, 100, 4096, vcpus=2.0)], KNOWN.platform("cloud-run"))
    assert found.cost_usd == pytest.approx(100 * (2 * 1.8e-5 + 4 * 2e-6))


def test_a_functions_row_has_all_of_its_invocations() -> None:
    calls = [used(0.1, 0.9), used(0.1, 1.9, attempt=1), used(0.5, 0.5, function="worker-1")]
    found = bill(calls, AWS, moved=MOVED)
    first, second = found.functions
    assert (first["function"], first["invocations"], first["billed_ms"]) == ("worker-0", 2, 3000)
    assert (second["function"], second["invocations"], second["billed_ms"]) == ("worker-1", 1, 1000)
    assert (first["puts"], first["gets"], first["requests"]) == (100, 70, 180)
    assert (first["bytes_up"], first["init_ms"]) == (2**30, 200)


def test_functions_are_in_order_of_their_number() -> None:
    calls = [used(0, 1, function=f"worker-{rank}") for rank in (10, 2, 0)]
    names = [row["function"] for row in bill(calls, AWS).functions]
    assert names == ["worker-0", "worker-2", "worker-10"]


def test_a_store_is_billed_by_its_own_list() -> None:
    """Questions whether something is there are billed as gets."""
    found = bill([used(0, 1)], AWS, KNOWN.store("s3"), MOVED)
    assert found.store == "s3"
    assert found.by_kind["store_requests"] == pytest.approx(110 * 5e-6 + 100 * 4e-7)
    assert found.by_kind["store_transfer"] == found.by_kind["store_storage"] == 0
    express = bill([used(0, 1)], AWS, KNOWN.store("s3-express"), MOVED)
    assert express.by_kind["store_transfer"] == pytest.approx(0.0032 + 0.0003, rel=1e-5)
    assert express.functions[0]["store_transfer_usd"] == pytest.approx(0.0032 + 0.0003)


def test_storage_is_billed_as_long_as_functions_ran() -> None:
    """Two functions side by side for an hour are an hour."""
    calls = [used(0, 1800), used(0, 1800, attempt=1), used(0, 3600, function="worker-1")]
    found = bill(calls, AWS, KNOWN.store("elasticache"), MOVED, stored_bytes=2**30)
    assert found.by_kind["store_storage"] == pytest.approx(0.084)


def test_without_a_store_its_part_is_counted_and_costs_nothing() -> None:
    found = bill([used(0, 1)], AWS, moved=MOVED, stored_bytes=2**30)
    assert found.store is None
    assert sum(usd for kind, usd in found.by_kind.items() if kind.startswith("store")) == 0
    assert any("name a store" in note for note in found.notes)


def test_what_the_platform_would_not_have_done_is_said() -> None:
    calls = [used(0, 1200), used(0, 1, 20480, function="worker-1")]
    found = bill(calls, AWS)
    assert found.notes == (
        "worker-0: aws-lambda ends functions after 900 s, so none lives 1200 s: give a lifetime "
        "of at most 900 s",
        "worker-1: aws-lambda has no functions of 20480 MiB: give 128 to 10240 MiB in steps of 1",
    )
    assert found.gb_s == pytest.approx(1200 + 20), "priced all the same"


def test_the_users_own_figures_are_named() -> None:
    mine = replace(AWS, overridden=("usd_per_gb_s",))
    store = replace(KNOWN.store("s3"), overridden=("usd_per_put",))
    found = bill([used(0, 1)], mine, store)
    assert found.overridden == ("aws-lambda: usd_per_gb_s", "s3: usd_per_put")
    assert found.dump()["overridden"] == found.overridden
    assert bill([used(0, 1)], AWS).overridden == ()


def test_what_has_no_prices_is_refused() -> None:
    with pytest.raises(RequestError, match="no prices of aws-lambda"):
        bill([used(0, 1)], replace(AWS, prices=None))
    with pytest.raises(RequestError, match="no prices of store alibaba-oss"):
        bill([used(0, 1)], AWS, KNOWN.store("alibaba-oss"))


def adds_up(found: Bill) -> None:
    storage_usd = found.by_kind["store_storage"]
    by_function = sum(row["cost_usd"] for row in found.functions)
    by_invocation = sum(row["cost_usd"] for row in found.invocations)
    store_usd = found.by_kind["store_requests"] + found.by_kind["store_transfer"]
    assert by_function + storage_usd == pytest.approx(found.cost_usd)
    assert by_invocation + store_usd + storage_usd == pytest.approx(found.cost_usd)
    assert found.compute_usd + found.requests_usd + store_usd + storage_usd == pytest.approx(
        found.cost_usd
    )
    for key, whole in (("gb_s", found.gb_s), ("vcpu_s", found.vcpu_s)):
        assert sum(row[key] for row in found.functions) == pytest.approx(whole)
        assert sum(row[key] for row in found.invocations) == pytest.approx(whole)
    assert all(usd >= 0 for usd in found.by_kind.values())


seconds = st.floats(0, 10_000)
invocation = st.builds(
    MeteredInvocation,
    function=st.sampled_from(["worker-0", "worker-1", "worker-2"]),
    attempt=st.integers(0, 3),
    memory_mib=st.none() | st.integers(1, 200_000),
    init_s=seconds,
    run_s=seconds,
    outcome=st.just("returned"),
    vcpus=st.none() | st.floats(0.1, 100),
)


@given(
    st.lists(invocation, max_size=6),
    st.sampled_from(KNOWN.platforms()),
    st.sampled_from([None, "s3", "s3-express", "dynamodb", "elasticache"]),
    st.integers(0, 2**40),
)
def test_the_rows_are_the_whole(
    calls: list[MeteredInvocation], name: str, store: str | None, stored_bytes: int
) -> None:
    facts = None if store is None else KNOWN.store(store)
    found = bill(calls, KNOWN.platform(name), facts, MOVED, stored_bytes)
    adds_up(found)
    for call, row in zip(calls, found.invocations, strict=True):
        assert row["billed_ms"] >= (call.init_s + call.run_s) * 1000 - 1e-5
        assert 0 <= row["init_ms"] <= row["billed_ms"]
        assert row["memory_mib"] >= (call.memory_mib or 0)


def test_what_bill_json_had_it_has() -> None:
    dumped = bill([used(0.1, 0.2)], AWS).dump()
    assert {
        "cost_usd", "price_list", "billed_s", "gb_s", "requests", "compute_usd", "requests_usd",
        "invocations",
    } <= dumped.keys()  # fmt: skip
    assert {
        "function", "attempt", "memory_mib", "init_s", "run_s", "outcome", "billed_ms", "gb_s",
        "cost_usd",
    } <= dumped["invocations"][0].keys()  # fmt: skip


def test_nothing_used_costs_nothing() -> None:
    assert bill([], AWS).cost_usd == bill([], AWS).billed_s == 0
