"""Cuts near the front, by a better model than their equations: nearly all that are near."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from benchmarks.parts.enumerated import cuts, problems, stages

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.from_profile import stages_problems
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.messages import messages_usd, with_messages
from dayfly.planning.choose.pipelines.near import near_cuts, same_cuts
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import StagesOverStore, step_s, step_usd
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.runs.choosing.targets import Target
from dayfly.wire.pipelines.orders import FILL_DRAIN, ONE_F_ONE_B, ORDERS
from tests.choose.lambda_by_hand import job

SLACK = 0.25
S3 = Catalogue().store("s3")
#: Of all limits, where nearly all is to be found.
LIMIT = 100_000


def judged_by_equations(problem: StagesOverStore) -> dict[PipelinePlan, Point[PipelinePlan]]:
    """Every plan that fits."""
    return {one.plan: one for one in stages.every_point(problem)}


def test_they_are_those_of_all_cuts_that_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine in ten, where a thousand are looked at: some are no neighbours of any that is near."""
    for limit in ("_LOOKED_AT", "_JUDGED", "_LARGE"):
        monkeypatch.setattr(f"dayfly.planning.choose.pipelines.near.{limit}", LIMIT)
    near, found = 0, 0
    for seed in range(20):
        problem = problems.stages(Random(seed))
        try:
            points = choose(problem, compiled=False).points
        except RequestError:  # no plan fits
            continue
        of = [(one.seconds, one.usd) for one in Front.of(points).points]
        every = judged_by_equations(problem)
        among = near_cuts([problem], points, every.__getitem__, SLACK)  # of none that does not fit
        assert len({one.plan for one in among}) == len(among)
        excess = {
            plan: max(min(one.seconds / s, one.usd / usd) for s, usd in of)
            for plan, one in every.items()
            if plan.starts
        }
        within = {one for one, by in excess.items() if by <= 1 + SLACK}
        near, found = near + len(within), found + len(within & {one.plan for one in among})
    assert found >= 0.9 * near > 0


def test_a_model_that_contradicts_the_equations_is_believed() -> None:
    """Of a plan with another number of micro-batches, which they have for far slower."""
    many, few = (
        replace(
            problems.stages(Random(3)),
            micro_batches=micro_batches,
            degrees=(1,),
            schedule=FILL_DRAIN,
            latency_s=latency_s,
        )
        for micro_batches, latency_s in ((8, 1e3), (2, 0.0))
    )
    points = choose(few, compiled=False).points
    every = judged_by_equations(few) | {
        plan: replace(one, seconds=one.seconds / 1e6, usd=one.usd / 1e6)
        for plan, one in judged_by_equations(many).items()
    }
    among = near_cuts([many, few], points, every.get, SLACK)
    assert Front.of(among).fastest.plan.micro_batches == 8
    assert Front.of(points).fastest.plan.micro_batches == 2


def test_there_are_none_of_nothing_or_large_models_or_over_links_and_few_if_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = problems.stages(Random(3))
    every = judged_by_equations(problem)
    assert near_cuts([problem], (), every.get, SLACK) == []
    links = problems.shards(Random(1))
    assert near_cuts([links], choose(links, compiled=False).points, every.get, math.inf) == []
    points = choose(problem, compiled=False).points
    assert near_cuts([problem], points, every.get, SLACK)
    given = {one.plan for one in points}
    late = near_cuts([problem], points, every.get, SLACK, time_limit_s=0)
    assert {one.plan for one in late} == given
    monkeypatch.setattr("dayfly.planning.choose.pipelines.near._LARGE", 0)
    assert near_cuts([problem], points, every.get, SLACK) == []


@pytest.mark.parametrize("layers", [4, 8])
def test_the_same_cuts_are_the_front_with_all_micro_batches_and_schedules(layers: int) -> None:
    """Against all of them that fit. Over S3 fewer micro-batches may be slower and cheaper."""
    target = Target.of(job(layers, megabytes=10.0), Catalogue())
    every = stages_problems(
        target.profile,
        target.platform,
        batch_size=64,
        micro_batches=[8, 16, 32],
        functions_at_once=8,
        schedules=tuple(ORDERS),
        mixed=True,
    )
    usual = [one for one in every if one.micro_batches == 16]
    points = with_messages(usual, choose(*usual, compiled=False).points, S3)
    both = list(points)
    for problem in every:
        for one in points:
            plan = replace(one.plan, micro_batches=problem.micro_batches, schedule=problem.schedule)
            if plan.starts and problem.micro_batches % max(plan.replicas) == 0:
                seconds, usd = step_s(problem, plan), step_usd(problem, plan)
                if stages.fits(problem, plan):
                    both.append(Point(seconds, usd + messages_usd(problem, plan, S3), plan))
    given = {one.plan for one in points}
    right = [one for one in Front.of(both).points if one.plan not in given]
    assert same_cuts(every, points, S3) == right
    assert {one.plan.micro_batches for one in right} == {8, 32}
    links = problems.shards(Random(1))
    assert same_cuts([links], choose(links, compiled=False).points) == []


def test_messages_cost_what_their_requests_do() -> None:
    """Eight micro-batches over one boundary, each way; two replicas of either stage sum."""
    problem = replace(
        problems.stages(Random(3)), micro_batches=8, degrees=(1, 2), schedule=FILL_DRAIN
    )
    cut = PipelinePlan(
        layers=len(problem.layers),
        starts=(1,),
        options=(0, 0),
        memory_mib=(problem.options[0].memory_mib,) * 2,
        replicas=(1, 1),
        micro_batches=8,
        collective="pipelined",
    )
    points = [Point(1.0, 2.0, cut), Point(1.0, 2.0, replace(cut, replicas=(2, 2)))]
    store = Catalogue().store("s3")
    put_usd, get_usd = store.puts_usd(1, 0), store.gets_usd(1, 0)
    alone, summed = with_messages([problem], points, store)
    assert alone.usd == pytest.approx(2 + 16 * (put_usd + get_usd))
    assert summed.usd == pytest.approx(2 + (16 + 8) * (put_usd + get_usd))
    assert with_messages([problem], points, None) == points


@pytest.mark.parametrize(
    ("seed", "number", "starts", "memory_mib", "micro_batches", "schedule"),
    [
        # Eight micro-batches, which the equations have for a third slower than four: 8% faster.
        (6, 2, (1, 2, 3), (3538, 3538), 8, FILL_DRAIN),
        # Neighbours with eight micro-batches promise nothing; those with two as well do.
        (10, 7, (3,), (3538, 3538), 2, ONE_F_ONE_B),
        # Two changes from the whole model: with two large functions it is far too dear.
        (10, 21, (3,), (3538, 512), 2, ONE_F_ONE_B),
    ],
)
def test_a_good_cut_that_equations_take_for_worse_is_shown(
    seed: int,
    number: int,
    starts: tuple[int, ...],
    memory_mib: tuple[int, int],
    micro_batches: int,
    schedule: str,
) -> None:
    chance = Random(f"{seed} cuts")
    made = [cuts.random_problem(chance) for _ in range(number)][-1]
    target = Target.of(made, Catalogue())
    shown = cuts.chosen(made).points
    for start in starts:
        c = Configuration(
            workers=2,
            cut=(start,),
            memory_mib=memory_mib,
            micro_batches=micro_batches,
            schedule=schedule,
            batch_size=made.batch_size or 1,
            lifetime_s=900.0,
            epochs=made.epochs,
        )
        said = predict(target.profile, c, target.platform, target.store)
        worse = (max(one.seconds / said.total_s, one.usd / said.cost_usd) for one in shown)
        assert min(worse) < 1.02
