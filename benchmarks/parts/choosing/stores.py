"""Functions, memory and store of data-parallel training, by CE-scaling's equations 2 to 5, exactly.

All allocations (n, m, s) are computed, as arrays. Left out is only what cannot be: more functions
than run at once, than a step has samples, or than there are batches in an epoch; and batches that
do not fit into memory.

The equations are those of `formulas.ce_scaling`, but that a lone function needs no store: it sums
nothing up, and asks for nothing.

Equation 3 has transfers one after another, as if the store carried one at a time. That is right for
a store that is the bottleneck. Over lines of their own functions are sooner through, in n + 2
transfers (docs/formulas.md): it is hard on such a store where there are many functions, so near
equals should be predicted before one is believed (`planning.predict`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from benchmarks.parts.choosing.store_problem import MemorySize, StoreOption, StorePlan, StoreProblem
from benchmarks.parts.papers.formulas.ce_scaling import (
    epoch_s,
    epoch_usd,
    minutes_usd,
    requests_usd,
    server_sync_s,
    stateless_sync_s,
    steps,
)
from dayfly.errors import RequestError
from dayfly.planning.choose.arrays import Array, Ints, on_arrays, undominated
from dayfly.planning.choose.front import Front, Point


def sync_s(
    store: StoreOption,
    n: Array,
    size_bytes: float,
    *,
    bytes_per_s: float | None = None,
    latency_s: float | None = None,
) -> Array:
    """Seconds of a step's sum (equation 3). bytes_per_s, latency_s: None: the store's.

    A lone function sums nothing up.
    """
    equation = on_arrays(server_sync_s if store.sums else stateless_sync_s)
    rate = store.bytes_per_s if bytes_per_s is None else bytes_per_s
    lag_s = store.latency_s if latency_s is None else latency_s
    return np.where(n > 1, equation(n, size_bytes, rate, lag_s), 0.0)


def asked_usd(store: StoreOption, n: Array, k: Array, size_bytes: float) -> Array:
    """Dollars of requests (equation 5), of which a step has 10n + 2.

    n put a model and 2(n - 1) get one; the others, 7n + 4, ask in vain, and are billed as gets of
    nothing. The price of a request is the mean of these.
    """
    if store.facts is None:
        return np.zeros(np.broadcast(n, k).shape)
    size = math.ceil(size_bytes)
    put_usd, get_usd = store.facts.puts_usd(1, size), store.facts.gets_usd(1, size)
    ask_usd = store.facts.gets_usd(1, 0)
    all_usd = n * put_usd + 2 * (n - 1) * get_usd + (7 * n + 4) * ask_usd
    return np.where(n > 1, on_arrays(requests_usd)(k, n, all_usd / (10 * n + 2)), 0.0)


def bytes_usd(store: StoreOption, n: Array, k: Array, size_bytes: float) -> Array:
    """Dollars of bytes, where a store bills those: n models up and 2(n - 1) down in a step."""
    if store.facts is None:
        return np.zeros(np.broadcast(n, k).shape)
    moved_usd = on_arrays(store.facts.transfer_usd)(n * size_bytes, 2 * (n - 1) * size_bytes)
    return np.where(n > 1, k * moved_usd, 0.0)


def time_usd(store: StoreOption, n: Array, epoch_s: Array, size_bytes: float) -> Array:
    """Dollars of a store's minutes (equation 5), or of what it keeps: n models, at most."""
    if store.facts is None:
        usd = on_arrays(minutes_usd)(epoch_s, store.usd_per_minute)
    else:
        size, facts = math.ceil(size_bytes), store.facts
        each = {one: facts.storage_usd(int(one) * size, 1.0) for one in np.unique(n).tolist()}
        usd = np.vectorize(each.__getitem__, otypes=[float])(n) * epoch_s
    return np.where(n > 1, usd, 0.0)


def plan_stores(problem: StoreProblem) -> Front[StorePlan]:
    """All allocations that none dominates: the Pareto boundary of section III-B.

    Of equal ones, such as lone functions over any store, the first store's. Raises RequestError if
    no batch fits into any memory, or none is large enough for so many functions.
    """
    workers = allowed_workers(problem)
    n, sizes = workers.astype(float), Sizes.of(problem.sizes)
    fits = np.broadcast_to(on_arrays(problem.batch_of)(n), (len(problem.sizes), len(n)))
    allowed = (fits <= sizes.most_batch_bytes) & (n <= sizes.most_workers)
    size_at, worker_at = np.nonzero(allowed)
    if not len(size_at):
        raise _fits_nowhere(problem, workers)
    whole: list[tuple[float, float, StorePlan]] = []
    for store in problem.stores:
        seconds, usd = (all_[size_at, worker_at] for all_ in run_of(problem, store, n, sizes))
        for at in undominated(seconds, usd).tolist():
            plan = StorePlan(
                workers=int(workers[worker_at[at]]),
                memory_mib=problem.sizes[size_at[at]].memory_mib,
                store=store.name,
            )
            whole.append((float(seconds[at]), float(usd[at]), plan))
    most = int(workers[-1])
    return Front.of(Point(*one, _limits(problem, one[2], most)) for one in whole)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Memory sizes as columns, (m, 1); see `MemorySize`."""

    compute_s_per_byte: Array
    loading_bytes_per_s: Array
    usd_per_s: Array
    step_s: Array
    most_batch_bytes: Array
    most_workers: Array

    @classmethod
    def of(cls, sizes: tuple[MemorySize, ...]) -> Self:
        """Of these."""
        return cls(
            *(
                np.array([[getattr(size, name)] for size in sizes], dtype=float)
                for name in cls.__slots__
            )
        )


def run_of(
    problem: StoreProblem, store: StoreOption, n: Array, sizes: Sizes
) -> tuple[Array, Array]:
    """Seconds and dollars of the run, (m, n): equations 2 and 4, once an epoch (13 and 15)."""
    p = problem
    k = on_arrays(steps)(p.data_bytes, n, on_arrays(p.batch_of)(n))
    between_s = sync_s(store, n, p.size_bytes) + sizes.step_s
    seconds = on_arrays(epoch_s)(
        p.data_bytes, n, sizes.loading_bytes_per_s, sizes.compute_s_per_byte, k, between_s
    )
    store_usd = (
        asked_usd(store, n, k, p.size_bytes)
        + bytes_usd(store, n, k, p.size_bytes)
        + time_usd(store, n, seconds, p.size_bytes)
    )
    usd = on_arrays(epoch_usd)(n, p.usd_per_invocation, seconds, sizes.usd_per_s, store_usd)
    return p.epochs * seconds, p.epochs * usd


def allowed_workers(problem: StoreProblem) -> Ints:
    """All n that the limits allow, rising. Raises RequestError if there is none."""
    p = problem
    if p.shared_batch:
        most = _times(p.batch_bytes, p.sample_bytes) if p.sample_bytes else np.inf
    else:
        most = _times(p.data_bytes, p.batch_bytes)
    workers = np.unique(np.array(p.workers, dtype=np.int64))
    found = workers[(workers <= most) & (workers <= (p.at_once or np.inf))]
    if not len(found):
        what = "a batch has samples" if p.shared_batch else "an epoch has batches"
        raise RequestError(
            f"{workers[0]} functions are more than {what}, {int(most)}: "
            f"take {int(most)} functions at most"
        )
    return found


def _times(whole: float, part: float) -> float:
    """How many parts a whole has: of 31 s there are 31, though (31 s)/s is less for some floats."""
    return math.floor(whole / part * (1 + 1e-12))


def _fits_nowhere(problem: StoreProblem, workers: Ints) -> RequestError:
    largest = max(problem.sizes, key=lambda size: size.most_batch_bytes)
    least, holds = problem.batch_of(int(workers[-1])), largest.most_batch_bytes
    if not holds:
        instead = "none of it: cut it into stages"
    elif problem.shared_batch:
        instead = f"{holds:.0f} bytes: take {math.ceil(problem.batch_bytes / holds)} functions"
    else:
        instead = f"{holds:.0f} bytes: allow such batches"
    return RequestError(
        f"the model fits nowhere with a batch of {least:.0f} bytes a function: even functions of "
        f"{largest.memory_mib} MiB hold {instead}, or take larger functions"
    )


def _limits(problem: StoreProblem, plan: StorePlan, most: int) -> tuple[str, ...]:
    """What the plan is at the limit of: more of it might allow a better one."""
    found = []
    if plan.workers == most:
        found.append(f"{most} functions at once")
    if plan.memory_mib == max(size.memory_mib for size in problem.sizes):
        found.append(f"functions of {plan.memory_mib} MiB")
    return tuple(found)
