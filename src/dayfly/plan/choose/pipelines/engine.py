"""The search's loops, compiled by numba where it is installed, or else on NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from dayfly.errors import RequestError
from dayfly.plan.choose.pipelines import kernels, vectorised


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The loops (`kernels` says what each does), and how finely bounds are worth making with them.

    columns: of tables at most. classes: of plans by their forward lag, about so many. descents:
    plans to make of each class's table, at most.
    """

    tables: Callable[..., Any]
    descend: Callable[..., Any]
    reach: Callable[..., Any]
    expand: Callable[..., Any]
    undominated: Callable[..., Any]
    columns: int
    classes: int
    descents: int


def engine(compiled: bool | None = None) -> Engine:
    """compiled: by numba; None: if it is installed. Raises RequestError if it is asked for, and not
    installed."""
    if compiled is None:
        compiled = find_spec("numba") is not None
    return _compiled() if compiled else _ON_ARRAYS


_ON_ARRAYS = Engine(
    tables=vectorised.tables,
    descend=vectorised.descend,
    reach=vectorised.reach,
    expand=vectorised.expand,
    undominated=vectorised.undominated,
    columns=128,
    classes=8,
    descents=8,
)


@cache
def _compiled() -> Engine:
    try:
        from numba import njit
    except ImportError:
        raise RequestError(
            "the compiled search needs numba: pip install 'dayfly[fast]', or search without it"
        ) from None
    compile_ = njit(cache=True, nogil=True)
    return Engine(
        tables=compile_(kernels.tables),
        descend=compile_(kernels.descend),
        reach=compile_(kernels.reach),
        expand=compile_(kernels.expand),
        undominated=compile_(kernels.undominated),
        columns=400,
        classes=16,
        descents=48,
    )
