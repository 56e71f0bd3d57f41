"""Bayesian optimisation of cut, memory and replicas, as FuncPipe compares itself with it.

Section 5.1: a black box that gets a configuration and tells the objective (3a) by the performance
model, 100 rounds. What a configuration is made of and how it tells that one does not fit the paper
does not print: here x_i, z_i and d of merged layers (a stage has the memory of its first), and what
does not fit has ten times its objective. The search is optuna's own, a tree-structured Parzen
estimator. The paper's reference (Brochu and others, 2010) has a Gaussian process: with 100 rounds
optuna's took minutes for the 16 variables of 8 layers, and was the better of the two on ResNet101,
17% off the best instead of 45%.
"""

from __future__ import annotations

import optuna

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.merging import merged
from benchmarks.parts.choosing.pipeline_points import holds, plan_over_store, point
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverStore,
)

#: Of the paper.
ROUNDS = 100
#: Times the objective of what does not fit.
_PENALTY = 10.0


def bayes(
    problem: StagesOverStore,
    goal: Goal,
    *,
    groups: int | None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Answer[PipelinePlan]:
    """The best of all rounds for a pair of weights. groups: as of `miqp`."""
    small = merged(problem, groups)
    p = small.merge(problem)
    found: list[Point[PipelinePlan]] = []

    def objective(trial: optuna.Trial) -> float:
        plan = small.unmerged(_suggested(trial, p))
        one = point(problem, plan)
        fits = holds(problem, plan)
        if fits:
            found.append(one)
        value = goal.alpha1 * one.usd + goal.alpha2 * one.seconds
        return value * (1.0 if fits else _PENALTY)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=rounds)
    return Answer(goal.best(found), f"{rounds} rounds")


def _suggested(trial: optuna.Trial, p: StagesOverStore) -> PipelinePlan:
    starts = [
        i for i in range(1, len(p.layers)) if trial.suggest_categorical(f"x{i}", (False, True))
    ]
    memory = [trial.suggest_int(f"z{i}", 0, len(p.options) - 1) for i in range(len(p.layers))]
    at = trial.suggest_int("d", 0, len(p.divisors) - 1)
    options = [memory[first] for first in (0, *starts)]
    return plan_over_store(p, starts, options, p.divisors[at], pipelined=p.pipelined[0])
