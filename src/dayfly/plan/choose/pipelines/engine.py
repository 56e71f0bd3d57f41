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
    """See `kernels` for what each does."""

    tables: Callable[..., Any]
    descend: Callable[..., Any]
    expand: Callable[..., Any]
    undominated: Callable[..., Any]
    slacks: Callable[..., Any]


def engine(compiled: bool | None = None) -> Engine:
    """compiled: by numba; None: if it is installed. Raises RequestError if it is not, and asked."""
    if compiled is None:
        compiled = find_spec("numba") is not None
    return _compiled() if compiled else _ON_ARRAYS


_ON_ARRAYS = Engine(
    tables=vectorised.tables,
    descend=vectorised.descend,
    expand=vectorised.expand,
    undominated=vectorised.undominated,
    slacks=vectorised.slacks,
)


@cache
def _compiled() -> Engine:
    try:
        from numba import njit
        from numba.extending import register_jitable
    except ImportError:
        raise RequestError(
            "the compiled search needs numba: pip install 'dayfly[fast]', or search without it"
        ) from None
    register_jitable(kernels.can_improve)
    register_jitable(kernels.reach)
    jit = njit(cache=True, nogil=True)
    return Engine(
        tables=jit(kernels.tables),
        descend=jit(kernels.descend),
        expand=jit(kernels.expand),
        undominated=jit(kernels.undominated),
        slacks=jit(kernels.slacks),
    )
