"""Why this store: what each would take and cost with the same functions, and by which term.

    seconds   loading, computing, bandwidth, latency
    dollars   invocations; functions while they load and compute; functions while they wait for
              bandwidth, and for latency; requests, bytes and minutes of the store

The terms add up to equations 2 and 4, once an epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.parts.choosing.store_problem import StoreOption, StorePlan, StoreProblem
from benchmarks.parts.choosing.stores import asked_usd, bytes_usd, sync_s, time_usd
from benchmarks.parts.papers.formulas.ce_scaling import steps
from dayfly.planning.choose.front import Terms, difference, dollars, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A plan's functions over a store. seconds, usd: of the run, by term; see above."""

    store: str
    seconds: Terms
    usd: Terms

    @property
    def run_s(self) -> float:
        """The sum."""
        return sum(self.seconds.values())

    @property
    def run_usd(self) -> float:
        """The sum."""
        return sum(self.usd.values())


def beside(problem: StoreProblem, plan: StorePlan) -> tuple[Beside, ...]:
    """The plan's functions over each store, in the problem's order."""
    return tuple(_over(problem, plan, store) for store in problem.stores)


def words(problem: StoreProblem, plan: StorePlan) -> str:
    """The choice of a plan's store: it beside the others, with the terms that decide."""
    if plan.workers == 1:
        return "A lone function needs no store."
    over = {one.store: one for one in beside(problem, plan)}
    chosen = over.pop(plan.store)
    functions = f"{plan.workers} functions of {plan.memory_mib} MiB"
    said = (
        f"{functions} over {plan.store} take {seconds(chosen.run_s)} and {dollars(chosen.run_usd)}"
    )
    others = [
        f"{one.store} would take {seconds(one.run_s)} "
        f"({difference(chosen.seconds, one.seconds)}) and {dollars(one.run_usd)} "
        f"({difference(chosen.usd, one.usd)})"
        for one in over.values()
    ]
    return "; ".join([said, *others]) + "."


def _over(problem: StoreProblem, plan: StorePlan, store: StoreOption) -> Beside:
    p = problem
    size = next(one for one in p.sizes if one.memory_mib == plan.memory_mib)
    n = np.array([float(plan.workers)])
    k = np.array([steps(p.data_bytes, plan.workers, p.batch_of(plan.workers))])
    each = p.data_bytes / plan.workers
    bandwidth_s = k * sync_s(store, n, p.size_bytes, latency_s=0.0)
    latency_s = k * sync_s(store, n, p.size_bytes, bytes_per_s=math.inf)
    taken = {
        "loading": each / size.loading_bytes_per_s,
        "computing": each * size.compute_s_per_byte + k[0] * size.step_s,
        "bandwidth": bandwidth_s[0],
        "latency": latency_s[0],
    }
    functions_usd = plan.workers * size.usd_per_s
    whole_s = np.array([sum(taken.values())])
    costs = {
        "invocations": plan.workers * p.usd_per_invocation,
        "computing": functions_usd * (taken["loading"] + taken["computing"]),
        "bandwidth": functions_usd * taken["bandwidth"],
        "latency": functions_usd * taken["latency"],
        "requests": asked_usd(store, n, k, p.size_bytes)[0],
        "bytes": bytes_usd(store, n, k, p.size_bytes)[0],
        "minutes": time_usd(store, n, whole_s, p.size_bytes)[0],
    }
    return Beside(
        store=store.name,
        seconds={term: float(p.epochs * value) for term, value in taken.items()},
        usd={term: float(p.epochs * value) for term, value in costs.items()},
    )
