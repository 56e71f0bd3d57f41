"""FasDL's problem: every W, M, K, B^a and B^n, by the equations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.parts.papers.formulas.fasdl import others_batch
from dayfly.planning.choose.formulas import (
    aggregate_s,
    communication_s,
    functions_usd,
    global_batch,
    hybrid_step_s,
    loading_s,
    requests_usd,
    run_s,
)
from dayfly.planning.choose.k_reduce_problem import FunctionSize, KReducePlan, KReduceProblem
from dayfly.planning.decline import left_of_bandwidth
from dayfly.wire.collectives.k_reduce import k_reduce_bytes


def every_plan(p: KReduceProblem) -> Iterator[tuple[float, float, KReducePlan]]:
    """Seconds and dollars of every plan that keeps the limits."""
    for one in p.sizes:
        for w in p.workers:
            for k in range(1, w + 1):
                if p.aggregators is not None and k not in p.aggregators:
                    continue
                for own in p.aggregators_samples:
                    if own <= one.most_samples and own * w <= p.most_global_samples:
                        for others in _others(p, one, w, k, own):
                            s, usd = taken(p, one, w, k, own, others)
                            plan = KReducePlan(
                                workers=w,
                                memory_mib=one.memory_mib,
                                aggregators=k,
                                aggregators_samples=own,
                                others_samples=others if w > k else 0,
                            )
                            yield s, usd, plan


def _others(p: KReduceProblem, one: FunctionSize, w: int, k: int, own: int) -> range:
    if w == k:
        return range(own, own + 1)
    up, down = _rates(p, one, w, k)
    most = others_batch(
        one.train,
        own,
        aggregate_s(p.size_bytes, w, k, up, down),
        workers=w,
        aggregators=k,
        most_samples=one.most_samples,
        most_global_samples=p.most_global_samples,
    )
    return range(own, most + 1)


def _rates(p: KReduceProblem, one: FunctionSize, w: int, k: int) -> tuple[float, float]:
    """Bytes a second of a shard, up and down: of the store, and of its host, each has a part."""
    share, left = p.share(w), left_of_bandwidth(p.decline, w)
    up, down = one.up.throughput(p.size_bytes / k), one.down.throughput(p.size_bytes / k)
    return min(share, left * up), min(share, left * down)


def taken(
    p: KReduceProblem, one: FunctionSize, w: int, k: int, own: int, others: int
) -> tuple[float, float]:
    """Seconds and dollars of one plan."""
    up, down = _rates(p, one, w, k)
    latency_s = max(one.up.latency_s.value, one.down.latency_s.value)
    line = (p.size_bytes, w, k, up, down, latency_s)
    if w == k:
        step_s = one.train(own) + communication_s(*line)
    else:
        step_s = hybrid_step_s(one.train(own), one.train(others), *line)
    all_samples = global_batch(w, k, own, others)
    left = left_of_bandwidth(p.decline, w)
    peak = min(p.share(w), left * one.down.peak_bytes_per_s.value)
    load_s = one.start_s + loading_s(p.size_bytes, p.data_bytes, others, all_samples, peak)
    steps = p.samples / all_samples
    seconds = run_s(load_s, step_s, 0.0, steps, p.epochs)
    usd = functions_usd(one.usd_per_s, seconds, 1.0, w) + p.epochs * w * p.usd_per_invocation
    if p.store is not None:
        shard, moved = -(-math.ceil(p.size_bytes) // k), k_reduce_bytes(math.ceil(p.size_bytes), w)
        put, get = p.store.puts_usd(1, shard), p.store.gets_usd(1, shard)
        usd += requests_usd(put, get, w, k, steps, p.epochs)
        # Equation 10: E (2 S_d + I S_m (3W - 2)), at what bytes cost each way.
        usd += p.epochs * p.store.transfer_usd(math.ceil(p.data_bytes), math.ceil(p.data_bytes))
        usd += p.epochs * steps * p.store.transfer_usd(*moved)
        usd += p.store.storage_usd(moved[0], seconds)
    return seconds, usd
