"""The front of cut models: seconds against dollars of a step, to the proven optimum."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.pipelines.engine import engine
from dayfly.planning.choose.pipelines.links import search_over_links
from dayfly.planning.choose.pipelines.over_store import search_over_store
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import Problem, StagesOverLinks, StagesOverStore
from dayfly.planning.choose.pipelines.refusals import refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was found, and how sure it is.

    front: seconds and dollars of one step. gap: certified: for every plan that there is, the front
    has one that takes at most (1 + gap) of its seconds and costs at most (1 + gap) of its dollars.
    0.0: nothing is better than the front, but for rounding (less than 10^-9 of it). instead: NumPy
    searched, as numba would have to compile first, for longer than the time limit.
    """

    front: Front[PipelinePlan]
    gap: float = 0.0
    instead: bool = False

    @property
    def exact(self) -> bool:
        """Whether nothing is better."""
        return self.gap == 0.0


def choose(
    *problems: Problem, time_limit_s: float | None = None, compiled: bool | None = None
) -> Choice:
    """All plans that none dominates, of one problem or of several together, such as of stores.

    time_limit_s: after so long the search ends with what it has, and a gap, unless it is through; a
    first look is taken in any case. None: it goes on until it is exact. compiled: whether by numba,
    which has to be installed; None: if it is, and worth it (`engine`). Raises RequestError, with
    the nearest that would do, if no problem has a plan.
    """
    if not problems:
        raise RequestError("nothing to choose among: give a problem")
    deadline = None if time_limit_s is None else time.perf_counter() + time_limit_s
    loops = engine(compiled, problems=problems, time_limit_s=time_limit_s)
    stores = [problem for problem in problems if isinstance(problem, StagesOverStore)]
    points: list[Point[PipelinePlan]] = []
    gaps = [0.0]
    if stores:
        found, gap = search_over_store(stores, loops, deadline)
        points, gaps = points + found, [*gaps, gap]
    for problem in problems:
        if isinstance(problem, StagesOverLinks):
            found, gap = search_over_links(problem, loops, deadline)
            points, gaps = points + found, [*gaps, gap]
    if not points:
        raise refusal(problems[0])
    return Choice(front=Front.of(points), gap=max(gaps), instead=loops.instead)
