"""Scatter-reduce over a store, LambdaML's form (FuncPipe section 3.3, figure 4a, equation 1).

n workers cut the buffer into n splits; rank r is in charge of split r.

    phase 1  rank r uploads the n-1 splits that others are in charge of         `part`
    phase 2  rank r downloads the n-1 contributions to split r and sums them up
    phase 3  rank r uploads its sum, then downloads the n-1 sums of the others  `sum`

    rank 0, n = 3:   uplink    |part>1|part>2|             |sum 0|
                     downlink                |part<1|part<2|     |sum 1|sum 2|
                     compute                               |reduce, drop parts|

It is `collectives.k_reduce` with n aggregators, whose order of summation it has: rank order.
"""

from __future__ import annotations

from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.k_reduce import reduce_at, sums_at

#: n aggregators of n.
scatter_reduce = reduce_at
sums = sums_at
SCATTER_REDUCE = Collective(schedule=scatter_reduce, sums=sums)


def scatter_reduce_s(
    size_bytes: float, world_size: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds by FuncPipe equation 1: 3s/w - 2s/(nw) + 4 t_lat.

    s = size_bytes, n = world_size, w = bytes_per_s of a worker, each way; t_lat = latency_s. Exact
    in virtual time if n divides the buffer.
    """
    s, n, w = size_bytes, world_size, bytes_per_s
    return 3 * s / w - 2 * s / (n * w) + 4 * latency_s
