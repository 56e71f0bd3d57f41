"""What stages hold beside FuncPipe's equation of memory, as cuts are searched with it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.from_profile import stages_problems
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.merging import MergedLayers
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    Problem,
    StagesOverStore,
    memory_bytes,
    step_s,
    step_usd,
)
from dayfly.planning.choose.stage_memory import with_extra_memory
from dayfly.planning.memory import peak_mib
from dayfly.planning.profile import Pass, Profile
from dayfly.runs.choosing.candidate import pipeline_settings
from dayfly.runs.plans import JobSpec, configuration, profile_settings
from dayfly.runs.settings import Settings
from dayfly.wire.pipelines.orders import ORDERS
from tests.choose.lambda_by_hand import SIZES, job
from tests.planning import by_hand

MIB = 2**20
LAMBDA = Catalogue().platform("aws-lambda")
MICRO, BATCH = 8, 64
#: Elements of a layer's one parameter, and bytes that it passes on: as of VGG16, some are large.
LAYERS = ((150_000_000, 3e5), (150_000_000, 6e5), (9_000_000, 1e5), (1_000_000, 2e4))


def uneven() -> Profile:
    layers = [by_hand.layer(f"layer-{at}", n, passed=p) for at, (n, p) in enumerate(LAYERS)]
    return replace(job(len(LAYERS)), layers=tuple(layers))


def problems_of(made: Profile, batch: int = BATCH, most: int = 8) -> tuple[Problem, ...]:
    """By both schedules, as equation 3b has memory."""
    asked = {"batch_size": batch, "micro_batches": (MICRO,), "functions_at_once": most}
    return stages_problems(made, LAMBDA, **asked, schedules=tuple(ORDERS), mixed=True)  # type: ignore[arg-type]


def peaks_mib(made: Profile, plan: PipelinePlan, batch: int = BATCH) -> list[float]:
    """What each stage's functions really need."""
    settings = Settings(**profile_settings(made, pipeline_settings(plan)))
    c = configuration(settings, JobSpec.profiled(made, batch_size=batch, epochs=1))
    return [peak_mib(made, c, stage) for stage in range(c.stages)]


def plan_of(
    starts: tuple[int, ...], options: tuple[int, ...], replicas: tuple[int, ...], schedule: str
) -> PipelinePlan:
    return PipelinePlan(
        layers=len(LAYERS),
        starts=starts,
        options=options,
        memory_mib=tuple(SIZES[one] for one in options),
        replicas=replicas,
        micro_batches=MICRO,
        collective="pipelined",
        store="s3",
        schedule=schedule,
    )


def measured(made: Profile, held_mib: float) -> Profile:
    """As if a pass of 8 samples had taken so much."""
    none = (by_hand.given(0.0),) * len(LAYERS)
    one = Pass(samples=8, forward=none, backward=none, data=none[0], held_mib=held_mib)
    return replace(made, sizes=tuple(replace(size, passes=(one,)) for size in made.sizes))


@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_a_stage_holds_what_a_worker_does(seed: int, alone: bool, by_measuring: bool) -> None:
    """By the collective that holds most. Of measured passes, what is lost between blocks is left
    out, which depends on what a stage keeps; so it is never more."""
    dice = Random(seed)
    made = replace(uneven(), sample_bytes=dice.choice((100.0, 6e5)))
    if by_measuring:
        made = measured(made, 600.0 + dice.uniform(20.0, 400.0))
    batch = dice.choice((BATCH, 60, 35))
    stages = dice.randint(2, len(LAYERS))
    starts = tuple(sorted(dice.sample(range(1, len(LAYERS)), stages - 1)))
    replicas = tuple(1 if alone else dice.choice((1, 2, 4)) for _ in range(stages))
    options = tuple(dice.randrange(len(SIZES)) for _ in range(stages))
    plan = plan_of(starts, options, replicas, dice.choice(list(ORDERS)))
    (problem,) = [one for one in problems_of(made, batch) if one.schedule == plan.schedule]
    (whole,) = with_extra_memory(made, batch, [problem], range(len(LAYERS)))
    both = [replace(plan, collective=name) for name in ("pipelined", "scatter-reduce")]
    peaks = np.max([peaks_mib(made, one, batch) for one in both], axis=0)
    over = np.array(memory_bytes(whole, plan)) / MIB - peaks
    assert over.max() <= 0.1 if alone else 2.1
    if not by_measuring:
        assert over.min() >= 0


def test_merged_layers_hold_what_theirs_do() -> None:
    """The first two layers as one: the largest of both, and messages of their ends."""
    made = uneven()
    plan = plan_of((2,), (1, 2), (1, 1), "1f1b")
    whole = [one for one in problems_of(made) if one.schedule == "1f1b"]
    (apart,) = with_extra_memory(made, BATCH, whole, range(len(LAYERS)))
    firsts = (0, 2, 3)
    merged = MergedLayers(firsts, len(LAYERS)).merge(whole[0])
    (together,) = with_extra_memory(made, BATCH, [merged], firsts)
    small = replace(plan, layers=3, starts=(1,))
    assert memory_bytes(together, small) == pytest.approx(memory_bytes(apart, plan))


def lacking(made: Profile, plan: PipelinePlan, spare_mib: float = 0.0) -> bool:
    """Whether a function lacks memory, or has less than so much left."""
    needs = peaks_mib(made, plan)
    return any(a + spare_mib > b for a, b in zip(needs, plan.memory_mib, strict=True))


@pytest.mark.parametrize("schedule", list(ORDERS))
def test_the_front_is_that_of_all_plans_that_fit(schedule: str) -> None:
    """Of one function each stage, which is known to a tenth of a MiB. Of the front by equation 3b
    alone there are plans that do not fit."""
    made = uneven()
    problems = [
        replace(one, degrees=(1,))
        for one in problems_of(made)
        if isinstance(one, StagesOverStore) and one.schedule == schedule
    ]
    every = [
        plan_of(starts, options, (1,) * len(options), schedule)
        for stages in range(2, len(LAYERS) + 1)
        for starts in combinations(range(1, len(LAYERS)), stages - 1)
        for options in product(range(len(SIZES)), repeat=stages)
    ]
    fitting = [plan for plan in every if not lacking(made, plan, spare_mib=0.1)]
    best = Front.of(
        Point(step_s(problems[0], plan), step_usd(problems[0], plan), plan) for plan in fitting
    )
    found = choose(*with_extra_memory(made, BATCH, problems, range(len(LAYERS)))).points
    for one in best.points:
        assert any(
            other.seconds <= one.seconds * (1 + 1e-9) and other.usd <= one.usd * (1 + 1e-9)
            for other in found
        )
    cuts = [point.plan for point in found if point.plan.starts]
    assert cuts
    assert not [plan for plan in cuts if lacking(made, plan)]
    by_equation = [point.plan for point in choose(*problems).points if point.plan.starts]
    assert [plan for plan in by_equation if lacking(made, plan)]
