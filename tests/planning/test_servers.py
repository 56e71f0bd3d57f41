"""Servers as stores: what they carry and cost, and which types and numbers are worth a look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import MeteredInvocation, bill
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.catalogued import over_store
from dayfly.planning.configuration import Configuration
from dayfly.planning.plan import Prediction
from dayfly.planning.predict import predict
from dayfly.planning.servers import choices, held_bytes
from dayfly.runs.choosing.choice import choice_of, places
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.targets import TargetQuery, targets_of_profiles
from tests.choose.lambda_by_hand import job

KNOWN = Catalogue()
LAMBDA = KNOWN.platform("aws-lambda")


def predicted(store: str, workers: int, *, most_simulated: int = 64) -> Prediction:
    """Of 90 MB that push-pull sums."""
    facts = KNOWN.store(store)
    c = Configuration(
        workers=workers,
        replicas=workers,
        memory_mib=(4096,),
        collective="push-pull",
        batch_size=64,
    )
    profile = over_store(job(3, 30.0), LAMBDA, facts)
    return predict(profile, c, LAMBDA, facts, most_simulated=most_simulated)


def test_a_machine_is_a_store() -> None:
    one, two = KNOWN.store("vm-m5-large"), KNOWN.store("vm-m5-large:2")
    machine = KNOWN.platform("vm-m5-large")
    assert one.bytes_per_s == machine.uplink_bytes_per_s == 0.75e9 / 8
    assert (one.server_vcpus, one.server_memory_mib) == (2, 8192)
    assert (one.server_step_s, one.server_min_s) == (1, 60)
    assert (two.name, two.servers, two.bytes_per_s) == ("vm-m5-large:2", 2, 2 * 0.75e9 / 8)
    assert KNOWN.rows("stores", "vm-m5-large")["server_vcpus"].source.startswith("FasDL")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("s3:2", "s3 is no server of which there may be 2: leave the number out"),
        ("vm-m5-large:0", "0 servers vm-m5-large: give 1 to 1000"),
        ("vm-m5-large:two", "'two' is no number of servers: give vm-m5-large:2"),
        ("vm-p3-2xlarge", "the catalogue has no store 'vm-p3-2xlarge'"),  # it has a GPU
    ],
)
def test_what_is_no_server(name: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        KNOWN.store(name)


def test_servers_are_billed_by_time() -> None:
    """A machine by the second, a minute at least; a node of a cache by the hour begun."""
    machine, cache = KNOWN.store("vm-m5-large:3"), KNOWN.store("elasticache-r5-large")
    assert machine.servers_usd(30.0) == pytest.approx(3 * 0.096 / 60)
    assert machine.servers_usd(90.2) == pytest.approx(3 * 0.096 * 91 / 3600)
    assert cache.servers_usd(30.0) == pytest.approx(0.216)
    assert cache.servers_usd(3600.5) == pytest.approx(2 * 0.216)
    used = MeteredInvocation(
        function="worker-0", attempt=0, memory_mib=1024, init_s=1.0, run_s=89.2, outcome="returned"
    )
    billed = bill([used], LAMBDA, machine)
    assert billed.by_kind["store_servers"] == machine.servers_usd(90.2)
    assert bill([used], LAMBDA, KNOWN.store("s3")).by_kind["store_servers"] == 0.0


@pytest.mark.parametrize("most_simulated", [64, 0])
def test_workers_share_the_bandwidth_of_servers(most_simulated: int) -> None:
    """Of 8 workers 8 x 90 MB pass 93.75 MB/s each way: 7.7 s, and half over two servers."""
    each = [
        predicted(store, 8, most_simulated=most_simulated)
        for store in ("vm-m5-large", "vm-m5-large:2")
    ]
    one, two = (said.step_s - said.breakdown["compute"] for said in each)
    assert one == pytest.approx(8 * 90e6 / 93.75e6, rel=0.08)
    assert one / two == pytest.approx(2.0, rel=0.05)


def test_servers_without_room_for_a_step_are_refused() -> None:
    small = StoreFacts(
        name="vm-small", server_memory_mib=512, usd_per_server_hour=0.1, latency_s=0.001
    )
    c = Configuration(
        workers=8, replicas=8, memory_mib=(4096,), collective="push-pull", batch_size=64
    )
    profile = over_store(job(3, 30.0), LAMBDA, small)
    assert held_bytes(profile, 8) == pytest.approx(9 * 90e6, rel=0.001)
    with pytest.raises(RequestError, match=r"needs 772 MiB at the servers, .* has 512 MiB: take"):
        predict(profile, c, LAMBDA, small)
    predict(profile, c, LAMBDA, small.of_servers(2))


def server(name: str, rate: float, memory_mib: int, usd: float, **more: float) -> StoreFacts:
    return StoreFacts(
        name=name,
        bytes_per_s=rate,
        server_memory_mib=memory_mib,
        usd_per_server_hour=usd,
        latency_s=0.001,
        **more,
    )


def test_choices_that_another_one_dominates_are_left_out() -> None:
    """Two wide servers are as wide as five narrow ones, and cheaper; a large one is for what takes
    much memory alone; one that is billed otherwise may be cheaper for some time."""
    narrow, wide = server("narrow", 1e8, 1000, 0.1), server("wide", 3e8, 1000, 0.2)
    large, hourly = server("large", 1e8, 4000, 0.15), server("hourly", 1e8, 1000, 0.1)
    hourly = replace(hourly, server_step_s=3600.0)

    def names(*types: StoreFacts, mib: int = 100) -> list[str]:
        return [one.name for one in choices(types, 5e8, mib * 2**20)]

    assert names(narrow, wide) == ["narrow", "wide", "wide:2"]
    # Where memory counts, three narrow ones have more than a wide one, and cost less than two.
    assert names(narrow, wide, mib=1800) == ["narrow", "narrow:2", "narrow:3", "wide", "wide:2"]
    assert names(narrow, large, wide) == ["narrow", "wide", "wide:2"]
    assert "large" in names(narrow, large, wide, mib=3800)
    assert names(narrow, hourly)[-5:] == ["hourly", *(f"hourly:{n}" for n in (2, 3, 4, 5))]


def test_type_and_number_are_chosen() -> None:
    """Of all m5 and c5n: what carries little for a few functions, and more for many."""
    profile = job(2, 30.0, epochs=40)
    query = PlanQuery(workers=12, goal=Goal(weights=(0.0, 1.0)), time_limit_s=5.0)
    asked = TargetQuery(stores=("s3", "vm-*"), most_workers=query.workers, known=KNOWN)
    targets = targets_of_profiles([profile], asked)
    found = choice_of(targets, query)
    assert len(places(targets)) == 2
    store = found.chosen.plan.candidate.target.store
    assert store is not None
    assert store.rented
    assert found.chosen.plan.prediction.by_kind["store_servers"] > 0
    assert [one.store for one in found.stores] == ["s3"]
    assert found.stores[0].option is not None  # there it sums as is usual there
    assert found.chosen.seconds < found.stores[0].option.prediction.total_s
    lone = [one for one in found.front.points if one.plan.candidate.settings.workers == 1]
    assert {one.plan.candidate.target.profile.channel for one in lone} <= {"s3"}
