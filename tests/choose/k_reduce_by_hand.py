"""FasDL's problem in plain Python: every plan, one after another, by the equations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dayfly.catalogue.store import StoreFacts
from dayfly.planning.choose.k_reduce_problem import FunctionSize, KReduceProblem
from dayfly.planning.profile import Affine, Figure, Transfer

S3 = StoreFacts(name="s3", usd_per_put=5e-6, usd_per_get=4e-7)
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


def way(bytes_per_s: float, latency_s: float = 0.0, **more: Any) -> Transfer:
    """A function's way to the store."""
    given = Figure.given
    return Transfer(latency_s=given(latency_s), peak_bytes_per_s=given(bytes_per_s), **more)


def size(memory_mib: int = 1024, **more: Any) -> FunctionSize:
    """Functions that train a sample in 10 ms, over a way of 1000 bytes a second each way."""
    values: dict[str, Any] = {
        "memory_mib": memory_mib,
        "train": Affine(0.1, 0.01),
        "up": way(1000.0),
        "down": way(1000.0),
        "most_samples": 64,
        "usd_per_s": 1e-5,
    }
    return FunctionSize(**{**values, **more})


def problem(*sizes: FunctionSize, **more: Any) -> KReduceProblem:
    """1000 bytes of parameters, 1000 samples, one epoch."""
    values: dict[str, Any] = {
        "size_bytes": 1000.0,
        "data_bytes": 0.0,
        "samples": 1000,
        "epochs": 1.0,
        "sizes": sizes or (size(),),
        "workers": (1, 2, 3, 4),
        "aggregators_samples": (8, 16),
        "most_global_samples": 100,
        "store": S3,
    }
    return KReduceProblem(**{**values, **more})


positive = st.floats(1e-3, 1.0)


@st.composite
def sizes(draw: st.DrawFn, memory_mib: int) -> FunctionSize:
    """Quick and slow ones, over ways that are, too."""
    rates = st.sampled_from([50.0, 1000.0, 1e5])
    saturation = st.sampled_from([float("inf"), 0.01])
    fixed_s = draw(st.sampled_from([0.0, 0.2])) * draw(positive)
    return size(
        memory_mib,
        train=Affine(fixed_s, draw(positive) / 10),
        up=way(draw(rates), saturation_per_byte=draw(saturation)),
        down=way(draw(rates), draw(st.sampled_from([0.0, 0.3]))),
        most_samples=draw(st.integers(4, 40)),
        usd_per_s=draw(st.sampled_from([0.0, 1e-6, 1e-4])) * draw(positive),
        start_s=draw(st.sampled_from([0.0, 1.0])),
    )


@st.composite
def problems(draw: st.DrawFn) -> KReduceProblem:
    """Small ones, in which a plan fits. With many bytes of data loading is what takes long."""
    batches = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True))
    made = [draw(sizes(1024 * n)) for n in range(1, 1 + draw(st.integers(1, 2)))]
    workers = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True))
    least = min(workers) * min(batches)
    return problem(
        *made,
        size_bytes=float(draw(st.integers(1, 2000))),
        data_bytes=draw(st.sampled_from([0.0, 1e4, 1e6])),
        workers=tuple(workers),
        aggregators_samples=tuple(sorted(batches)),
        most_global_samples=draw(st.integers(least, least + 80)),
        store=draw(st.sampled_from([None, S3, DEAR])),
        usd_per_invocation=draw(st.sampled_from([0.0, 1e-6])),
        epochs=draw(st.sampled_from([1.0, 3.0])),
        store_bytes_per_s=draw(st.sampled_from([float("inf"), float("inf"), 200.0])),
    )
