"""Choices over places: what is proposed, what is predicted of it, and what is chosen."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from benchmarks.parts.enumerated import problems, whole
from benchmarks.plans import compare

import dayfly
from dayfly.batches import share
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.catalogued import over_store
from dayfly.planning.choose.front import Front, Point, per_cent
from dayfly.planning.memory import peak_mib
from dayfly.planning.plan import Plan
from dayfly.planning.predict import predict
from dayfly.runs.choosing import choice as choosing
from dayfly.runs.choosing import cut_models
from dayfly.runs.choosing.candidate import (
    DATA_PARALLEL,
    K_REDUCE,
    PIPELINE,
    Candidate,
    excess_mib,
    with_settings,
)
from dayfly.runs.choosing.candidates import proposed
from dayfly.runs.choosing.choice import Choice, certainty, choice_of
from dayfly.runs.choosing.choice_json import tree
from dayfly.runs.choosing.option import CLOSED_FORMS, VIRTUAL_TIME, cut_of, predicted, shorthand
from dayfly.runs.choosing.places import usual_sizes
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.ranking import ranked
from dayfly.runs.choosing.targets import Target, TargetQuery, targets_of_profiles
from dayfly.runs.plans import configuration, configuration_of, settings_of
from tests.choose.lambda_by_hand import SIZES, job

KNOWN = Catalogue()
LAMBDA = KNOWN.platform("aws-lambda")
SMALL = PlanQuery(workers=6, micro_batches=(4, 8), time_limit_s=5.0)
OVER_S3 = Target.of(job(6), KNOWN)


@pytest.fixture(scope="module")
def choice() -> Choice:
    return choice_of([OVER_S3], SMALL)


def test_planners_propose_what_runs_and_fits() -> None:
    found = proposed(OVER_S3, SMALL, time_limit_s=5.0)
    assert found.refused == {}
    assert {one.kind for one in found.candidates} == {DATA_PARALLEL, PIPELINE}
    for one in found.candidates:
        c = configuration(one.settings, one.wanted)
        assert 1 <= c.workers <= 6
        assert bool(c.cut) == (one.kind == PIPELINE)
        assert c.lifetime_s == 900.0  # the platform's
        for stage, memory_mib in enumerate(c.memory_mib):
            assert memory_mib in SIZES
            assert peak_mib(OVER_S3.profile, c, stage) <= memory_mib
        if c.cut:
            assert c.micro_batches * c.replicas in (4, 8)


def test_what_is_shown_is_what_predict_says(choice: Choice) -> None:
    for point in choice.front.points:
        option = point.plan
        place, asked = option.candidate.target, configuration_of(option.plan)
        assert option.by in (VIRTUAL_TIME, CLOSED_FORMS)
        said = predict(
            place.profile,
            asked,
            place.platform,
            place.store,
            **({} if option.by == VIRTUAL_TIME else {"most_simulated": 0}),
        )
        assert (point.seconds, point.usd) == (said.run_s, said.cost_usd)
        assert option.prediction == said
        parts = option.run_breakdown
        assert sum(parts.values()) == pytest.approx(said.run_s, rel=0.02)


def test_a_plan_of_the_front_is_a_plan_file(choice: Choice) -> None:
    for point in choice.front.points:
        made = point.plan.plan
        assert Plan.parse(made.text()) == made


def test_without_a_goal_the_front_recommends(choice: Choice) -> None:
    assert choice.chosen is choice.front.recommended()
    assert "chosen" in choice.marks(choice.chosen)
    assert choice.words.startswith("Recommended: ")
    assert choice.targets == (OVER_S3,)
    assert choice.considered >= choice.predicted >= len(choice.front.points)


def test_goals_choose_of_the_same_front(choice: Choice) -> None:
    front = choice.front
    middle = front.points[len(front.points) // 2]
    within = Goal(deadline_s=middle.seconds * 1.0001)
    assert within.choose(front) is middle
    assert within.words(front, middle).startswith("The cheapest within the deadline of ")
    assert Goal(budget_usd=middle.usd * 1.0001).choose(front) is middle
    assert Goal(weights=(1.0, 0.0)).choose(front) is front.cheapest
    assert Goal(weights=(0.0, 1.0)).choose(front) is front.fastest
    both = Goal(deadline_s=middle.seconds * 1.0001, budget_usd=middle.usd * 1.0001)
    assert both.choose(front) is middle


def test_a_deadline_and_a_budget_that_nothing_keeps() -> None:
    front = Front.of(
        [Point(10.0, 3.0, "fast"), Point(20.0, 2.0, "middle"), Point(40.0, 1.0, "slow")]
    )
    with pytest.raises(RequestError) as refused:
        Goal(deadline_s=20.0, budget_usd=1.5).choose(front)
    assert str(refused.value) == (
        "no plan keeps both the deadline of 20 s and the budget of $1.5: within the deadline the "
        "cheapest is middle: 20 s and $2; within the budget the fastest is slow: 40 s and $1; give "
        "$2, or allow 40 s"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"deadline_s": 0.0}, "--deadline 0: give more than 0"),
        ({"budget_usd": float("inf")}, "--budget inf: give more than 0"),
        ({"weights": (1.0, 1.0), "budget_usd": 1.0}, "--weights chooses by itself"),
    ],
)
def test_a_goal_that_is_none(given: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Goal(**given)  # type: ignore[arg-type]


def test_too_little_time_for_messages_is_said() -> None:
    """Where virtual time would take too long, closed forms serve, and are marked."""
    candidates = proposed(OVER_S3, SMALL, time_limit_s=5.0).candidates
    quick = ranked(candidates, Goal(), limit_s=0.01, least=0)
    whole = ranked(candidates, Goal(), limit_s=60.0, least=len(candidates))
    assert len(quick.options) < len(whole.options)
    assert Goal().choose(quick.front).plan.by == CLOSED_FORMS
    assert Goal().choose(whole.front).plan.by == VIRTUAL_TIME


def test_how_many_are_predicted_does_not_depend_on_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    candidates = proposed(OVER_S3, SMALL, time_limit_s=5.0).candidates
    usual = ranked(candidates, Goal(), limit_s=5.0, least=4)
    assert len(usual.front.points) <= len(usual.options) < len(candidates)
    passed = iter(range(10**6))
    for clock in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, clock, lambda: 100.0 * next(passed))
    again = ranked(candidates, Goal(), limit_s=5.0, least=4)
    assert again.options == usual.options


def test_the_first_plan_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(choosing, "make_ready", lambda work, told: (asked.append(work), told("-")))
    told: list[str] = []
    choice_of([OVER_S3], SMALL, told.append)
    # Layers, sizes, and divisors of 4 and of 8 micro-batches.
    assert asked == [6 * len(SIZES) * (3 + 4)]
    assert told == ["-"]


def test_layers_are_merged_before_cuts_are_searched_and_the_plan_is_of_all_layers() -> None:
    """By parameters, of which each of six layers has as much: two of them are one, each time."""
    asked = replace(SMALL, merge_layers=3, merge_by="parameters")
    found = choice_of([OVER_S3], asked)
    cuts = [one.candidate.settings.cut for one in (point.plan for point in found.front.points)]
    assert any(cuts)
    assert all(set(cut) <= {2, 4} for cut in cuts)
    (note,) = [one for one in found.notes if "merged" in one]
    assert note.startswith("6 layers are merged by parameters to 3 at most")
    assert "cuts within merged layers were not searched" in certainty(found)
    whole = choice_of([OVER_S3], replace(SMALL, merge_layers=6))
    assert not [one for one in whole.notes if "merged" in one]


def test_a_search_that_a_time_limit_ends_shows_its_certified_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No clock is waited for: the first look at a search is its last."""
    real = cut_models.choose
    monkeypatch.setattr(
        cut_models, "choose", lambda *p, time_limit_s, **more: real(*p, time_limit_s=0.0)
    )
    found = choice_of([OVER_S3], SMALL)
    assert found.gap > 0
    assert f"no plan is more than {per_cent(found.gap, 1.0)} better than" in certainty(found)
    assert tree(found)["gap"] == found.gap


def test_a_free_batch() -> None:
    """FasDL's problem: plans may have batches of other sizes, up to the limit."""
    asked = replace(SMALL, most_batch_size=320)
    found = proposed(OVER_S3, asked, time_limit_s=5.0)
    batches = {one.wanted.batch_size for one in found.candidates if one.kind == K_REDUCE}
    assert batches
    assert max(batches) <= 320
    assert batches != {64}


def test_plans_of_hap_are_fasdls_as_they_are() -> None:
    """Each worker has the samples of the plan, and is predicted as it runs. All learn as by bsp,
    as far as anybody knows, which is said."""
    asked = replace(SMALL, methods=("hap",), most_batch_size=640)
    found = choice_of([OVER_S3], asked)
    lagging = [one for one in _candidates(found) if one.settings.sync == "hap"]
    assert lagging
    for one in lagging:
        c = configuration(one.settings, one.wanted)
        sizes = {len(share(c.batch_size, rank, c.workers, c.shares)) for rank in range(c.workers)}
        said = {f"with {size}" if size else "only to sum" for size in sizes}
        assert {words in one.words for words in said} == {True}
    kinds = {one.settings.sync for one in _candidates(found)}
    assert kinds == {"bsp", "hap"}  # of bsp where all are aggregators
    assert any(note.startswith("hap@64: assumes as many samples") for note in found.notes)
    unequal = next(one for one in lagging if one.settings.shares)
    option = predicted(unequal, 1e9)
    assert settings_of(option.plan) == unequal.settings
    assert len(option.prediction.memory_mib) == 2  # of both roles


def test_the_batch_of_hap_is_the_jobs_at_most() -> None:
    found = proposed(OVER_S3, replace(SMALL, methods=("hap",)), time_limit_s=5.0)
    assert {one.kind for one in found.candidates} == {K_REDUCE}
    assert max(one.wanted.batch_size for one in found.candidates) <= 64


def _candidates(found: Choice) -> list[Candidate]:
    """On the front, and beside it."""
    return [
        *(one.plan.candidate for one in found.front.points),
        *(one.plan for one in found.others),
    ]


def test_over_direct_links_stages_are_hydrozoas() -> None:
    direct = Target.of(job(4, channel="tcp://", imitate="fargate"), KNOWN)
    found = proposed(direct, SMALL, time_limit_s=5.0)
    cut = [one for one in found.candidates if one.kind == PIPELINE]
    assert cut
    assert {one.settings.algorithm for one in cut if one.settings.members > 1} <= {"ring"}
    assert direct.store is None


def test_places_of_profiles() -> None:
    (place,) = targets_of_profiles([job()], TargetQuery(known=KNOWN))
    assert str(place) == "aws-lambda over s3"
    assert place.store == KNOWN.store("s3")
    quick = over_store(job(), LAMBDA, StoreFacts(name="elasticache", latency_s=0.001))
    found = targets_of_profiles([job(), quick], TargetQuery(platforms=["aws-lambda"], known=KNOWN))
    assert [str(one) for one in found] == ["aws-lambda over s3", "aws-lambda over elasticache"]
    files = Target.of(job(channel="file:///", how="measured"), KNOWN)
    assert files.store is None


def test_platforms_that_profiles_are_not_of() -> None:
    with pytest.raises(RequestError, match="give a profile of fargate as well, or the job"):
        targets_of_profiles([job()], TargetQuery(platforms=["aws-lambda", "fargate"], known=KNOWN))
    with pytest.raises(RequestError, match="the catalogue has no platform 'moon'"):
        targets_of_profiles([job()], TargetQuery(platforms=["moon"], known=KNOWN))


def test_usual_sizes_are_a_platforms_own() -> None:
    assert usual_sizes(LAMBDA) == (512, 1024, 2048, 3072, 4096, 6144, 8192, 10240)
    machine = KNOWN.platform("vm-c5-9xlarge")
    assert usual_sizes(machine) == (machine.memory_max_mib,)
    for name in ("fargate", "alibaba-fc", "cloud-run"):
        platform = KNOWN.platform(name)
        for size in usual_sizes(platform):
            platform.check(memory_mib=size)


def test_the_cut_has_all_layers(choice: Choice) -> None:
    for point in choice.front.points:
        layers, stages = cut_of(point.plan)
        assert len(layers) == 6
        assert [at for stage in stages for at in stage.layers] == list(range(6))
        settings = point.plan.candidate.settings
        assert len(stages) == len(settings.cut) + 1
        assert sum(stage.replicas for stage in stages) == settings.workers


def test_json_says_which_plan_was_chosen(choice: Choice) -> None:
    said = tree(choice)
    assert said["front"][said["chosen"]]["seconds"] == choice.chosen.seconds
    assert "chosen" in said["front"][said["chosen"]]["marks"]


def test_in_python(tmp_path: Path) -> None:
    front = dayfly.plan(job(6), workers=4, micro_batches=(4,))
    assert front.fastest.seconds <= front.cheapest.seconds
    with pytest.raises(RequestError, match="no plan is done within the deadline of 1 s"):
        dayfly.plan(job(6), workers=4, micro_batches=(4,), deadline_s=1.0)
    with pytest.raises(RequestError, match="there is no setting functions: give one of workers"):
        dayfly.plan(job(6), functions=4)
    with pytest.raises(RequestError, match=r"'nowhere\.json' cannot be read"):
        dayfly.plan("nowhere.json")


@pytest.mark.parametrize("seed", [22, 27, 118])
def test_no_plan_of_short_steps_is_missed(seed: int) -> None:
    """Of each of them the search missed several, up to 19% faster, while its closed forms left out
    what a CPU limit's periods make of steps of a few ms."""
    chance = Random(seed)
    made = problems.quick(chance, problems.job(chance))
    missed, dominated, worst, _ = compare(whole.chosen(made), whole.every_plan(made), 0.02)
    assert (missed, dominated) == (0, 0), worst


def test_fewer_stages_do_by_1f1b() -> None:
    """Where memory binds: some cuts do not fit by fill-drain."""
    made = problems.job(Random(11))
    heavy = {"activations": 4e6, "output": 1e4, "gradient": 1e4, "tensors": (3_000_000,)}
    made = replace(
        made,
        layers=tuple(replace(one, parameters=12e6, trained=12e6, **heavy) for one in made.layers),
        batch_size=40,
        sizes=made.sizes[:1],
    )
    asked = PlanQuery(workers=8, time_limit_s=5.0, micro_batches=(8,))
    front = choice_of([Target.of(made, Catalogue())], asked).front
    chosen = [point.plan.candidate for point in front.points]
    assert {one.settings.schedule for one in chosen} == {"fill-drain", "1f1b"}
    by_1f1b = [one for one in chosen if one.settings.schedule == "1f1b"]
    for one in by_1f1b:
        assert "micro-batches by 1f1b" in shorthand(one.settings)
        assert excess_mib(one) <= 0
    other = [with_settings(one, {**one.own, "schedule": "fill-drain"}) for one in by_1f1b]
    assert any(excess_mib(one) > 0 for one in other)


def test_of_many_places_without_a_plan_each_reason_is_said_once_and_four_at_most() -> None:
    places = [(f"place {at}", f"reason {at % 6}") for at in range(12)]
    assert choosing._in_short(places) == (
        "place 0 and 1 more: reason 0; place 1 and 1 more: reason 1; place 2 and 1 more: reason 2; "
        "place 3 and 1 more: reason 3; and 2 more reasons"
    )
    assert choosing._in_short(places[:1]) == "place 0: reason 0"
