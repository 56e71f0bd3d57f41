"""The search's loops, compiled by numba where it is there and worth it, or on NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from dayfly.planning.choose.pipelines import compiled as by_numba
from dayfly.planning.choose.pipelines import vectorised
from dayfly.planning.choose.pipelines.problem import Problem, StagesOverStore

#: Layers x memory sizes x degrees from which on numba is worth being loaded, which takes 0.5 s:
#: NumPy takes 0.8 ms for each, numba a sixth of it (FuncPipe's shapes, up to 40 layers).
_WORTH_LOADING = 600
#: Longer than numba compiles, even on a slow machine.
_COMPILING_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The loops (`kernels` says what each does), and how finely bounds are worth making with them.

    columns: of tables at most. classes: of plans by their forward lag, about so many. descents:
    plans to make of each class's table, at most. instead: of compiled loops, which were better, but
    would have to be compiled first (`compiled`), for longer than there is time.
    """

    tables: Callable[..., Any]
    descend: Callable[..., Any]
    reach: Callable[..., Any]
    expand: Callable[..., Any]
    undominated: Callable[..., Any]
    transfers: Callable[..., Any]
    columns: int
    classes: int
    descents: int
    instead: bool = False


def engine(
    compiled: bool | None = None,
    *,
    problems: Sequence[Problem] = (),
    time_limit_s: float | None = None,
) -> Engine:
    """compiled: by numba; None: if it is installed, loaded already or worth it for these problems,
    and need not compile, unless there is time. time_limit_s: of the search; None: no limit.

    Raises RequestError if it is asked for, and not installed.
    """
    if compiled is not None:
        return _compiled() if compiled else _ON_ARRAYS
    if find_spec("numba") is None:
        return _ON_ARRAYS
    if by_numba.is_loaded():
        return _compiled()
    if sum(map(_work, problems)) < _WORTH_LOADING:
        return _ON_ARRAYS
    has_time = time_limit_s is None or time_limit_s >= _COMPILING_S
    return _compiled() if has_time or by_numba.is_cached() else _INSTEAD


def _work(problem: Problem) -> int:
    """What a search takes grows with it; over links it takes less than loading numba does."""
    if not isinstance(problem, StagesOverStore):
        return 0
    return len(problem.layers) * len(problem.options) * len(problem.divisors)


_ON_ARRAYS = Engine(
    tables=vectorised.tables,
    descend=vectorised.descend,
    reach=vectorised.reach,
    expand=vectorised.expand,
    undominated=vectorised.undominated,
    transfers=vectorised.transfers,
    columns=128,
    classes=8,
    descents=8,
)


_INSTEAD = replace(_ON_ARRAYS, instead=True)


@cache
def _compiled() -> Engine:
    return Engine(**by_numba.loops(), columns=400, classes=16, descents=48)
