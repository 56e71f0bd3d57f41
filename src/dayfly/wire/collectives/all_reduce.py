"""All-reduce at one aggregator, LambdaML's AllReduce (FasDL figure 2a).

    phase 1  every other rank uploads its whole buffer                        `part`
    phase 2  rank 0 downloads them, sums them up in rank order, uploads that  `sum`
    phase 3  every other rank downloads the sum

    rank 0, n = 3:   uplink                          |sum 0|
                     downlink         |part<1|part<2|
                     compute                        |reduce, drop parts|
    rank 1           uplink    |part>0|
                     downlink                              |sum 0|

It is `collectives.k_reduce` with one aggregator: the fewest requests, n puts and 2(n-1) gets, and
the most time.
"""

from __future__ import annotations

from dayfly.wire.collectives.k_reduce import k_reduce

ALL_REDUCE = k_reduce(1)


def all_reduce_s(size_bytes: float, world_size: int, bytes_per_s: float, latency_s: float) -> float:
    """Seconds by FasDL equation 1 with K = 1: (W + 2) S/w, and four latencies.

    S = size_bytes, W = world_size, w = bytes_per_s of a worker, each way. Exact in virtual time.
    """
    return (world_size + 2) * size_bytes / bytes_per_s + 4 * latency_s
