"""`dayfly bench plans`: planners beside trying every plan of random problems, or their time.

    k-reduce   FasDL's problem, by its equations
    stages     FuncPipe's, cut models over a store
    shards     Hydrozoa's, cut models over direct links
    merged     both, with layers merged: every cut between merged layers
    schedules  both, by fill-drain and by 1F1B, with the memory of each
    mixed      the same over a store, with different replicas for each stage
    servers    types and numbers of servers as the store of whole models
    vcpus      vCPUs sold apart from memory, of whole models
    gpus       shares of a GPU, of whole and of cut models
    places     functions, containers, machines and spot machines at once
    whole      what `dayfly plan` shows of whole models, beside `dayfly predict` of every plan
    cuts       the same of cut models
    large      the same of large models, beside plans around those that it shows
    methods    the same of whole models with training methods and batch sizes, which take
               different samples
    streams    the same of outer gradients that are streamed, and compressed
    hap        what `dayfly plan --sync hap` shows, beside `dayfly predict` of every plan

A plan is missed if none that the planner shows is as fast and as cheap, and one that it shows is
dominated if a plan is faster and cheaper; both beyond rounding (1e-9). Of all but the last six,
planner and enumeration have the same equations, and share no search. Of whole models the planner
proposes by closed forms and predicts what is within their error of the front, and of cut models
what closed forms have near the fronts of the papers' equations; so `missed` counts plans that are
better than all that it shows by more than `--error`. `worst` is the largest such excess.

`--time` measures the command itself instead (`parts.plan_time`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from random import Random
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from benchmarks.parts import plan_time
from benchmarks.parts.arguments import new_parser
from benchmarks.parts.enumerated import (
    cuts,
    gpus,
    hybrid,
    k_reduce,
    large,
    methods,
    places,
    problems,
    servers,
    stages,
    vcpus,
    whole,
)
from benchmarks.parts.spread import say
from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.k_reduce import plan_k_reduce
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.merging import CRITERIA, MergedLayers, Merging
from dayfly.wire.pipelines.orders import ORDERS

#: Of both goals, beyond which plans are not the same.
_ROUNDING = 1e-9
#: What each planner shows, and every plan, of a random problem.
_Both = tuple[Front[Any], Iterable[Point[Any]]]


def _k_reduce(chance: Random) -> _Both:
    problem = problems.k_reduce(chance)
    found = (Point(s, usd, plan) for s, usd, plan in k_reduce.every_plan(problem))
    return plan_k_reduce(problem), found


def _stages(chance: Random) -> _Both:
    problem = problems.stages(chance)
    return choose(problem).front, stages.every_point(problem)


def _shards(chance: Random) -> _Both:
    problem = problems.shards(chance)
    return choose(problem).front, stages.every_point(problem)


def _merged(chance: Random) -> _Both:
    problem = chance.choice((problems.stages, problems.shards))(chance)
    count = problems.layers_of(problem)
    merging = Merging(chance.randint(2, count), chance.choice(CRITERIA))
    layers = MergedLayers.of(problem, merging)
    found = choose(layers.merge(problem)).front
    front = Front.of(replace(one, plan=layers.unmerged(one.plan)) for one in found.points)
    for one in front.points:
        assert stages.fits(problem, one.plan), f"{one.plan} does not fit, unmerged"
    return front, stages.every_point(problem, layers.firsts)


def _schedules(chance: Random) -> _Both:
    problem = chance.choice((problems.stages, problems.shards))(chance)
    each = [replace(problem, schedule=name) for name in ORDERS]
    return choose(*each).front, chain.from_iterable(map(stages.every_point, each))


def _mixed(chance: Random) -> _Both:
    problem = problems.mixed(chance)
    each = [replace(problem, schedule=name) for name in ORDERS]
    return choose(*each).front, chain.from_iterable(map(stages.every_point, each))


def _servers(chance: Random) -> _Both:
    problem = problems.servers(chance)
    return servers.chosen(problem), servers.every_plan(problem)


def _vcpus(chance: Random) -> _Both:
    platform = chance.choice(vcpus.PLATFORMS)
    made = problems.job_of_vcpus(chance, platform)
    return vcpus.chosen(made, platform), vcpus.every_plan(made, platform)


def _gpus(chance: Random) -> _Both:
    problem = gpus.random_problem(chance)
    return gpus.chosen(problem), gpus.every_plan(problem)


def _places(chance: Random) -> _Both:
    problem = places.random_problem(chance)
    return places.chosen(problem), places.every_plan(problem)


def _whole(chance: Random) -> _Both:
    made = replace(problems.job(chance), host=problems.host(chance))
    return whole.chosen(made), whole.every_plan(made)


def _cuts(chance: Random) -> _Both:
    made = cuts.random_problem(chance)
    return cuts.chosen(made), cuts.every_plan(made)


def _large(chance: Random) -> _Both:
    made = large.random_problem(chance)
    front = large.chosen(made)
    return front, large.changed_plans(made, front, chance)


def _methods(chance: Random) -> _Both:
    problem = methods.random_problem(chance)
    return methods.chosen(problem), methods.every_plan(problem)


def _streams(chance: Random) -> _Both:
    problem = methods.streamed_problem(chance)
    return methods.chosen(problem), methods.every_plan(problem)


def _hap(chance: Random) -> _Both:
    problem = hybrid.random_problem(chance)
    return hybrid.chosen(problem), hybrid.every_plan(problem)


#: By name: of a chance what the planner shows and every plan, and the share of `--plans`.
PLANNERS: Mapping[str, tuple[Callable[[Random], _Both], float]] = {
    "k-reduce": (_k_reduce, 0.4),
    "stages": (_stages, 0.4),
    "shards": (_shards, 0.199),
    "merged": (_merged, 0.2),
    "schedules": (_schedules, 0.4),
    "mixed": (_mixed, 0.4),
    "servers": (_servers, 0.2),
    "vcpus": (_vcpus, 0.12),
    "gpus": (_gpus, 0.22),
    "places": (_places, 0.2),
    "whole": (_whole, 0.001),
    "cuts": (_cuts, 0.002),
    "large": (_large, 0.0002),
    "methods": (_methods, 0.001),
    "streams": (_streams, 0.001),
    "hap": (_hap, 0.001),
}
#: Those whose plans are judged by predictions.
PREDICTED = ("whole", "cuts", "large", "methods", "streams", "hap")


def run(args: Sequence[str]) -> dict[str, Any]:
    """Compare, or measure; the result has a row a planner, or a command."""
    asked = _arguments(args)
    if asked.time:
        return plan_time.run(asked.rounds)
    began = time.monotonic()
    rows = [_compared(name, asked) for name in asked.only or PLANNERS]
    return {"seed": asked.seed, "rows": rows, "total_s": time.monotonic() - began}


def table(result: Mapping[str, Any]) -> Table:
    """The rows for a person."""
    if "machine" in result:
        return plan_time.table(result)
    shown = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    for title in ("planner", "problems", "plans", "missed", "dominated", "worst"):
        shown.add_column(title, justify="left" if title == "planner" else "right")
    for row in result["rows"]:
        counts = (f"{row[name]:,}" for name in ("problems", "plans", "missed", "dominated"))
        shown.add_row(row["planner"], *counts, f"{row['worst']:.2%}")
    return shown


def _compared(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    make, share = PLANNERS[name]
    error = asked.error if name in PREDICTED else 0.0
    row = {"planner": name, "problems": 0, "plans": 0, "missed": 0, "dominated": 0, "worst": 0.0}
    chance, last = Random(f"{asked.seed} {name}"), time.monotonic()
    while row["plans"] < share * asked.plans:
        try:
            front, every = make(chance)
        except RequestError:  # no plan fits
            continue
        missed, dominated, worst, count = compare(front, every, error)
        row["problems"] += 1
        row["plans"] += count
        row["missed"] += missed
        row["dominated"] += dominated
        row["worst"] = max(row["worst"], worst)
        if missed or dominated:
            number = row["problems"]
            say(f"{name}: problem {number}: {missed} missed, {dominated} dominated, {worst:.2%}")
        if time.monotonic() - last > 5:
            last = time.monotonic()
            say(f"{name}: {row['plans']:,} plans of {row['problems']} problems")
    return row


def compare(
    front: Front[Any], every: Iterable[Point[Any]], error: float
) -> tuple[int, int, float, int]:
    """Plans that are missed and shown plans that are dominated, by more than an error; the worst
    excess of the best that is shown over a plan, in the goal where it is least; how many there are.
    """
    found = np.array([(one.seconds, one.usd) for one in every]).reshape(-1, 2)
    shown = np.array([(one.seconds, one.usd) for one in front.points])
    # Of each plan, by how much the nearest that is shown is worse in its worse goal.
    excess = np.full(len(found), np.inf)
    for seconds, usd in shown:
        np.minimum(excess, np.maximum(seconds / found[:, 0], usd / found[:, 1]), out=excess)
    within = 1 + max(error, _ROUNDING)
    missed = int(np.sum(excess > within))
    dominated = sum(
        bool(np.any(np.all(found * within < one * (1 - _ROUNDING), axis=1))) for one in shown
    )
    return missed, dominated, max(0.0, float(excess.max(initial=0.0)) - 1), len(found)


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("plans", "Planners beside trying every plan of random problems.")
    parser.add_argument(
        "--only", action="extend", nargs="+", choices=list(PLANNERS), help="these planners"
    )
    parser.add_argument("--plans", type=int, default=1_000_000, help="at least so many in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--error",
        type=float,
        default=0.02,
        help="of whole models, what a better plan may be missed by, a share",
    )
    parser.add_argument("--time", action="store_true", help="seconds of the command instead")
    parser.add_argument("--rounds", type=int, default=plan_time.ROUNDS, help="of --time")
    asked = parser.parse_args(args)
    for name in ("plans", "rounds"):
        if getattr(asked, name) < 1:
            raise RequestError(f"--{name} {getattr(asked, name)}: give 1 or more")
    return asked
