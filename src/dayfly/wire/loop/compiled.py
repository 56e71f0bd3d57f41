"""Virtual time, compiled: a hundredth of a second where `plain` takes a second.

It takes the search's numba (`planning.choose`), so nothing loads it but what has numba already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from dayfly.compiled import Loops
from dayfly.wire.streams import Rank, Shared

if TYPE_CHECKING:
    from dayfly.wire.loop.records import State

#: Operations from which on making arrays takes less time than it saves.
_WORTH = 200


def _signatures(numba: Any) -> dict[str, tuple[Any, ...]]:
    from dayfly.wire.loop.records import RECORDS, State

    each = {
        name: numba.from_dtype(RECORDS[name]) if name in RECORDS else numba.int64
        for name in State._fields
    }
    arrays = [numba.types.Array(one, 1, "C") for one in each.values()]
    return {"run_events": (numba.types.NamedTuple(arrays, State),)}


#: Of virtual time.
LOOPS = Loops(
    (
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
    (loop,) = LOOPS.load().values()
    (compiled,) = loop.overloads.values()
    entry: Callable[[Any], int] = compiled.entry_point
    return entry


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
