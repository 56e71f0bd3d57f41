"""Barrier: nobody is through before all have come. An all-reduce of nothing, at one aggregator.

    rank 0, n = 3:   uplink                          |sum|
                     downlink         |part<1|part<2|
                     compute                        |drop parts|
    rank 1           uplink    |part>0|
                     downlink                              |sum|

Empty messages: n puts and 2(n-1) gets, four latencies. Rank 0 drops what came to it; its one
message to everyone stays until its step is trimmed.
"""

from __future__ import annotations

from dayfly.wire.collectives.k_reduce import reduce_at
from dayfly.wire.schedule import Schedule


def barrier(rank: int, world_size: int, length: int = 0, *, chunk: int = 1) -> Schedule:
    """What `rank` does; see `MakeOther`. The buffer is left alone."""
    return reduce_at(rank, world_size, 0, aggregators=1)
