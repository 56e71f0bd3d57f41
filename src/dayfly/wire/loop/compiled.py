"""Virtual time, compiled: a hundredth of a second where `plain` takes a second.

It is read with the loops of the search for cuts (`planning.choose`), by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dayfly.compiled import Loops
from dayfly.native import Argument, Array, Arrays
from dayfly.wire.streams import Rank, Shared

if TYPE_CHECKING:
    from dayfly.wire.loop.records import State

#: Operations from which on making arrays takes less time than it saves.
_WORTH = 200


def _signatures() -> dict[str, tuple[Argument, ...]]:
    from dayfly.wire.loop.records import RECORDS, State

    each = (RECORDS.get(name, np.dtype(np.int64)) for name in State._fields)
    return {"run_events": (Arrays(State, tuple(Array(one, 1) for one in each)),)}


#: Of virtual time.
LOOPS = Loops(
    (
        "dayfly.wire.loop.records",
        "dayfly.wire.loop.agenda",
        "dayfly.wire.loop.processors",
        "dayfly.wire.loop.lines",
        "dayfly.wire.loop.events",
    ),
    _signatures,
    # A call would copy seven words for each array and count references to it, which takes five
    # times as long as what it does. The loops allocate nothing: no reference need be counted.
    {"_nrt": False, "forceinline": True},
)


@cache
def load() -> Callable[[Any], int]:
    """Returns the loop; from then on `run` uses it.

    Raises:
        RequestError: numba is not installed.
    """
    return LOOPS.load()["run_events"]


def ran(ranks: Sequence[Rank], shared: Shared, steps: int = 1) -> State | None:
    """Returns the state at the end of a run; None: this loop cannot run it, or it waits for ever.

    Args:
        ranks, shared, steps: as of `simulation.run`.
    """
    if not load.cache_info().currsize or shared.cores < math.inf:
        return None
    each = sum([len(stream.plan.numbers) for rank in ranks for stream in rank.streams])
    if steps * each < _WORTH:
        return None
    from dayfly.wire.loop.flattened import flattened

    state = flattened(ranks, shared, steps)
    return None if load()(state) else state
