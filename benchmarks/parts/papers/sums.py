"""What an all-reduce takes: the product's own schedules in virtual time."""

from __future__ import annotations

import math
from functools import cache

from benchmarks.parts.papers.formulas.collectives import pipelined_s, scatter_reduce_s
from dayfly.wire.collectives import collective
from dayfly.wire.virtual import Link, finish_s, simulate

#: Elements of the sums: float32.
_ITEM_BYTES = 4
#: Workers up to whom every message is simulated; closed forms are exact, and quicker, beyond.
_MOST_SIMULATED = 32
#: FuncPipe's equations 1 and 2.
CLOSED = {"scatter-reduce": scatter_reduce_s, "pipelined": pipelined_s}


@cache
def sum_s(
    name: str,
    workers: int,
    size_bytes: float,
    bytes_per_s: float,
    latency_s: float,
    *,
    aggregators: int | None = None,
    direct: bool = False,
) -> float:
    """Seconds of one all-reduce over links of so many bytes a second, each way.

    name, aggregators: as `--collective` and `--aggregators`. direct: from worker to worker, and
    received as it is sent.
    """
    if workers == 1:
        return 0.0
    if name in CLOSED and workers > _MOST_SIMULATED:
        return CLOSED[name](size_bytes, workers, bytes_per_s, latency_s)
    make = collective(name, aggregators, workers).schedule
    length = round(size_bytes / _ITEM_BYTES)
    # A message is a split, as in the papers.
    schedules = [make(rank, workers, length, chunk=length) for rank in range(workers)]
    link = Link(
        up_bytes_per_s=bytes_per_s,
        down_bytes_per_s=math.inf if direct else bytes_per_s,
        latency_s=latency_s,
        direct=direct,
    )
    return finish_s(simulate(schedules, link, itemsize=_ITEM_BYTES))
