"""Data-parallel plans: nothing is left out, and a step takes what the closed forms say."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel import all_data_parallel, plan_data_parallel
from dayfly.planning.choose.data_parallel_problem import (
    DataParallelPlan,
    DataParallelProblem,
    collectives_of,
)
from dayfly.planning.choose.from_profile import most_at_once
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.whole_runs import least_run
from dayfly.planning.configuration import Configuration
from dayfly.planning.memory import peak_mib
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.specs.methods import Method
from dayfly.wire.collectives import COLLECTIVES
from tests.choose.lambda_by_hand import SIZES, job
from tests.planning import by_hand

KNOWN = Catalogue()
LAMBDA, S3 = KNOWN.platform("aws-lambda"), KNOWN.store("s3")


def problem(made: Profile, most: int = 8, **more: object) -> DataParallelProblem:
    asked: dict[str, object] = {
        "profile": made,
        "platform": LAMBDA,
        "store": S3,
        "workers": tuple(range(1, most + 1)),
        "collectives": collectives_of(made),
        "micro_batches": (1, 2, 4, 8, 16, 32, 64),
        "batch_size": 64,
        **more,
    }
    return DataParallelProblem(**asked)  # type: ignore[arg-type]


def configuration(plan: DataParallelPlan, batch_size: int = 64) -> Configuration:
    return Configuration(
        workers=plan.workers,
        replicas=plan.workers,
        memory_mib=(plan.memory_mib,),
        micro_batches=plan.micro_batches,
        collective=plan.collective,
        aggregators=plan.aggregators,
        batch_size=batch_size,
        lifetime_s=900.0,
    )


@settings(max_examples=6, deadline=None)
@given(
    layers=st.integers(1, 4),
    megabytes=st.floats(0.5, 60.0),
    epochs=st.integers(1, 3),
    every=st.integers(0, 3),
    samples=st.integers(40, 640),
)
@example(layers=2, megabytes=5.0, epochs=3, every=0, samples=640)
@example(layers=2, megabytes=5.0, epochs=3, every=2, samples=65)
def test_a_plan_takes_what_closed_forms_predict(
    layers: int, megabytes: float, epochs: int, every: int, samples: int
) -> None:
    """Validated every so many epochs; 0: never. An epoch's last batch may be one sample."""
    made = job(layers, megabytes, epochs=epochs, samples=samples)
    made = replace(made, validation_samples=2_000)
    for point in plan_data_parallel(problem(made, epochs=epochs, validate_every=every)).points:
        asked = replace(configuration(point.plan), epochs=epochs, validate_every=every)
        said = predict(made, asked, LAMBDA, S3, most_simulated=1)
        assert point.seconds == pytest.approx(said.run_s, rel=0.02)
        assert point.usd == pytest.approx(said.cost_usd, rel=0.03)


@pytest.mark.parametrize(
    "name",
    [
        *("local-sgd:4", "local-sgd:epoch", "nesterov:3+int8", "nesterov:5+topk:0.01", "bsp+int8"),
        *("nesterov:4+fragments=2+overlap=2", "nesterov:epoch+fragments=3+overlap=2+int8"),
    ],
)
def test_other_methods_take_what_closed_forms_predict(name: str) -> None:
    """And not less than the least. An epoch's last round is shorter: 11 steps are no rounds of 3;
    and so is its last batch. A pass through what is averaged takes 0.1 s. Workers that keep a part
    of their own write more of the last checkpoint than the one that was measured."""
    made, method = job(2, 5.0, samples=650), Method.parse(name)
    ended = by_hand.given(0.4)
    sizes = tuple(replace(one, reduce_s_per_byte=1e-8, end_s=ended) for one in made.sizes)
    made = replace(made, validation_samples=2_000, sizes=sizes)
    asked = replace(problem(made, 6, epochs=2), workers=(2, 3, 6), method=method)
    for point in all_data_parallel(asked):
        memory_mib, workers = point.plan.memory_mib, point.plan.workers
        s, usd = least_run(asked, memory_mib, made.size(memory_mib), workers, 0.0)
        assert s <= point.seconds * (1 + 1e-9)
        assert usd <= point.usd * (1 + 1e-9)
    for point in plan_data_parallel(asked).points:
        c = replace(
            configuration(point.plan),
            epochs=2,
            sync=method.sync,
            k=method.round_steps,
            outer=method.outer,
            compress=method.compress,
            streaming=method.streaming,
        )
        said = predict(made, c, LAMBDA, S3, most_simulated=1)
        assert point.seconds == pytest.approx(said.run_s, rel=0.02)
        assert point.usd == pytest.approx(said.cost_usd, rel=0.03)
        assert said.memory_mib[0] <= point.plan.memory_mib
        ends_s = asked.ending_s(made.size(point.plan.memory_mib), point.plan.workers)
        assert ends_s == pytest.approx(said.total_s - said.startup_s - said.train_s)


def test_bandwidth_that_declines_counts_by_functions() -> None:
    """With four functions a quarter is left: it takes them what it takes those of a quarter."""
    made = job(3, 30.0)
    quarter = tuple(
        replace(size, up=by_hand.transfer(17.5e6, 0.04), down=by_hand.transfer(17.5e6, 0.04))
        for size in made.sizes
    )
    declining = replace(made, decline=((2, 1.0), (4, 0.25)))
    four, two = (replace(problem(declining), workers=(count,)) for count in (4, 2))
    slow = replace(problem(replace(made, sizes=quarter)), workers=(4,))
    assert _taken(four) == _taken(slow)
    assert _taken(two) == _taken(replace(problem(made), workers=(2,)))
    assert _taken(four) != _taken(replace(problem(made), workers=(4,)))


def _taken(asked: DataParallelProblem) -> list[tuple[float, float]]:
    return [(one.seconds, one.usd) for one in plan_data_parallel(asked).points]


@pytest.mark.parametrize("validated", [0, 20_000])
def test_the_front_is_that_of_each_number_of_functions_alone(validated: int) -> None:
    """All of 1 to 16 functions, though 9 to 15 have shares of a step as large as 8 have: a
    validation is shared by all of them."""
    made = replace(job(3, 5.0), validation_samples=validated)
    asked = problem(made, 16, batch_size=16)
    alone = [
        point
        for workers in asked.workers
        for point in plan_data_parallel(replace(asked, workers=(workers,))).points
    ]
    front = plan_data_parallel(asked).points
    assert [(one.seconds, one.usd) for one in front] == [
        (one.seconds, one.usd) for one in Front.of(alone).points
    ]
    if validated:
        assert {one.plan.workers for one in front} & set(range(9, 16))


def test_no_plan_of_all_is_better_when_it_is_predicted() -> None:
    """Each function count, size, collective and K: none is better than the front by more than the
    closed forms leave out, and each that fits is there."""
    made = job(3, 30.0)
    asked = problem(made, 5)
    front = plan_data_parallel(asked).points
    for workers, memory_mib, name in product(asked.workers, SIZES, asked.collectives):
        for k in range(1, workers + 1) if name == "k-reduce" else (None,):
            c = Configuration(
                workers=workers,
                replicas=workers,
                memory_mib=(memory_mib,),
                collective=name,
                aggregators=k,
                batch_size=64,
                lifetime_s=900.0,
            )
            if peak_mib(made, c, 0) > memory_mib:
                continue
            said = predict(made, c, LAMBDA, S3, most_simulated=0)
            assert any(
                one.seconds <= said.run_s * 1.02 and one.usd <= said.cost_usd * 1.03
                for one in front
            ), (workers, memory_mib, name, k)


def test_aggregators_are_any_number() -> None:
    found = all_data_parallel(problem(job(3, 30.0), 7))
    assert {
        one.plan.aggregators
        for one in found
        if one.plan.collective == "k-reduce" and one.plan.workers == 7
    } == set(range(1, 8))


def test_memory_is_that_of_the_collective() -> None:
    """Of four, one that sums all for all holds three contributions of the whole buffer at once;
    where each sums a quarter it holds three quarters."""
    made = job(1, 250.0)
    sizes = {}
    for name in ("all-reduce", "scatter-reduce"):
        found = all_data_parallel(
            replace(problem(made, batch_size=4), workers=(4,), collectives=(name,))
        )
        sizes[name] = min((one.plan.memory_mib for one in found), default=0)
        c = Configuration(
            workers=4,
            replicas=4,
            memory_mib=(sizes[name],),
            collective=name,
            batch_size=4,
            lifetime_s=900.0,
        )
        assert peak_mib(made, c, 0) <= sizes[name]
    assert sizes["scatter-reduce"] < sizes["all-reduce"]


def _is_matched(one: Point[DataParallelPlan], points: tuple[Point[DataParallelPlan], ...]) -> bool:
    return any(p.seconds <= one.seconds and p.usd <= one.usd for p in points)


def test_each_function_has_a_sample() -> None:
    assert problem(job(), 31).allowed == tuple(range(1, 32))
    assert problem(job(), 100).allowed[-1] == 64


def test_vcpus_at_once() -> None:
    """By-hand functions have a vCPU for each GiB: of 1024 MiB four may be there, of 4096 one."""
    made = job(3, 30.0)
    limited = plan_data_parallel(replace(problem(made), vcpus_at_once=4.0))
    most = {memory_mib: most_at_once(made.size(memory_mib), 99, 4.0) for memory_mib in SIZES}
    assert sorted(most.values(), reverse=True) == list(most.values())
    assert all(one.plan.workers <= most[one.plan.memory_mib] for one in limited.points)
    asked = replace(problem(made), workers=tuple(range(1, 5)))
    free = plan_data_parallel(asked).points
    kept = [one for one in free if one.plan.workers <= most[one.plan.memory_mib]]
    assert all(_is_matched(one, limited.points) for one in kept)
    with pytest.raises(RequestError, match=r"has .* vCPUs, and the limit is 0\.01 at once: allow"):
        plan_data_parallel(replace(problem(made), vcpus_at_once=0.01))
    two = replace(problem(made), workers=(2, 3), vcpus_at_once=1.5)
    with pytest.raises(RequestError, match=r"2 functions of 1024 MiB have 2 vCPUs, .* is 1\.5 at"):
        plan_data_parallel(two)


def test_memory_is_kept_by_more_micro_batches() -> None:
    """32 MB a sample and layer in 4 GiB: 64 samples do not go in at once."""
    made = job(4, 10.0)
    made = replace(made, layers=tuple(replace(one, activations=32e6) for one in made.layers))
    lone = plan_data_parallel(problem(made, 1)).fastest.plan
    assert lone.micro_batches > 1
    c = configuration(lone)
    assert peak_mib(made, c, 0) <= lone.memory_mib
    fewer = replace(c, micro_batches=lone.micro_batches // 2)
    assert peak_mib(made, fewer, 0) > lone.memory_mib


def test_a_model_that_fits_nowhere_says_how_much_it_needs() -> None:
    with pytest.raises(
        RequestError,
        match=r"the whole model of by-hand fits into no function: .* one needs \d+ MiB, and the "
        r"largest has 4096: allow \d+ MiB, or cut it into stages",
    ):
        plan_data_parallel(problem(job(8, 400.0)))


def test_at_the_limits() -> None:
    fastest = plan_data_parallel(problem(job(2, 0.1), 4)).fastest
    assert fastest.plan.workers == 4
    assert fastest.limits == ("4 functions at once", "functions of 4096 MiB")


def test_a_channel_that_sums_has_one_way() -> None:
    assert collectives_of(job(channel="ps://")) == ("push-pull",)
    assert "push-pull" not in collectives_of(job())


def test_plans_in_words() -> None:
    plan = DataParallelPlan(workers=1, memory_mib=1024, collective="ring", store="s3")
    assert str(plan) == "1 function of 1024 MiB"
    assert (
        str(replace(plan, workers=4, collective="k-reduce", aggregators=2, micro_batches=2))
        == "4 functions of 1024 MiB, 2 micro-batches, k-reduce with 2 aggregators over s3"
    )


def test_a_collective_of_another_package_is_not_chosen_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = EntryPoint("theirs", "their_package:collective", "dayfly.collectives")
    monkeypatch.setitem(COLLECTIVES.__dict__, "_others", {"theirs": theirs})
    assert "theirs" in COLLECTIVES
    assert "theirs" not in collectives_of(job())
