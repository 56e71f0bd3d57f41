"""CE-scaling's problem in plain Python: every allocation, one after another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

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
from hypothesis import strategies as st

from dayfly.catalogue.store import StoreFacts

REQUESTS = StoreFacts(name="requests", usd_per_put=5e-6, usd_per_get=4e-7)
#: One that bills units of requests, bytes, and what it keeps.
DEAR = StoreFacts(
    name="dear",
    usd_per_put=1e-6,
    usd_per_get=1e-7,
    put_unit_bytes=64,
    item_max_bytes=300,
    usd_per_gb_up=30.0,
    usd_per_gb_down=10.0,
    usd_per_gb_hour=50.0,
    storage_min_bytes=1000,
)


def option(name: str = "requests", **more: Any) -> StoreOption:
    """A store that bills requests: 1000 bytes a second, 50 ms."""
    values: dict[str, Any] = {"name": name, "bytes_per_s": 1000.0, "latency_s": 0.05}
    if not more.get("sums"):
        values["facts"] = REQUESTS
    return StoreOption(**{**values, **more})


def server(name: str = "server", **more: Any) -> StoreOption:
    """A parameter server that bills minutes: 4000 bytes a second, 1 ms."""
    values: dict[str, Any] = {
        "bytes_per_s": 4000.0,
        "latency_s": 0.001,
        "usd_per_minute": 0.001,
        "sums": True,
    }
    return option(name, **{**values, **more})


def size(memory_mib: int = 1024, **more: Any) -> MemorySize:
    """Functions that compute 1000 bytes a second, and read as many."""
    values: dict[str, Any] = {
        "memory_mib": memory_mib,
        "compute_s_per_byte": 1e-3,
        "loading_bytes_per_s": 1000.0,
        "usd_per_s": 1e-5,
    }
    return MemorySize(**{**values, **more})


def problem(**more: Any) -> StoreProblem:
    """A model of 100 bytes; 10^4 bytes of data, of which a function uses 100 in a step."""
    values: dict[str, Any] = {
        "size_bytes": 100.0,
        "data_bytes": 1e4,
        "batch_bytes": 100.0,
        "sizes": (size(),),
        "stores": (option(), server()),
        "workers": tuple(range(1, 11)),
    }
    return StoreProblem(**{**values, **more})


def every_plan(p: StoreProblem) -> Iterator[tuple[float, float, StorePlan]]:
    """Seconds and dollars of every allocation that keeps the limits."""
    for store in p.stores:
        for one in p.sizes:
            for n in p.workers:
                batch = p.batch_bytes / n if p.shared_batch else p.batch_bytes
                enough = batch >= p.sample_bytes and n * batch <= p.data_bytes
                here = p.at_once is None or n <= p.at_once
                if enough and here and batch <= one.most_batch_bytes:
                    plan = StorePlan(workers=n, memory_mib=one.memory_mib, store=store.name)
                    yield *taken(p, one, store, n), plan


def taken(p: StoreProblem, one: MemorySize, store: StoreOption, n: int) -> tuple[float, float]:
    """Seconds and dollars of one allocation."""
    k = steps(p.data_bytes, n, p.batch_bytes / n if p.shared_batch else p.batch_bytes)
    sync = server_sync_s if store.sums else stateless_sync_s
    sync_s = sync(n, p.size_bytes, store.bytes_per_s, store.latency_s) if n > 1 else 0.0
    u, loading = one.compute_s_per_byte, one.loading_bytes_per_s
    seconds = epoch_s(p.data_bytes, n, loading, u, k, sync_s + one.step_s)
    store_usd = _store_usd(p, store, n, k, seconds) if n > 1 else 0.0
    usd = epoch_usd(n, p.usd_per_invocation, seconds, one.usd_per_s, store_usd)
    return p.epochs * seconds, p.epochs * usd


def _store_usd(p: StoreProblem, store: StoreOption, n: int, k: float, seconds: float) -> float:
    if store.facts is None:
        return minutes_usd(seconds, store.usd_per_minute)
    facts, model = store.facts, math.ceil(p.size_bytes)
    # One after another: n puts of a model, 2(n - 1) gets of one, and the rest of 10n + 2 in vain.
    prices = [facts.puts_usd(1, model)] * n + [facts.gets_usd(1, model)] * (2 * (n - 1))
    prices += [facts.gets_usd(1, 0)] * (10 * n + 2 - len(prices))
    mean = sum(prices) / len(prices)
    moved = facts.transfer_usd(n * model, 2 * (n - 1) * model)
    return requests_usd(k, n, mean) + k * moved + facts.storage_usd(n * model, seconds)


positive = st.floats(1e-3, 1.0)


@st.composite
def problems(draw: st.DrawFn) -> StoreProblem:
    """Small ones, in which a plan fits."""
    stores = [
        option(
            f"{name}-{at}",
            facts=draw(st.sampled_from([REQUESTS, DEAR])) if name == "requests" else None,
            bytes_per_s=draw(st.sampled_from([100.0, 1e4, 1e6])),
            latency_s=draw(st.sampled_from([0.0, 0.1])) * draw(positive),
            usd_per_minute=draw(positive) / 100 if name == "server" else 0.0,
            sums=name == "server",
        )
        for at, name in enumerate(
            draw(st.lists(st.sampled_from(["requests", "server"]), min_size=1, max_size=3))
        )
    ]
    made = tuple(
        size(
            1024 * at,
            compute_s_per_byte=draw(positive) / 100,
            loading_bytes_per_s=draw(st.sampled_from([100.0, 1e4, math.inf])),
            usd_per_s=draw(positive) * 1e-4,
            step_s=draw(st.sampled_from([0.0, 0.2])),
            most_batch_bytes=draw(st.sampled_from([500.0, 1000.0])),
        )
        for at in range(1, 1 + draw(st.integers(1, 3)))
    )
    workers = draw(st.lists(st.integers(1, 15), min_size=1, max_size=6, unique=True))
    return problem(
        size_bytes=float(draw(st.integers(1, 1000))),
        batch_bytes=draw(st.floats(10, 500)),
        shared_batch=draw(st.booleans()),
        sample_bytes=draw(st.sampled_from([0.0, 1.0, 10.0])),
        sizes=made,
        stores=tuple(stores),
        workers=tuple(workers),
        at_once=draw(st.sampled_from([None, min(workers), min(workers) + 5])),
        epochs=draw(st.sampled_from([1.0, 4.0])),
        usd_per_invocation=draw(st.sampled_from([0.0, 1e-4])),
    )
