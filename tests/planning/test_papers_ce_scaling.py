"""CE-scaling's own numbers, and its equations against dayfly's schedules in virtual time."""

from __future__ import annotations

import pytest
from benchmarks.parts.papers.formulas.ce_scaling import (
    epoch_s,
    epoch_usd,
    halving_shares,
    minutes_usd,
    requests_usd,
    server_sync_s,
    stateless_sync_s,
    steps,
)
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.models import MODELS, on_meta, parameters_of
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.collectives.k_reduce import k_reduce_requests
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.virtual import Link, finish_s, simulate
from tests.collectives.timing import stated

RATE = 10.0
functions = st.integers(2, 12)


@given(functions, st.floats(0, 1))
def test_equation_3_is_all_transfers_of_all_reduce_one_after_another(
    n: int, latency: float
) -> None:
    """3n - 2 of them. Each function has a line of its own here, so they are done much earlier."""
    schedules = [COLLECTIVES["all-reduce"].schedule(rank, n, 60) for rank in range(n)]
    link = Link(up_bytes_per_s=RATE, down_bytes_per_s=RATE, latency_s=latency)
    times = simulate(schedules, link, itemsize=1)
    moved = [one for timed in times for one in timed if one.op.name is not None]
    one_after_another_s = sum(one.done_s - one.start_s for one in moved)
    said_s = stateless_sync_s(n, 60, RATE, latency)
    assert one_after_another_s == pytest.approx(said_s)
    assert finish_s(times) <= said_s + 1e-9
    assert said_s == pytest.approx((3 * n - 2) * (60 / RATE + latency))


@given(functions)
def test_a_server_moves_two_models_more_than_equation_3_says(n: int) -> None:
    """One function's model is at the paper's server already; ours is nobody's."""
    cost = stated("push-pull", n, 15)
    models = (cost.bytes_up + cost.bytes_down - HEADER_BYTES * (cost.puts + cost.gets)) / 60
    assert models - server_sync_s(n, 60, 60.0, 0.0) == pytest.approx(2)
    assert server_sync_s(n, 60, RATE, 0.1) < stateless_sync_s(n, 60, RATE, 0.1)


@given(functions, st.floats(1, 100), st.floats(1, 10))
def test_more_bandwidth_is_never_slower_and_more_functions_read_less(
    n: int, rate: float, factor: float
) -> None:
    for sync_s in (stateless_sync_s, server_sync_s):
        assert sync_s(n, 60, rate * factor, 0.1) <= sync_s(n, 60, rate, 0.1)
        assert sync_s(n + 1, 60, rate, 0.1) > sync_s(n, 60, rate, 0.1)
    assert epoch_s(1e3, n, rate, 0.1, 5, 0.0) > epoch_s(1e3, n + 1, rate, 0.1, 5, 0.0)
    assert epoch_s(1e3, n, rate, 0.1, 5, 1.0) >= epoch_s(1e3, n, rate * factor, 0.1, 5, 1.0)


@given(functions, st.floats(1, 100), st.floats(1e-3, 1))
def test_an_epochs_computing_does_not_depend_on_its_steps(n: int, batch: float, u: float) -> None:
    """The correction of equation 2: as printed, k times the data would be computed."""
    data = 1e4
    k = steps(data, n, batch)
    computed_s = epoch_s(data, n, float("inf"), u, k, 0.0)
    assert computed_s == pytest.approx(k * batch * u)
    assert computed_s * n == pytest.approx(data * u)


def test_an_epoch_by_hand() -> None:
    """1000 bytes on 5 functions, 20 bytes a step: k = 10."""
    k = steps(1000, 5, 20)
    assert k == 10
    sync_s = stateless_sync_s(5, 60, RATE, 0.5)
    assert sync_s == 13 * 6.5
    took_s = epoch_s(1000, 5, 100.0, 0.01, k, sync_s)
    assert took_s == pytest.approx(2 + 2 + 845)
    by_request = requests_usd(k, 5, 1e-6)
    assert by_request == pytest.approx(10 * 52e-6)
    assert minutes_usd(took_s, 0.001) == pytest.approx((849 / 60 + 1) * 0.001)
    assert epoch_usd(5, 2e-7, took_s, 1e-5, by_request) == pytest.approx(1e-6 + 5 * 849e-5 + 520e-6)


@given(functions)
def test_equation_5_has_more_requests_than_all_reduce_makes(n: int) -> None:
    assert sum(k_reduce_requests(n, 1)) == 3 * n - 2 < 10 * n + 2


def test_every_store_of_table_1_has_a_price_of_its_kind() -> None:
    """By request: S3 and DynamoDB, which today's ElastiCache joined; by time: a machine."""
    for name in ("s3", "dynamodb", "elasticache", "s3-express"):
        store = Catalogue().store(name)
        assert store.usd_per_put is not None
        assert requests_usd(10, 5, store.usd_per_put) > 0
    machine = Catalogue().platform("vm-c5-9xlarge").prices
    assert machine is not None
    # An hour of it and the minute more that equation 5 counts: $1.53, and a sixtieth.
    assert minutes_usd(3600, 60 * machine.usd_for_1_s(1, 0)) == pytest.approx(1.53 * 61 / 60)


def test_table_2s_models_that_an_item_of_dynamodb_cannot_hold() -> None:
    """N/A for MobileNet, while logistic regression on Higgs fits."""
    most = Catalogue().store("dynamodb").item_max_bytes
    assert most is not None
    assert 4 * parameters_of(on_meta(MODELS["mobilenet_v1_32"].build)) > most
    assert most > 4 * (28 + 1)


def test_shares_of_stages_under_successive_halving() -> None:
    """Figure 3: of 5 stages the first three take 90% and the last 3%; "80%" of 14 is 75.0%."""
    five, fourteen = halving_shares(5), halving_shares(14)
    assert f"{sum(five[:3]):.0%}" == "90%"
    assert f"{five[-1]:.0%}" == "3%"
    assert f"{sum(fourteen[:2]):.1%}" == "75.0%"
    # Halving from 32 trials, as in figure 3.
    assert five == pytest.approx([trials / 62 for trials in (32, 16, 8, 4, 2)])
