"""Seconds and dollars of K-REDUCE's plans, one at a time, by `plan.formulas.fasdl`.

Equations 5 to 11, corrected (docs/errata.md), as `planning.choose.k_reduce_bounds` has them for all
at once. samples may be arrays.
"""

from __future__ import annotations

import math
from typing import Any

from dayfly.planning.choose.formulas import (
    communication_s,
    functions_usd,
    global_batch,
    hybrid_step_s,
    loading_s,
    requests_usd,
    run_s,
)
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.k_reduce_problem import FunctionSize, KReducePlan, KReduceProblem
from dayfly.wire.collectives.k_reduce import k_reduce_bytes


def synchronous(
    p: KReduceProblem, size: FunctionSize, workers: int, aggregators: int, samples: Any
) -> tuple[Any, Any]:
    """All wait for the sums of each step, and have the same samples: K = W is ScatterReduce, K = 1
    is AllReduce (section II-B)."""
    line = _line(p, size, workers, aggregators)
    step_s = size.train(samples) + communication_s(*line)
    return _whole(p, size, workers, aggregators, samples, workers * samples, step_s)


def hybrid(p: KReduceProblem, size: FunctionSize, plan: KReducePlan) -> Point[KReducePlan]:
    """A plan with aggregators and others, or with aggregators alone."""
    workers, aggregators, own = plan.workers, plan.aggregators, plan.aggregators_samples
    if workers == aggregators:
        seconds, usd = synchronous(p, size, workers, aggregators, own)
        return Point(float(seconds), float(usd), plan)
    others = plan.others_samples
    line = _line(p, size, workers, aggregators)
    step_s = hybrid_step_s(size.train(own), size.train(others), *line)
    samples = global_batch(workers, aggregators, own, others)
    seconds, usd = _whole(p, size, workers, aggregators, others, samples, step_s)
    return Point(float(seconds), float(usd), plan)


def rates(p: KReduceProblem, size: FunctionSize, aggregators: int) -> tuple[float, float]:
    """tp_up and tp_down of a shard (equation 2)."""
    shard_bytes = p.size_bytes / aggregators
    return size.up.throughput(shard_bytes), size.down.throughput(shard_bytes)


def _line(
    p: KReduceProblem, size: FunctionSize, workers: int, aggregators: int
) -> tuple[float, int, int, float, float, float]:
    share = p.share(workers)
    up, down = (min(share, rate) for rate in rates(p, size, aggregators))
    return p.size_bytes, workers, aggregators, up, down, size.latency_s


def _whole(
    p: KReduceProblem,
    size: FunctionSize,
    workers: int,
    aggregators: int,
    most: Any,
    samples: Any,
    step_s: Any,
) -> tuple[Any, Any]:
    """Of the run. most: samples of who has most; samples: B^g."""
    peak = min(p.share(workers), size.down.peak_bytes_per_s.value)
    load_s = size.start_s + loading_s(p.size_bytes, p.data_bytes, most, samples, peak)
    steps = p.samples / samples
    seconds = run_s(load_s, step_s, 0.0, steps, p.epochs)
    usd = functions_usd(size.usd_per_s, seconds, 1.0, workers)
    usd = usd + p.epochs * workers * p.usd_per_invocation
    if p.store is not None:
        whole = math.ceil(p.size_bytes)
        shard, moved = -(-whole // aggregators), k_reduce_bytes(whole, workers)
        put_usd, get_usd = p.store.puts_usd(1, shard), p.store.gets_usd(1, shard)
        usd = usd + requests_usd(put_usd, get_usd, workers, aggregators, steps, p.epochs)
        usd = usd + p.epochs * p.data_usd
        usd = usd + p.epochs * steps * p.store.transfer_usd(*moved)
        usd = usd + p.store.storage_usd(moved[0], 1.0) * seconds
    return seconds, usd
