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
    ranks: Sequence[Rank], shared: Shared = ALONE, steps: int = 1
) -> tuple[tuple[Moments, ...], ...]:
    """To the end; returns the moments of each rank's streams.

    Args:
        ranks: all of them.
        shared: what they have together.
        steps: how often they go through their streams (`streams.repeated`).

    Raises ValueError naming an operation that waits for ever, if the schedules do not fit.
    """
    if (state := compiled.ran(ranks, shared, steps)) is None:
        return Run(repeated(ranks, steps), shared).run()
    # Whoever has no NumPy has no compiled loop, either.
    from dayfly.wire.loop.flattened import moments

    return moments(state, ranks, steps)


def ends(
    ranks: Sequence[Rank], shared: Shared = ALONE, steps: int = 1
) -> tuple[tuple[Moments, ...], list[float]]:
    """Returns the moments of rank 0's streams, and when each rank is through, in seconds.

    Arguments and errors as of `run`, which takes longer, as it makes the moments of all.
    """
    if (state := compiled.ran(ranks, shared, steps)) is None:
        found = Run(repeated(ranks, steps), shared).run()
        return found[0], [
            max((max(one.done_s, default=0.0) for one in each), default=0.0) for each in found
        ]
    from dayfly.wire.loop.flattened import ends_s, moments

    return moments(state, ranks[:1], steps)[0], ends_s(state, ranks, steps)
