"""Predictions of steps, epochs and runs, against arithmetic by hand and the collectives' forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.parts.papers.formulas.collectives import (
    all_reduce_s,
    k_reduce_s,
    pipelined_s,
    push_pull_s,
    scatter_reduce_s,
)
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.conditions import Conditions
from dayfly.planning.configuration import Configuration
from dayfly.planning.plan import Prediction
from dayfly.planning.predict import predict
from dayfly.planning.profile import Affine, Profile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.shaping import Rates
from tests.collectives.timing import stated
from tests.planning.by_hand import given, layer, profile, size, transfer

KNOWN = Catalogue()
AWS = KNOWN.platform("aws-lambda")
#: Seconds a layer and a sample, forward and backward.
PASS_S = 0.003
RATE = 10e6
#: 960 kB, so one bucket, in 3 or 4 splits of several chunks of 60 kB each way.
ONE = layer("only", 240_000)


def predicted(known: Profile, platform: Any = AWS, store: Any = None, **asked: Any) -> Prediction:
    values: dict[str, Any] = {
        "workers": 1,
        "memory_mib": (1024,),
        "batch_size": 40,
        "collective": "overlapped",
        **asked,
    }
    return predict(known, Configuration(**values), platform, store)


def over(latency_s: float, **more: Any) -> Profile:
    """One layer, functions behind a link with this latency."""
    way = transfer(RATE, latency_s)
    rates = Rates(up_bytes_per_s=RATE, down_bytes_per_s=RATE, latency_s=latency_s)
    return profile([ONE], size(1, up=way, down=way, rates=rates, **more))


def _stated(name: str, n: int, latency_s: float) -> float:
    line = {"rate": RATE, "latency_s": latency_s, "chunk_bytes": 2**16}
    return stated(name, n, 240_000, **line).seconds


S = 4 * 240_000.0
FORMS: Mapping[str, Callable[[int, float], float]] = {
    "all-reduce": lambda n, lat: all_reduce_s(S, n, RATE, lat),
    "scatter-reduce": lambda n, lat: scatter_reduce_s(S, n, RATE, lat),
    "k-reduce": lambda n, lat: k_reduce_s(S, n, 2, RATE, lat),
    "pipelined": lambda n, lat: pipelined_s(S, n, RATE, lat),
    "overlapped": lambda n, lat: _stated("overlapped", n, lat),
    "ring": lambda n, lat: _stated("ring", n, lat),
    "push-pull": lambda n, lat: push_pull_s(S, n, S / 14, RATE, lat),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("workers", [3, 4])
@pytest.mark.parametrize("latency_s", [0.0, 0.003])
def test_a_step_is_its_passes_and_the_closed_form_of_its_sum(
    name: str, workers: int, latency_s: float
) -> None:
    """But for headers, and for who gets how many of the samples that are not shared evenly."""
    aggregators = 2 if name == "k-reduce" else None
    found = predicted(
        over(latency_s),
        workers=workers,
        collective=name,
        aggregators=aggregators,
        batch_size=12 * workers,
    )
    assert found.step_s == pytest.approx(12 * PASS_S + FORMS[name](workers, latency_s), rel=0.03)


def test_one_worker_does_one_thing_after_another() -> None:
    """Data, forward and backward, the optimizer by its bytes, the rest: 26 whole steps."""
    known = profile(
        [layer("a", 1000), layer("b", 500)],
        size(2, data=Affine(0.01, 0.0001), apply=Affine(0.002, 1e-6), step_s=given(0.001)),
        samples=1040,
    )
    found = predicted(known)
    step_s = 0.01 + 40 * 0.0001 + 2 * 40 * PASS_S + 0.002 + 6000 * 1e-6 + 0.001
    assert found.step_s == pytest.approx(step_s)
    assert found.breakdown == {
        "compute": pytest.approx(0.014 + 0.24),
        "overhead": pytest.approx(0.009),
        "transfer": 0.0,
        "sync": 0.0,
    }
    # 100 samples in six blocks of 16 and one of 4, forward only, of which reading is the half.
    validation_s = 7 * 0.01 + 100 * 0.0001 + 100 * 2 * 0.001
    assert found.epoch_s == pytest.approx(26 * step_s + validation_s)
    assert found.run_s == pytest.approx(0.25 + 0.5 + 26 * step_s + validation_s + 0.125)


def test_micro_batches_go_one_after_another() -> None:
    """Each pays what does not depend on its samples."""
    made = size(1, forward=(Affine(0.01, 0.001),), backward=(Affine(0.02, 0.002),))
    found = [predicted(profile([ONE], made), micro_batches=parts).step_s for parts in (1, 4)]
    assert found == [pytest.approx(0.03 + 40 * PASS_S), pytest.approx(4 * 0.03 + 40 * PASS_S)]


def test_the_last_step_of_an_epoch_may_be_smaller() -> None:
    """100 samples in batches of 40: two steps of 40 and one of 20, without validation."""
    found = predicted(profile([ONE], samples=100, validation_samples=0))
    assert found.step_s == pytest.approx(40 * PASS_S)
    assert found.epoch_s == pytest.approx(100 * PASS_S)


def test_the_slowest_worker_decides() -> None:
    """41 samples on two workers are 20 and 21; rank 0, which has 20, waits for the other."""
    found = predicted(over(0.0), workers=2, batch_size=41, collective="scatter-reduce")
    alone = predicted(over(0.0), workers=2, batch_size=42, collective="scatter-reduce")
    assert found.step_s == pytest.approx(alone.step_s)


def test_buckets_travel_beside_the_backward_pass() -> None:
    """Layer b's 4 MB go out while a's backward pass of 10 s is computed, and cost nothing."""
    slow = size(2, backward=(Affine(10.0, 0.0), Affine(0.0, 0.0)), forward=(Affine(0.0, 0.0),) * 2)
    known = profile([layer("a", 1000), layer("b", 1_000_000)], slow)
    found = predicted(known, workers=2, collective="scatter-reduce")
    assert 10.0 < found.step_s < 10.01
    assert found.breakdown["transfer"] < 0.01


def test_a_share_of_the_cpu_is_shared_with_messages() -> None:
    """Messages' CPU seconds come on top of those of the passes, if they are beside them."""
    busy = transfer(1e9, cpu_s=0.01)
    made = size(1, cpu_cores=0.5, up=busy, down=busy)
    idle = size(1, cpu_cores=0.5, up=transfer(1e9), down=transfer(1e9))
    known = [
        predicted(profile([ONE], one), workers=2, batch_size=20, collective="all-reduce")
        for one in (made, idle)
    ]
    # One message in and one out, at half speed.
    assert known[0].step_s - known[1].step_s == pytest.approx(4 * 0.01 / 0.5, rel=0.1)


def test_beta_stands_in_where_nobody_measured_what_messages_take() -> None:
    """beta 2: a message of a second takes half a second of what computing had meanwhile."""

    def step_s(beta: float) -> float:
        slow = size(
            2,
            beta=given(beta),
            cpu_cores=1.0,
            forward=(Affine(0.0, 0.0),) * 2,
            backward=(Affine(20.0, 0.0), Affine(0.0, 0.0)),
        )
        known = profile([layer("a", 10), layer("b", 2_500_000)], slow)
        return predicted(known, workers=2, collective="all-reduce").step_s

    # 10 MB: rank 0, the aggregator, gets a second's and puts a second's.
    assert step_s(2.0) - step_s(1.0) == pytest.approx(1.0, rel=0.05)


def test_local_sgd_sums_once_a_round() -> None:
    """Four steps, then parameters and a momentum: twice the bytes of a gradient, once."""
    bsp = predicted(over(0.0), workers=2, collective="scatter-reduce")
    found = predicted(over(0.0), workers=2, collective="scatter-reduce", sync="local-sgd", k=4)
    sum_s = scatter_reduce_s(2 * S, 2, RATE, 0.0)
    assert found.step_s == pytest.approx(20 * PASS_S + sum_s / 4, rel=0.01)
    assert found.step_volume.puts == bsp.step_volume.puts / 4
    assert found.step_volume.bytes_up == pytest.approx(bsp.step_volume.bytes_up / 2, rel=0.01)
    whole = predicted(over(0.0), workers=2, collective="scatter-reduce", sync="local-sgd", k=None)
    assert whole.step_s == pytest.approx(20 * PASS_S + sum_s / 25, rel=0.01)


def test_an_outer_optimizer_sums_parameters_alone() -> None:
    """Once in four steps; with int8 a quarter of their bytes."""
    local = predicted(over(0.0), workers=2, collective="scatter-reduce", sync="local-sgd", k=4)
    nesterov: dict[str, Any] = {"sync": "local-sgd", "k": 4, "outer": "nesterov"}
    found = predicted(over(0.0), workers=2, collective="scatter-reduce", **nesterov)
    sum_s = scatter_reduce_s(S, 2, RATE, 0.0)
    assert found.step_s == pytest.approx(20 * PASS_S + sum_s / 4, rel=0.01)
    assert found.step_volume.puts == local.step_volume.puts
    assert found.step_volume.bytes_up == pytest.approx(local.step_volume.bytes_up / 2, rel=0.01)
    small = predicted(
        over(0.0), workers=2, collective="scatter-reduce", compress="int8", **nesterov
    )
    assert small.step_volume.puts == found.step_volume.puts, "losses and wishes go along"
    assert small.step_volume.gets == found.step_volume.gets
    assert small.step_volume.bytes_up == pytest.approx(found.step_volume.bytes_up / 4, rel=0.02)
    with pytest.raises(RequestError, match="of the job's own cannot be predicted"):
        predicted(over(0.0), workers=2, sync="local-sgd", k=4, outer="job")


def test_what_a_step_takes_beside_its_passes_goes_by_flat_buffers() -> None:
    """One a step; of local SGD one a round; of stages each its parameters' part."""
    fast = transfer(1e12)
    slow = size(4, step_s=given(0.8), up=fast, down=fast)
    quick = size(4, up=fast, down=fast)

    def beside_s(**asked: Any) -> float:
        took = [predicted(profile(FOUR, one), **asked).step_s for one in (slow, quick)]
        return took[0] - took[1]

    assert beside_s() == pytest.approx(0.8)
    assert beside_s(sync="local-sgd", k=4) == pytest.approx(0.2)
    # The second stage's, but for what the first passes on meanwhile of the step that follows.
    assert beside_s(workers=2, cut=(1,)) == pytest.approx(0.6 - 40 * 0.003)


def test_compressed_gradients_are_smaller() -> None:
    sizes = {
        form: predicted(over(0.0), workers=2, collective="scatter-reduce", compress=form)
        for form in ("none", "bf16", "int8", "topk:0.01")
    }
    whole = sizes["none"].step_volume.bytes_up
    assert len({one.step_volume.puts for one in sizes.values()}) == 1, "losses and wishes go along"
    assert sizes["bf16"].step_volume.bytes_up == pytest.approx(whole / 2, rel=0.01)
    assert sizes["int8"].step_volume.bytes_up == pytest.approx(whole * (1 + 1 / 64) / 4, rel=0.01)
    assert sizes["bf16"].step_s < sizes["none"].step_s
    # Half of what a worker uploads are contributions, the other half a sum of two: 200 and 70.
    least = sizes["topk:0.01"].step_volume
    assert 40 < whole / least.bytes_up < 110
    assert least.bytes_down > least.bytes_up / 2
    assert sizes["topk:0.01"].step_s < sizes["int8"].step_s


FOUR = [layer(name, 1000, passed=1000.0) for name in "abcd"]


@pytest.mark.parametrize("schedule", ["fill-drain", "1f1b"])
def test_a_pipeline_without_transfers_takes_what_the_drawing_says(schedule: str) -> None:
    """S = 2 stages, mu = 4 micro-batches: (mu + S - 1) (F + B) of 10 samples, two layers each."""
    fast = transfer(1e12)
    known = profile(FOUR, size(4, up=fast, down=fast))
    found = predicted(known, workers=2, cut=(2,), micro_batches=4, schedule=schedule)
    assert found.step_s == pytest.approx((4 + 1) * 10 * 2 * PASS_S, rel=0.001)
    assert found.breakdown["compute"] == pytest.approx(4 * 10 * 2 * PASS_S)
    assert found.breakdown["sync"] == pytest.approx(10 * 2 * PASS_S, rel=0.01)


def test_a_pipeline_sends_what_passes_its_boundary() -> None:
    """40 kB forth and back, of 10 samples at a time in chunks of 64 KiB and more: one."""
    found = predicted(profile(FOUR), workers=2, cut=(2,), micro_batches=4)
    tail = 1 + 1  # a contribution and the sum
    assert found.step_volume.puts == 4 + 4 + tail
    assert found.step_volume.bytes_up == 2 * 40 * 1000 + 2 * 24 + 128 * 10


def test_replicas_of_a_stage_sum_their_gradients() -> None:
    alone = predicted(profile(FOUR), workers=2, cut=(2,), micro_batches=4)
    found = predicted(
        profile(FOUR), workers=4, cut=(2,), replicas=2, micro_batches=4, collective="all-reduce"
    )
    # Of two stages: a contribution and a sum; of the tail two contributions more.
    assert found.step_volume.puts == 2 * 8 + 2 * 2 + 4
    assert found.step_s < alone.step_s


def test_stages_may_have_functions_of_several_sizes() -> None:
    small = replace(size(4, 512), forward=(Affine(0.0, 0.002),) * 4)
    known = profile(FOUR, size(4), small)
    found = predicted(known, workers=2, cut=(2,), micro_batches=4, memory_mib=(1024, 512))
    even = predicted(known, workers=2, cut=(2,), micro_batches=4)
    assert found.step_s > even.step_s
    assert len(found.memory_mib) == 2
    assert found.gb_s < even.gb_s * found.run_s / even.run_s


def test_a_bill_is_a_runs() -> None:
    """Two functions of 1024 MiB, each as long as the run."""
    found = predicted(over(0.001), workers=2, cold_start_s=2.0)
    assert found.run_s > 2.25 + 0.5
    assert found.billed_s == pytest.approx(2 * found.run_s, abs=0.002)
    assert found.gb_s == pytest.approx(found.billed_s)
    assert found.invocations == 2
    assert found.by_kind["initialisation"] == pytest.approx(2 * 2.25 * 1.66667e-5, rel=0.001)
    assert found.cost_usd == pytest.approx(sum(found.by_kind.values()))
    assert found.price_list == "aws-lambda"


def test_a_store_has_its_price() -> None:
    found = predicted(over(0.001), store=KNOWN.store("s3"), workers=2)
    volume = found.run_volume
    # Beside its steps' messages a worker reports each minute and at the ends, and both look up each
    # 4.8 s: each is 0.5% of 1.67e-5 dollars a second. Rank 0 tells of the epoch.
    reports = 2 * (round(found.run_s / 60) + 3) + 1
    looks = 2 * round(found.run_s / 4.8)
    expected = KNOWN.store("s3").puts_usd(volume.puts + reports, volume.bytes_up)
    expected += KNOWN.store("s3").gets_usd(volume.gets + looks, volume.bytes_down)
    assert found.by_kind["store_requests"] == pytest.approx(expected)


def test_several_workers_share_the_last_checkpoint() -> None:
    """960 kB and a momentum take 0.192 s of one worker's end of 0.225 s; of four, a quarter."""
    known = profile([ONE], size(1, end_s=given(0.225)), validation_samples=0)
    found = predicted(known, workers=4, collective="scatter-reduce")
    assert found.run_s - found.epoch_s == pytest.approx(0.25 + 0.5 + 0.033 + 0.192 / 4)


def test_a_stage_reads_and_writes_its_own_part_of_a_checkpoint() -> None:
    """Half of the layers, so that the other half of 4 x 1 MB of parameters is not read at first,
    nor that of 8 x 1 MB, with the optimizer's state, written at the end."""
    layers = [layer(name, 250_000) for name in "abcd"]
    known = profile(layers, size(4, start_s=given(1.0), end_s=given(1.0)), validation_samples=0)
    found = predicted(known, workers=2, cut=(2,), micro_batches=4)
    assert found.run_s - found.epoch_s == pytest.approx(0.25 + (1.0 - 0.2) + (1.0 - 0.4))


def test_functions_hand_over_before_their_lifetime_ends() -> None:
    """Where lifetimes are long enough, to successors that started beside them."""
    whole = predicted(over(0.0), epochs=10)
    training_s = whole.run_s - 0.875
    ends_s = 2 * whole.step_s + 2 * 0.125 + 0.5
    found = predicted(over(0.0), epochs=10, lifetime_s=9.9)
    of_one_s = 9.9 - 0.5 - ends_s
    assert found.invocations == -(-training_s // of_one_s)
    assert found.run_s == pytest.approx(whole.run_s + (found.invocations - 1) * 0.875)
    found = predicted(over(0.0), epochs=10, lifetime_s=10.0)
    of_one_s = 10.0 - (1.5 * 0.75 + 1.0 + 1.0 + ends_s)
    assert found.invocations == -(-training_s // of_one_s)
    assert found.run_s == pytest.approx(whole.run_s + (found.invocations - 1) * 0.125)


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"workers": 50}, "a batch of 40 cannot be shared by 50 workers"),
        ({"memory_mib": (777,)}, "no functions of 777 MiB: it has 1024 MiB"),
        ({"workers": 3, "cut": (2,)}, "3 workers are not 2 stages in 1 replicas"),
        ({"workers": 2, "cut": (9,)}, "give rising numbers of layers from 1 to 3"),
        ({"sync": "hop"}, "'hop' is not known"),
        ({"sync": "hap", "workers": 2}, "hap sums by k-reduce"),
        ({"sync": "hap", "workers": 2, "collective": "k-reduce"}, "needs --aggregators"),
        ({"shares": (1, 2, 3), "workers": 2}, "3 shares for 2 workers"),
        ({"shares": (1, 200), "workers": 2}, "leaves a worker no sample"),
        ({"memory_mib": (1024, 1024), "workers": 3}, "2 memory sizes for 3 workers"),
        ({"shares": (1, 2), "workers": 2, "sync": "local-sgd"}, "are for bsp and hap"),
        ({"compress": "powersgd:2", "workers": 2}, "cannot be predicted"),
        ({"compress": "significance:0.7", "workers": 2}, "bf16, int8, int4 or topk of a model"),
        ({"compress": "topk:7", "workers": 2}, "above 0 and at most 1"),
        ({"workers": 0}, "give numbers from 1"),
        ({"workers": 2, "cut": (2,), "memory_mib": (1024,) * 3}, "3 memory sizes for 2 stages"),
        ({"collective": "fastest", "workers": 2}, "--collective 'fastest' is not known"),
    ],
)
def test_what_cannot_be_run_is_refused(asked: dict[str, Any], what: str) -> None:
    with pytest.raises(RequestError, match=what):
        predicted(profile(FOUR), **asked)


def test_a_model_that_is_no_list_is_not_cut() -> None:
    with pytest.raises(RequestError, match="no list of layers"):
        predicted(profile(FOUR, listed=False), workers=2, cut=(2,))


def test_channels_by_url_and_stores_by_name() -> None:
    made = profile([ONE], size(1, rates=None))
    assert ChannelModel.of(made).immediate
    assert not ChannelModel.of(profile([ONE])).immediate
    for channel, in_flight in (("s3", 16), ("elasticache", 4), ("ps://", 4), ("dynamodb", 16)):
        assert ChannelModel.of(replace(made, channel=channel)).in_flight == in_flight
    with pytest.raises(RequestError, match=r"channel '...': it is not known"):
        ChannelModel.of(replace(made, channel="pigeons"))


@settings(deadline=None, max_examples=30)
@drawn(
    workers=st.integers(1, 5),
    micro=st.integers(1, 3),
    cores=st.sampled_from([None, 0.25, 0.7]),
    period=st.sampled_from([0.0, 0.02]),
    algorithm=st.sampled_from(sorted(FORMS.keys() - {"k-reduce"})),
    latency_s=st.sampled_from([0.0, 0.01]),
    batch=st.integers(5, 60),
)
def test_a_breakdown_adds_up(
    workers: int,
    micro: int,
    cores: float | None,
    period: float,
    algorithm: str,
    latency_s: float,
    batch: int,
) -> None:
    found = predicted(
        over(latency_s, cpu_cores=cores, cpu_period_s=period),
        workers=workers,
        micro_batches=micro,
        collective=algorithm,
        batch_size=batch,
    )
    assert sum(found.breakdown.values()) == pytest.approx(found.step_s)
    assert min(found.breakdown.values()) >= 0
    # Nobody is faster than its passes, but for a period's quota.
    most = -(-batch // workers)
    assert found.step_s >= most * PASS_S - 2 * period - 1e-9
    assert found.run_s > found.epoch_s > found.step_s


def test_what_speaks_against_the_functions_figures_is_said() -> None:
    """Of the functions that are used, and of no others."""
    loud = Conditions(doubts=("the host of this machine took 33% of the CPU time",))
    sizes = size(1, 512), size(1, 1024, conditions=loud)
    known = profile([ONE], *sizes)
    assert predicted(known, memory_mib=(1024,)).warnings == loud.doubts
    assert predicted(known, memory_mib=(512,)).warnings == ()


def test_bandwidth_declines_with_the_functions_that_run() -> None:
    """As if each function had what is left of it; below the first number it has all."""
    declining = replace(over(0.01), decline=((3, 1.0), (4, 0.5)))
    half = transfer(RATE / 2, 0.01)
    slower = profile([ONE], replace(over(0.01).sizes[0], up=half, down=half))
    for workers, alike in ((1, over(0.01)), (3, over(0.01)), (4, slower)):
        found = predicted(declining, workers=workers)
        assert found.step_s == predicted(alike, workers=workers).step_s
    assert predicted(declining, workers=4).step_s > predicted(over(0.01), workers=4).step_s
