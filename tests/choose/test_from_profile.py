"""Problems from profiles: other stores, and models in stages."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.catalogued import over_store
from dayfly.planning.choose.formulas import synchronisation_s
from dayfly.planning.choose.from_profile import stages_problems
from dayfly.planning.choose.k_reduce_from_profile import k_reduce_problem
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.problem import StagesOverLinks, StagesOverStore
from dayfly.planning.choose.ring_rounds import alpha_and_beta
from dayfly.planning.memory import WORKER_MIB
from dayfly.planning.predict import predict
from dayfly.planning.profile import Figure
from dayfly.planning.ranks import ChannelModel
from dayfly.runs.choosing.candidate import pipeline_settings
from dayfly.runs.plans import JobSpec, configuration, profile_settings
from dayfly.runs.settings import Settings
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.virtual_cost import cost_of
from tests.choose.lambda_by_hand import LATENCY_S, SIZES, job
from tests.planning import by_hand

LAMBDA = Catalogue().platform("aws-lambda")
QUICK = StoreFacts(name="elasticache", latency_s=0.001, bytes_per_s=35e6)


def test_over_another_store_ways_are_that_stores() -> None:
    made = over_store(job(), LAMBDA, QUICK)
    assert made.channel == "elasticache"
    assert [one.memory_mib for one in made.sizes] == list(SIZES)
    for before, size in zip(job().sizes, made.sizes, strict=True):
        assert size.forward == before.forward
        for way in (size.up, size.down):
            assert way.latency_s.value == 0.001
            assert way.peak_bytes_per_s.value == 35e6  # the store's, which is less than 70
        assert size.start_s.value == pytest.approx(0.001)
        assert size.data.each == pytest.approx(made.sample_bytes / 35e6)
    assert over_store(made, LAMBDA, Catalogue().store("s3")).sizes[0].up == job().sizes[0].up


def test_what_holds_over_one_store_alone_is_refused() -> None:
    with pytest.raises(RequestError, match="not made from the catalogue: profile the job over"):
        over_store(job(how="measured"), LAMBDA, QUICK)
    with pytest.raises(RequestError, match="no latency_s of dynamodb"):
        over_store(job(), LAMBDA, Catalogue().store("dynamodb"))


def test_stages_over_a_store() -> None:
    """Of 64 samples in 4 and 16 micro-batches: 16 and 4 samples each."""
    few, many = stages_problems(
        job(), LAMBDA, batch_size=64, micro_batches=(16, 4), functions_at_once=8, spare_mib=10.0
    )
    assert isinstance(few, StagesOverStore)
    assert isinstance(many, StagesOverStore)
    assert (few.micro_batches, many.micro_batches) == (4, 16)
    assert few.divisors == (1, 2, 4)
    assert many.divisors == (1, 2, 4, 8)  # and not 16, as 8 functions are all
    assert few.latency_s == LATENCY_S
    assert few.layers[0].output_bytes == 16 * 100e3
    assert many.layers[0].output_bytes == 4 * 100e3
    assert [one.memory_mib for one in few.options] == list(SIZES)
    assert few.options[0].forward_s == pytest.approx((16 * 0.032,) * 4)
    assert few.options[0].base_bytes == (200.0 + WORKER_MIB + 10.0) * 2**20
    assert few.options[2].usd_per_s == pytest.approx(4 * 1.66667e-5)
    assert few.copies == (3.0, 3.0)  # parameters, gradients, and as much state


def test_stages_over_links() -> None:
    found = stages_problems(
        job(channel="tcp://"), LAMBDA, batch_size=64, micro_batches=(4, 16), functions_at_once=6
    )
    assert len(found) == len(SIZES)
    for problem, memory_mib in zip(found, SIZES, strict=True):
        assert isinstance(problem, StagesOverLinks)
        assert problem.containers == tuple(range(1, 7))
        assert [way.micro_batches for way in problem.micro_batches] == [4, 16]
        assert {way.container.memory_mib for way in problem.micro_batches} == {memory_mib}
        # Without chunks a round is a message up and down: two latencies.
        assert problem.ring_round_s == pytest.approx(2 * LATENCY_S, rel=0.1)


def test_alpha_and_beta_are_those_of_the_profiles_links() -> None:
    """A ring takes what its own cost says, about; with neither it would take far less."""
    made = job(channel="tcp://")
    rate = made.sizes[0].up.peak_bytes_per_s.value
    fitted = alpha_and_beta(made, made.sizes[0], rate)
    link, how = ChannelModel.of(made).link(made.sizes[0]), collective("ring", None, 8)
    apart: dict[tuple[float, float], list[float]] = {fitted: [], (0.0, 0.0): []}
    for nbytes, members in product((4e6, 16e6, 64e6), (2, 4, 8)):
        one = AllReduce(members=members, length=round(nbytes / 4), link=link)
        cost_s = cost_of("ring", how, one).seconds
        for both, found in apart.items():
            found.append(abs(math.log(synchronisation_s(nbytes, members, rate, *both) / cost_s)))
    assert sum(apart[fitted]) < 0.25 * sum(apart[0.0, 0.0])


def test_what_cannot_be_cut_is_refused() -> None:
    asked = {"batch_size": 64, "micro_batches": (4,), "functions_at_once": 8}
    with pytest.raises(RequestError, match="no list of layers: it cannot be cut"):
        stages_problems(replace(job(), listed=False), LAMBDA, **asked)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="micro-batches 128 of 64 samples: give a number up to"):
        stages_problems(job(), LAMBDA, **{**asked, "micro_batches": (128,)})  # type: ignore[arg-type]


def test_over_another_store_a_start_reads_as_many_bytes() -> None:
    """700 MB that came at 70 MB/s come at the store's 35 MB/s, after its latency."""
    known = job()
    sizes = tuple(
        replace(size, start_s=Figure.given(size.down.message_s(7e8))) for size in known.sizes
    )
    made = over_store(replace(known, sizes=sizes), LAMBDA, QUICK)
    for size in made.sizes:
        assert size.start_s.value == pytest.approx(0.001 + 7e8 / 35e6)


def test_planners_share_what_the_store_carries_for_all() -> None:
    made = job(batch_size=32)
    shared = replace(made, store_bytes_per_s=1e8)
    for one, whole in ((made, math.inf), (shared, 1e8)):
        (cut,) = stages_problems(
            one, LAMBDA, batch_size=64, micro_batches=(16,), functions_at_once=8
        )
        assert isinstance(cut, StagesOverStore)
        assert cut.store_bytes_per_s == whole
        whole_models = k_reduce_problem(one, LAMBDA, workers=(1, 2), most_global_samples=32)
        assert whole_models.store_bytes_per_s == whole


def test_a_plan_with_replicas_by_stage_is_a_run_and_takes_what_the_planner_says() -> None:
    """The last layer has many parameters, which several replicas would have to sum."""
    made = job(megabytes=0.4)
    heavy = by_hand.layer("heavy", 10_000_000, passed=100e3)
    made = replace(made, layers=(*made.layers[:-1], heavy))
    problems = stages_problems(
        made, LAMBDA, batch_size=64, micro_batches=(8,), functions_at_once=8, mixed=True
    )
    assert [one.mixed for one in problems if isinstance(one, StagesOverStore)] == [True]
    uneven = [one for one in choose(*problems).front.points if one.plan.degree is None]
    assert uneven
    wanted = JobSpec.profiled(made, batch_size=64, epochs=1)
    for point in uneven:
        settings = Settings(**profile_settings(made, pipeline_settings(point.plan)))
        c = configuration(settings, wanted)
        assert c.layout.each == point.plan.replicas
        assert c.flow.total == 8
        assert predict(made, c, LAMBDA).step_s == pytest.approx(point.seconds, rel=0.1)
