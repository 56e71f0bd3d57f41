"""What any cut of a model takes at least, by functions: a look before a search.

    f, b    of a micro-batch through a layer, forward and backward, on one memory option
    mu      micro-batches of a step, all replicas' together
    W       functions of all stages
    p       dollars a second of an option's function

A stage of d replicas passes mu/d micro-batches both ways one after another, t >= (mu/d)(f + b) of
its layers. Times d, and over all stages,

    W t >= mu sum over layers of the least f + b          of all options
    c t >= mu sum over layers of the least p (f + b)      c: dollars a second of all functions
    c t >= W (the least p) t
"""

from __future__ import annotations

import numpy as np

from dayfly.planning.choose.pipelines.problem import Problem, StagesOverLinks


def least_steps(problem: Problem) -> list[tuple[int, float, float]]:
    """Returns, for each number of functions, seconds and dollars that a step takes at least.

    Args:
        problem: over a store or over links.

    Returns:
        Tuples of functions (two at least, as a cut has two stages), seconds and dollars.
    """
    if isinstance(problem, StagesOverLinks):
        of = [(one.container, one.micro_batches, 1.0) for one in problem.micro_batches]
        most = max(problem.containers)
    else:
        mu = problem.micro_batches
        of = [(option, mu, problem.beta) for option in problem.options]
        most = problem.functions_at_once or len(problem.layers) * max(problem.degrees)
    passes = [
        mu * beta * (np.array(option.forward_s) + np.array(option.backward_s))
        for option, mu, beta in of
    ]
    prices = [option.usd_per_s for option, _, _ in of]
    computed_s = float(np.min(passes, axis=0).sum())
    usd = float(np.min([p * one for p, one in zip(prices, passes, strict=True)], axis=0).sum())
    return [
        (workers, computed_s / workers, max(usd, min(prices) * computed_s))
        for workers in range(2, most + 1)
    ]
