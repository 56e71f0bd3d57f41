"""The three ways in which the loops of a search can run, each the same search.

numpy   on arrays
loops   as numba compiles them, run by Python: slower, and no compiler is needed
numba   compiled, which takes some twenty seconds the first time
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from dayfly.planning.choose.pipelines import bound_kernels, kernels
from dayfly.planning.choose.pipelines import compiled as by_numba

_LOOPS = {
    bound_kernels: ("tables", "descend", "weigh", "reach", "open_stages"),
    kernels: ("expand", "undominated", "transfers"),
}
EVERY_ENGINE = pytest.mark.parametrize(
    "engine", ["numpy", "loops", pytest.param("numba", marks=pytest.mark.slow)]
)


@contextmanager
def searching(name: str) -> Iterator[bool]:
    """Yields what `choose` gets as `compiled`."""
    if name == "numba":
        pytest.importorskip("numba")
    if name != "loops":
        yield name == "numba"
        return
    loops = {name: getattr(module, name) for module, names in _LOOPS.items() for name in names}
    with (
        patch.object(by_numba, "loops", lambda: loops),
        patch.object(by_numba, "_compiled", by_numba._compiled.__wrapped__),
    ):
        yield True
