"""Which methods answer which problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.parts.choosing import (
    k_reduce_cases,
    k_reduce_fixed,
    pipeline_cases,
    pipeline_fixed,
    store_cases,
    store_fixed,
    store_greedy,
)
from benchmarks.parts.choosing.answer import Answer, Goal, exact
from benchmarks.parts.choosing.bayes import bayes
from benchmarks.parts.choosing.cases import Case
from benchmarks.parts.choosing.merging import merged
from benchmarks.parts.choosing.miqp import miqp
from benchmarks.parts.choosing.pipeline_points import point
from benchmarks.parts.choosing.stores import plan_stores
from benchmarks.parts.choosing.tpdmp import tpdmp
from benchmarks.parts.choosing.two_stage import two_stage
from benchmarks.parts.choosing.v_bounds import v_bounds
from dayfly.planning.choose.front import Front
from dayfly.planning.choose.k_reduce import plan_k_reduce
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverStore,
)

#: The product's planner, in tables.
EXACT = "dayfly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """answer: of a problem and a goal. cases: it takes so long that only the first of each group
    are asked of it, and of each only one goal, of another case another; None: all.
    """

    name: str
    answer: Callable[[Any, Goal], Answer[Any]]
    cases: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A problem of the product's: its exact planner, and the methods beside it."""

    exact: Callable[[Any], Front[Any]]
    methods: Sequence[Method]
    papers: Sequence[Case]
    random: Sequence[Case]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is compared.

    random: instances of a problem, a quarter of it where methods are slow. groups: layers after
    merging. v: bounds. limit_s: of a solver. rounds: of Bayesian optimisation. slow: cases of slow
    methods.
    """

    random: int
    groups: int
    v: int
    limit_s: float
    rounds: int
    slow: int


NAMES = ("k-reduce", "stores", "stages", "shards")


def contest(name: str, size: Size, seed: int) -> Contest:
    """One of `NAMES`."""
    return {"k-reduce": _k_reduce, "stores": _stores, "stages": _stages, "shards": _shards}[name](
        size, seed
    )


def _k_reduce(size: Size, seed: int) -> Contest:
    return Contest(
        exact=plan_k_reduce,
        methods=(
            Method(name="two-stage search (FasDL)", answer=two_stage),
            Method(name="ScatterReduce, searched", answer=k_reduce_fixed.scatter_opt),
            Method(name="AllReduce, searched", answer=k_reduce_fixed.all_opt),
            Method(name="LambdaML, fixed", answer=k_reduce_fixed.lambda_ml),
        ),
        papers=k_reduce_cases.paper_cases(),
        random=k_reduce_cases.random_cases(size.random, seed),
    )


def _stores(size: Size, seed: int) -> Contest:
    return Contest(
        exact=plan_stores,
        methods=(
            Method(name="greedy (CE-scaling)", answer=store_greedy.greedy),
            Method(
                name=f"best of {store_greedy.DRAWN} drawn (CE-scaling)",
                answer=partial(store_greedy.sampled, seed=seed),
            ),
            Method(name="S3 alone, searched", answer=store_fixed.s3_only),
            Method(name="server alone, searched", answer=store_fixed.server_only),
            Method(name="LambdaML, fixed", answer=store_fixed.lambda_ml),
            Method(name="Cirrus, fixed", answer=store_fixed.cirrus),
        ),
        papers=store_cases.paper_cases(),
        random=store_cases.random_cases(size.random, seed),
    )


def _stages(size: Size, seed: int) -> Contest:
    groups = size.groups
    return Contest(
        exact=_front,
        methods=(
            Method(
                name=f"MIQP, {groups} layers (FuncPipe)",
                answer=partial(miqp, groups=groups, time_limit_s=size.limit_s),
                cases=size.slow,
            ),
            Method(
                name=f"{EXACT}, {groups} layers",
                answer=partial(_merged_exactly, groups=groups),
            ),
            Method(name="TPDMP, grid", answer=tpdmp),
            Method(
                name=f"Bayes, {size.rounds} rounds",
                answer=partial(bayes, groups=groups, rounds=size.rounds, seed=seed),
            ),
            Method(name="LambdaML, fixed", answer=pipeline_fixed.lambda_ml),
        ),
        papers=pipeline_cases.paper_cases(),
        random=pipeline_cases.random_cases(-(-size.random // 4), seed),
    )


def _shards(size: Size, seed: int) -> Contest:
    return Contest(
        exact=_front,
        methods=(
            Method(name=f"V = {size.v} bounds (Hydrozoa)", answer=partial(v_bounds, v=size.v)),
        ),
        papers=pipeline_cases.shard_cases(),
        random=pipeline_cases.random_shard_cases(-(-size.random // 4), seed),
    )


def _merged_exactly(problem: StagesOverStore, goal: Goal, *, groups: int) -> Answer[PipelinePlan]:
    """What merging alone costs, whatever solves the rest."""
    small = merged(problem, groups)
    found = exact(_front(small.merge(problem)), goal).point
    return Answer(found and point(problem, small.unmerged(found.plan)))


def _front(problem: Any) -> Front[Any]:
    return choose(problem).front
