"""Neighbours of the chosen plan: which they are, and that none is chosen in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point
from dayfly.runs.choosing.candidate import DATA_PARALLEL, PIPELINE, Candidate, changed
from dayfly.runs.choosing.candidates import proposed
from dayfly.runs.choosing.choice import certainty, choice_of
from dayfly.runs.choosing.local_search import Settled, settled
from dayfly.runs.choosing.option import KnownPredictions, Option, predicted
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.ranking import Ranked
from dayfly.runs.choosing.targets import Target
from dayfly.wire.pipelines.orders import ONE_F_ONE_B
from tests.choose.lambda_by_hand import job

KNOWN = Catalogue()
OVER_S3 = Target.of(job(6), KNOWN)
SMALL = PlanQuery(workers=6, time_limit_s=5.0)
MANY = 1e9


@pytest.fixture(scope="module")
def candidates() -> tuple[Candidate, ...]:
    return proposed(OVER_S3, SMALL, time_limit_s=5.0).candidates


def around(option: Option, asked: PlanQuery, *more: Option) -> Settled:
    plans = Ranked(options=(option, *more), open=(), too_large=0)
    return settled(plans, asked, [OVER_S3], lambda one: one)


def pipeline(candidates: tuple[Candidate, ...]) -> Candidate:
    """A cut model that has replicas."""
    return next(one for one in candidates if one.settings.cut and one.settings.members > 1)


@pytest.mark.parametrize("goal", [Goal(), Goal(objective="time"), Goal(weights=(1e4, 1.0))])
def test_none_of_its_neighbours_would_be_chosen(
    candidates: tuple[Candidate, ...], goal: Goal
) -> None:
    asked = replace(SMALL, goal=goal)
    slow = max(candidates, key=lambda one: one.seconds)
    moved = 0
    for start in (slow, pipeline(candidates)):
        first = predicted(start, MANY)
        found = around(first, asked)
        chosen = goal.choose(found.plans.front).plan
        moved += chosen is not first
        assert found.is_best
        runs = {one.candidate.run for one in found.plans.options}
        assert len(runs) == len(found.plans.options) > 1
        near = [one.option for one in found.knobs if one.option is not None]
        assert near
        known = [one.point for one in found.plans.options]
        for one in near:  # but for the rounding of what is the same
            best = goal.choose(Front.of([*known, one.point]))
            assert best.seconds == pytest.approx(chosen.point.seconds)
            assert best.usd == pytest.approx(chosen.point.usd)
        for one in found.plans.options[1:]:  # as `dayfly predict` has them
            assert one.prediction == predicted(one.candidate, MANY).prediction
    assert moved


def test_it_ends_after_so_many_plans_and_says_so(
    candidates: tuple[Candidate, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dayfly.runs.choosing.local_search._MOST_PLANS", 1)
    slow = predicted(max(candidates, key=lambda one: one.seconds), MANY)
    found = around(slow, replace(SMALL, goal=Goal(objective="time")))
    assert not found.is_best
    chosen = Goal(objective="time").choose(found.plans.front).plan
    assert chosen is not slow
    changes = [one.option for one in found.knobs if one.option is not None]
    assert min(one.point.seconds for one in changes) < chosen.point.seconds
    for one in changes:  # of the one that is chosen
        differ = {
            key
            for key, value in one.candidate.own.items()
            if chosen.candidate.own.get(key) != value
        }
        assert len(differ - {"micro_batches", "collective", "aggregators"}) <= 1
    choice = choice_of([OVER_S3], replace(SMALL, least_predicted=1))
    assert certainty(choice).count("would be chosen in its place") == choice.is_best
    said = certainty(replace(choice, is_best=False))
    assert "with one more setting changed it may be better" in said


def test_a_deadline_that_no_plan_keeps_is_met_by_a_neighbour(
    candidates: tuple[Candidate, ...],
) -> None:
    slow = predicted(max(candidates, key=lambda one: one.seconds), MANY)
    goal = Goal(deadline_s=0.7 * slow.prediction.total_s)
    with pytest.raises(RequestError, match="no plan is done within"):
        goal.choose(Front.of([slow.point]))
    found = around(slow, replace(SMALL, goal=goal))
    assert goal.choose(found.plans.front).seconds <= 0.7 * slow.prediction.total_s


def test_the_collectives_that_were_asked_for_are_kept(candidates: tuple[Candidate, ...]) -> None:
    """Also from a lone function, which sums nothing, and where another store sums by itself."""
    asked = replace(SMALL, collectives=("scatter-reduce",), goal=Goal(objective="time"))
    lone = next(one for one in candidates if one.settings.workers == 1)
    server = Target.of(replace(OVER_S3.profile, channel="ps://"), KNOWN)
    found = settled(
        Ranked(options=(predicted(lone, MANY),), open=(), too_large=0),
        asked,
        [OVER_S3, server],
        lambda one: one,
    )
    several = [one.candidate for one in found.plans.options if one.candidate.settings.workers > 1]
    assert several
    assert {one.settings.algorithm for one in several} == {"scatter-reduce"}
    stores = [one for one in found.knobs if one.setting == "store"]
    assert [one.other for one in stores] == ["ps://"]
    assert not any(one.asked_for for one in stores if one.option is not None)


def test_the_nearest_to_both_limits_is_the_cheapest_in_time() -> None:
    front = Front.of(
        [Point(10.0, 3.0, "fast"), Point(20.0, 2.0, "middle"), Point(40.0, 1.0, "slow")]
    )
    assert Goal(deadline_s=20.0, budget_usd=1.5).nearest(front).plan == "middle"
    assert Goal(deadline_s=5.0, budget_usd=1.5).nearest(front).plan == "fast"
    assert Goal(deadline_s=5.0).nearest(front).plan == "fast"
    assert Goal(budget_usd=0.5).nearest(front).plan == "slow"
    assert Goal(budget_usd=2.5).nearest(front).plan == "middle"


def test_a_neighbour_is_not_counted_twice(candidates: tuple[Candidate, ...]) -> None:
    first, *others = candidates
    option = predicted(first, MANY)
    still = tuple(Point(one.seconds, one.usd, one) for one in others)
    plans = Ranked(options=(option,), open=still, too_large=2)
    joined = plans.joined_by([predicted(others[0], MANY), option])
    assert joined.considered == plans.considered == len(candidates) + 2
    assert [one.candidate.run for one in joined.options] == [first.run, others[0].run]
    assert others[0].run not in {one.plan.run for one in joined.open}


def test_cuts_of_a_batch_of_one_sample() -> None:
    """Other numbers of micro-batches there are none."""
    target = Target.of(job(6, megabytes=300.0), KNOWN)
    found = proposed(target, replace(SMALL, batch_size=1), time_limit_s=5.0)
    assert PIPELINE in {one.kind for one in found.candidates}
    assert PIPELINE not in found.refused


@pytest.mark.parametrize(
    ("limit", "keeps"),
    [
        ({"micro_batches": (8,)}, lambda s: s.micro_batches * s.members == 8),
        ({"vcpus": 3.0}, lambda s: s.workers <= 3),
    ],
)
def test_what_was_not_asked_for_is_shown_and_not_chosen(limit, keeps) -> None:  # type: ignore[no-untyped-def]
    target = Target.of(replace(OVER_S3.profile, sizes=OVER_S3.profile.sizes[:1]), KNOWN)
    asked = replace(SMALL, workers=8, goal=Goal(objective="time"), **limit)
    choice = choice_of([target], asked)
    cuts = [one for one in choice.front.points if one.plan.candidate.settings.cut]
    for point in cuts or choice.front.points:
        assert keeps(point.plan.candidate.settings)
    assert {one.asked_for for one in choice.knobs} == {False, True}
    for one in choice.knobs:
        if one.option is not None and not one.asked_for:
            assert all(one.option is not point.plan for point in choice.front.points)


def test_a_changed_plan_is_named_as_the_planner_names_it(
    candidates: tuple[Candidate, ...],
) -> None:
    for one in candidates:
        assert changed(one, one.own).words == one.words
    assert {one.kind for one in candidates} == {DATA_PARALLEL, PIPELINE}
    cut = next(one for one in candidates if one.settings.cut)
    by = changed(cut, {**cut.own, "schedule": ONE_F_ONE_B, "micro_batches": 2})
    total = 2 * cut.settings.members
    assert f"{total} micro-batches by {ONE_F_ONE_B}" in by.words


def test_what_is_the_same_is_no_better(candidates: tuple[Candidate, ...]) -> None:
    """Of a lone function more micro-batches change nothing but rounding."""
    lone = next(one for one in candidates if one.settings.workers == 1)
    for goal in (Goal(objective="time"), Goal(objective="cost")):
        found = around(predicted(lone, MANY), replace(SMALL, workers=1, goal=goal))
        chosen = goal.choose(found.plans.front).plan.candidate
        assert chosen.settings.micro_batches == lone.settings.micro_batches


def test_each_is_predicted_once(candidates: tuple[Candidate, ...]) -> None:
    first = predicted(candidates[0], MANY)
    refusal = RequestError("no")
    both = KnownPredictions(MANY, [first])
    again = changed(candidates[0], candidates[0].own)
    found = both.each([again, candidates[1], refusal, candidates[1]])
    assert found[0] is first
    assert found[2] is refusal
    assert found[1] is found[3] is both.each([candidates[1]])[0]
    assert isinstance(found[1], Option)
    assert found[1].prediction == predicted(candidates[1], MANY).prediction


def test_what_cannot_be_run_says_why(candidates: tuple[Candidate, ...]) -> None:
    cut = pipeline(candidates)
    (why,) = KnownPredictions(MANY).each([changed(cut, {**cut.own, "replicas": 100})])
    assert isinstance(why, RequestError)
    assert "100" in str(why)
