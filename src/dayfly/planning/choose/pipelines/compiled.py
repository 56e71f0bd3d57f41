"""Loops of the search, compiled by numba where it is there and worth it, or on NumPy's arrays.

    python -m dayfly.planning.choose.pipelines.compiled

compiles the search and virtual time (`wire.loop`) once, in 10 to 60 s, and keeps them on this
machine. From then on they are read, without numba (`dayfly.compiled`). A plan that finds none
compiles the search alone, and goes through messages by plain Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dayfly.compiled import Loops, has_numba
from dayfly.native import Argument, Array
from dayfly.planning.choose.pipelines import bound_kernels, kernels, vectorised
from dayfly.planning.choose.pipelines.problem import Problem, StagesOverStore
from dayfly.wire.loop import compiled as virtual_time


def _arrays(dtype: str) -> tuple[Array, ...]:
    """Of one dimension, two, three and four; rows lie one after another, as StepModel has them."""
    return tuple(Array(np.dtype(dtype), ndim) for ndim in (1, 2, 3, 4))


def _of_bounds() -> dict[str, tuple[Argument, ...]]:
    """What arguments each loop has."""
    f1, f2, f3, f4 = _arrays("float64")
    i1, i2, i3, _ = _arrays("int64")
    stages, number = (f4, f3, _arrays("bool")[2]), "float64"
    return {
        "open_stages": (*stages, i1, number, f3),
        "tables": (*stages, i1, number, "int64"),
        "descend": (f3, *stages, i1, number, i1),
        "weigh": (i2, *stages, f4, i2, i3, i1),
        "reach": (f2, f4, f1),
    }


def _of_search() -> dict[str, tuple[Argument, ...]]:
    """The same of the loops over labels and shards."""
    f1, f2, f3, f4 = _arrays("float64")
    i1, i2, i3, _ = _arrays("int64")
    stages, whole = (f4, f3, _arrays("bool")[2]), "int64"
    return {
        "expand": (whole, *stages, f1, i2, i3, f2, i1, i1, i2, f2, f3, f1),
        "transfers": (f3, f1, whole, f1, whole, i2),
        "undominated": (f2, i1, "float64", "boolean"),
    }


_KERNELS = (
    Loops((bound_kernels.__name__,), _of_bounds),
    Loops((kernels.__name__,), _of_search),
)


@cache
def loops() -> Mapping[str, Any]:
    """By name, compiled or read; from then on virtual time is what numba compiled, too, if that can
    be read. Raises RequestError if numba is not installed."""
    found = {name: loop for each in _KERNELS for name, loop in each.load().items()}
    if virtual_time.LOOPS.are_cached():
        virtual_time.load()
    return found


def is_cached() -> bool:
    """Whether `loops` need not compile. Raises RequestError if numba is not installed."""
    return all(each.are_cached() for each in _KERNELS)


def is_loaded() -> bool:
    """Whether this process has them already."""
    return loops.cache_info().currsize > 0


#: Layers x memory sizes x degrees from which on loops are compiled, or read: NumPy takes 0.8 ms for
#: each, numba a sixth of it (FuncPipe's shapes, up to 40 layers).
_WORTH_LOADING = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLoops:
    """The loops (`bound_kernels` and `kernels` say what each does), and how finely bounds are worth
    making with them.

    Attributes:
        columns: of tables at most.
        wide: lags from which on a class of plans is taken apart, as a part of its plans' seconds.
        descents: plans to make of each class's table, at most.
    """

    tables: Callable[..., Any]
    descend: Callable[..., Any]
    weigh: Callable[..., Any]
    reach: Callable[..., Any]
    open_stages: Callable[..., Any]
    expand: Callable[..., Any]
    undominated: Callable[..., Any]
    transfers: Callable[..., Any]
    columns: int
    wide: float
    descents: int


def engine(compiled: bool | None = None, *, problems: Sequence[Problem] = ()) -> SearchLoops:
    """Returns the loops to search with.

    Args:
        compiled: by numba; None: if it is installed, and loaded already or worth it.
        problems: to be searched.

    Raises:
        RequestError: numba is asked for, and not installed.
    """
    if compiled is not None:
        return _compiled() if compiled else _ON_ARRAYS
    if not has_numba():
        return _ON_ARRAYS
    return _compiled() if is_loaded() or is_worth(sum(map(_work, problems))) else _ON_ARRAYS


def is_worth(work: int) -> bool:
    """Returns whether compiled loops are worth it for so many layers x memory sizes x degrees."""
    return work >= _WORTH_LOADING


def make_ready(work: int, told: Callable[[str], None]) -> None:
    """Loads the loops before a search's clock begins, if they are worth it, and compiles them first
    if need be. From then on all searches of this process use them, however small.

    Args:
        work: layers x memory sizes x degrees, about.
        told: what is done, if it takes long.
    """
    if not has_numba() or is_loaded() or not is_worth(work):
        return
    if is_cached():
        loops()
        return
    told("numba compiles the search for cuts, once on this machine: 5 to 30 s")
    started = time.perf_counter()
    loops()
    then = "from now on it is read" if is_cached() else NOT_KEPT
    told(f"compiled in {time.perf_counter() - started:.0f} s; {then}")


#: Where no file can be written, or this numba's code needs what `dayfly.native` does not have.
NOT_KEPT = "it could not be kept on this machine, so each plan compiles it again"


def _work(problem: Problem) -> int:
    """What a search takes grows with it; over links it takes little."""
    if not isinstance(problem, StagesOverStore):
        return 0
    return len(problem.layers) * len(problem.options) * len(problem.divisors)


_ON_ARRAYS = SearchLoops(
    tables=vectorised.tables,
    descend=vectorised.descend,
    weigh=vectorised.weigh,
    reach=vectorised.reach,
    open_stages=vectorised.open_stages,
    expand=vectorised.expand,
    undominated=vectorised.undominated,
    transfers=vectorised.transfers,
    columns=128,
    wide=0.08,
    descents=8,
)


@cache
def _compiled() -> SearchLoops:
    return SearchLoops(**loops(), columns=300, wide=0.04, descents=16)


if __name__ == "__main__":
    started = time.perf_counter()
    virtual_time.load()
    loops()
    print(f"the search for cuts is compiled: {time.perf_counter() - started:.1f} s")
    if not (is_cached() and virtual_time.LOOPS.are_cached()):
        raise SystemExit(NOT_KEPT)
