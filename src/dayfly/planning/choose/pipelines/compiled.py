"""`kernels`, compiled by numba, which keeps what it compiled in a cache on this machine.

    python -m dayfly.planning.choose.pipelines.compiled

compiles them once, in 5 to 30 s; from then on they are read, in half a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from dayfly.errors import RequestError
from dayfly.planning.choose.pipelines import kernels

#: In words, for who has not done so yet.
COMMAND = f"python -m {__name__}"


@cache
def loops() -> Mapping[str, Any]:
    """By name, compiled or read from the cache. Raises RequestError if numba is not installed."""
    numba, found = _numba(), {}
    for name, signature in _signatures(numba).items():
        found[name] = numba.njit(cache=True, nogil=True)(getattr(kernels, name))
        found[name].compile(signature)
    return found


def is_cached() -> bool:
    """Whether `loops` need not compile: the last of them is there, as it is now, for this CPU and
    this numba. Raises RequestError if numba is not installed."""
    numba = _numba()
    *_, (name, signature) = _signatures(numba).items()
    loop = getattr(kernels, name)
    cached = numba.core.caching.FunctionCache(loop)
    return cached.load_overload(signature, numba.njit(loop).targetctx) is not None


def is_loaded() -> bool:
    """Whether this process has them already."""
    return loops.cache_info().currsize > 0


def _numba() -> Any:
    try:
        return import_module("numba")
    except ImportError:
        raise RequestError(
            "the compiled search needs numba: pip install 'dayfly[fast]', or search without it"
        ) from None


def _signatures(numba: Any) -> dict[str, tuple[Any, ...]]:
    """What arguments each loop has, in the order in which they are compiled."""
    boolean, float64, int64 = numba.boolean, numba.float64, numba.int64
    # Rows lie one after another in all arrays, as StepModel has them: one version of each loop.
    f1, f2, f3, f4 = float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, :, :, ::1]
    i1, i2 = int64[::1], int64[:, ::1]
    return {
        "expand": (int64, *(f3,) * 5, *(f2,) * 4, f1, i2, f2, i1, i1, i2, f2, f3, f1),
        "reach": (int64, f2, f4, f1),
        "tables": (*(f3,) * 5, *(f2,) * 3, i1, float64, int64),
        "descend": (*(f3,) * 5, *(f2,) * 3, i1, float64, int64),
        "transfers": (f3, f1, int64, f1, int64),
        "undominated": (f2, float64, boolean),
    }


if __name__ == "__main__":
    started = time.perf_counter()
    loops()
    print(f"the search for cuts is compiled: {time.perf_counter() - started:.1f} s")
