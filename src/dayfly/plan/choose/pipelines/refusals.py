"""Why a model fits nowhere, and the nearest that would do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dayfly.errors import RequestError
from dayfly.plan.choose.in_words import counted
from dayfly.plan.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    Problem,
    StagesOverLinks,
    StagesOverStore,
)


def refusal(problem: Problem) -> RequestError:
    """Of a problem without any plan."""
    if isinstance(problem, StagesOverLinks):
        return _over_links(problem)
    return _over_store(problem)


def needs_bytes(
    layer: LayerBytes, option: MemoryOption, copies: Sequence[float], replicas: int, micro: int
) -> float:
    """Of a stage of one layer: mu a + copies s + s_0 (FuncPipe 3b)."""
    kept = micro // replicas * layer.activation_bytes
    return kept + copies[replicas > 1] * layer.parameter_bytes + option.base_bytes


def _over_store(p: StagesOverStore) -> RequestError:
    """Either a layer fits into no option, with any degree, or so many stages are too many."""
    nearest = []
    for d in p.divisors:
        each = [
            min(
                (needs_bytes(layer, option, p.copies, d, p.micro_batches) - option.memory_bytes, j)
                for j, option in enumerate(p.options)
            )
            for layer in p.layers
        ]
        number = max(range(len(each)), key=lambda i: each[i][0])
        nearest.append((each[number][0], d, number, p.options[each[number][1]]))
    over, d, number, option = min(nearest, key=lambda one: one[:3])
    if over > 0:
        need = needs_bytes(p.layers[number], option, p.copies, d, p.micro_batches)
        return _too_large(number, need, option, p.micro_batches, d)
    least = min(_fewest(p, d) * d for d in p.divisors)
    return RequestError(
        f"the model fits into no fewer than {counted(least, 'function')}, and the limit is "
        f"{p.functions_at_once} at once: allow {least}, or take larger functions"
    )


def _fewest(p: StagesOverStore, d: int) -> float:
    """Stages; inf if a layer fits nowhere. The largest option is as good as any that fits less."""
    count, at = 0, 0
    while at < len(p.layers):
        end = at
        for option in p.options:
            held, last = option.base_bytes, at
            while last < len(p.layers):
                layer = p.layers[last]
                held += needs_bytes(layer, option, p.copies, d, p.micro_batches) - option.base_bytes
                if held > option.memory_bytes:
                    break
                last += 1
            end = max(end, last)
        if end == at:
            return math.inf
        count, at = count + 1, end
    return count


def _over_links(p: StagesOverLinks) -> RequestError:
    """Either no A x B suits, or a shard of a layer does not fit, or all shards are too few."""
    suits = [
        (way, n // a)
        for way in p.micro_batches
        for n in p.containers
        for a in range(1, n + 1)
        if n % a == 0 and way.micro_batches % a == 0 and n // a <= len(way.layers)
    ]
    if not suits:
        most = max(len(way.layers) for way in p.micro_batches)
        return RequestError(
            f"no A x B makes {p.containers} containers with A a divisor of "
            f"{[way.micro_batches for way in p.micro_batches]} micro-batches and B at most {most} "
            "shards: take another number"
        )
    nearest = []
    for way in p.micro_batches:
        for a in (one for one in range(1, max(p.containers) + 1) if way.micro_batches % one == 0):
            need, number = max(
                (needs_bytes(layer, way.container, p.copies, a, way.micro_batches), i)
                for i, layer in enumerate(way.layers)
            )
            nearest.append((need - way.container.memory_bytes, number, need, way, a))
    over, number, need, way, a = min(nearest, key=lambda one: one[:2])
    if over > 0:
        return _too_large(number, need, way.container, way.micro_batches, a)
    return RequestError(
        f"the model fits into {p.containers} containers in no way: take more of them, or larger "
        "ones"
    )


def _too_large(
    number: int, need: float, option: MemoryOption, micro: int, replicas: int
) -> RequestError:
    need_mib = math.ceil(need / 2**20)
    return RequestError(
        f"the model fits nowhere: layer {number} alone needs {need_mib} MiB with "
        f"{counted(replicas, 'replica')} and {micro} micro-batches of a step, and functions of "
        f"{option.memory_mib} MiB come nearest: take functions of {need_mib} MiB, or smaller "
        "micro-batches"
    )
