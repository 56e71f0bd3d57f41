"""Several schedules at once on each rank, in virtual time: a whole step, not a collective alone.

    a rank    streams     |compute: data, forward, backward ...       |      each with lanes of its
                             |all-reduce of bucket 0  |                      own, as the engine's
                                 |all-reduce of bucket 1  |                  executions have
              lines       |uplink    |  |downlink    |                       shared by its streams
              processor   |passes, sums, the work of messages |              shared, too

A stream starts when what it waits for is done, and a pool has a turn for it. Of a stream's lanes
each starts its operations in their order: when what they wait for is done, and when they are less
than `in_flight` from the first that is not carried. A line carries its rank's transfers in the
order in which they ask for it, one at a time; large ones in pieces, between which others come.
"""

from __future__ import annotations

from collections.abc import Sequence

from dayfly.wire.loop import compiled
from dayfly.wire.loop.plain import Run
from dayfly.wire.streams import ALONE, Moments, Rank, Shared, repeated


def run(
    ranks: Sequence[Rank], shared: Shared = ALONE, steps: int = 1, asked: int | None = None
) -> tuple[tuple[Moments, ...], ...]:
    """To the end; returns the moments of ranks' streams.

    Args:
        ranks: all of them.
        shared: what they have together.
        steps: how often they go through their streams (`streams.repeated`).
        asked: of how many ranks moments are returned, the first ones; None: of all.

    Raises ValueError naming an operation that waits for ever, if the schedules do not fit.
    """
    found = compiled.run(ranks, shared, steps, asked)
    return found or Run(repeated(ranks, steps), shared).run()[:asked]
