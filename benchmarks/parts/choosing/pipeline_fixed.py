"""LambdaML on FuncPipe's problem: no cut, no choice (FuncPipe section 5.1).

Functions of the most memory, each with as many micro-batches as fit, so as few functions as can be;
plain scatter-reduce where the problem has it. HybridPS (Cirrus) needs a server, and accumulated
gradients (LambdaML-GA) other memory than 3b has: neither is a plan of this problem; see
`benchmarks.parts.papers.funcpipe.peers`.
"""

from __future__ import annotations

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.pipeline_points import holds, plan_over_store, point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverStore,
)


def lambda_ml(problem: StagesOverStore, goal: Goal) -> Answer[PipelinePlan]:
    """One stage on as few of the largest functions as hold it. It asks for no weights."""
    p = problem
    largest = max(range(len(p.options)), key=lambda one: p.options[one].memory_mib)
    for degree in p.divisors:
        plan = plan_over_store(p, (), (largest,), degree, pipelined=False not in p.pipelined)
        if holds(p, plan):
            return Answer(goal.best([point(p, plan)]))
    return Answer(None)
