"""Cut models in plain Python: every plan, one after another, by the papers' equations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    StagesOverLinks,
    StagesOverStore,
)
from dayfly.wire.pipelines.orders import ORDERS


def assert_is_the_front(
    front: Front[PipelinePlan], points: list[Point[PipelinePlan]], gap: float = 0.0
) -> None:
    """Each plan takes what it takes, and nothing is better by more than the gap."""
    by_plan = {point.plan: point for point in points}
    for point in front.points:
        assert point.seconds == by_plan[point.plan].seconds
        assert point.usd == by_plan[point.plan].usd
    within = (1 + gap) * (1 + 1e-9)
    for point in points:
        assert any(
            one.seconds <= point.seconds * within and one.usd <= point.usd * within
            for one in front.points
        ), f"{point} is better than the front"


@st.composite
def layers(draw: st.DrawFn, count: int) -> tuple[LayerBytes, ...]:
    """Of whole bytes."""
    sizes = st.sampled_from([0, 1, 5, 20, 50, 100])
    return tuple(
        LayerBytes(
            parameter_bytes=2.0**20 * draw(sizes),
            activation_bytes=2.0**20 * draw(sizes),
            output_bytes=2.0**18 * draw(sizes),
            gradient_bytes=2.0**18 * draw(sizes),
        )
        for _ in range(count)
    )


@st.composite
def options(draw: st.DrawFn, count: int, many: int) -> tuple[MemoryOption, ...]:
    """Most often, but not always, the larger the faster and the dearer."""
    found = []
    per_mib = draw(st.sampled_from([1e-8, 3e-8]))
    seconds = draw(st.lists(st.floats(0.0, 1.0), min_size=count, max_size=count))
    for number in range(many):
        memory = draw(st.sampled_from([256, 512, 1024, 1536, 2048]))
        speed = memory / 1024 if draw(st.booleans()) else draw(st.floats(0.2, 3.0))
        dear = 1.0 if draw(st.integers(0, 3)) else draw(st.floats(0.5, 2.0))
        found.append(
            MemoryOption(
                memory_mib=memory + number,
                forward_s=tuple(one / speed for one in seconds),
                backward_s=tuple(
                    draw(st.sampled_from([1.0, 2.0])) * one / speed for one in seconds
                ),
                bytes_per_s=draw(st.sampled_from([1e6, 2e7, 7e7])),
                base_bytes=float(draw(st.sampled_from([0, 2**27]))),
                usd_per_s=per_mib * memory * dear,
                vcpus=draw(st.sampled_from([0.1, 0.25, 1.0, 4.0])),
            )
        )
    return tuple(found)


#: None, of some functions, and of each more.
DECLINES = st.sampled_from([(), (), ((2.0, 1.0), (3.0, 0.5)), ((1.0, 0.9), (8.0, 0.1))])


@st.composite
def store_problems(draw: st.DrawFn, **fixed: Any) -> StagesOverStore:
    """Small ones; not all have a plan."""
    mixed = fixed.get("mixed", False)
    count = draw(st.integers(1, 3 if mixed else 5))
    many = draw(st.integers(1, 2 if mixed else 3))
    degrees = st.lists(st.sampled_from([2, 3, 4, 8]), max_size=2, unique=True)
    values: dict[str, Any] = {
        "layers": draw(layers(count)),
        "options": draw(options(count, many)),
        "degrees": (1, *draw(degrees)),
        "micro_batches": draw(st.sampled_from([1, 2, 4, 8, 24])),
        "latency_s": draw(st.sampled_from([0.0, 0.04, 1.0])),
        "beta": draw(st.sampled_from([1.0, 1.2])),
        "pipelined": draw(st.sampled_from([(True,), (False,), (True, False)])),
        "functions_at_once": draw(st.sampled_from([None, None, 1, 2, 3, 5])),
        "vcpus_at_once": draw(st.sampled_from([None, None, 0.3, 1.5, 4.0])),
        "store_bytes_per_s": draw(st.sampled_from([math.inf, math.inf, 1e6, 6e7])),
        "decline": draw(DECLINES),
        "schedule": draw(st.sampled_from(list(ORDERS))),
    }
    return StagesOverStore(**{**values, **fixed})


@st.composite
def link_problems(draw: st.DrawFn) -> StagesOverLinks:
    """Small ones; not all have a plan."""
    count = draw(st.integers(1, 7))
    ways = []
    for micro in draw(
        st.lists(st.sampled_from([1, 2, 4, 6, 12]), min_size=1, max_size=2, unique=True)
    ):
        container = draw(options(count, 1))[0]
        ways.append(
            MicroBatches(micro_batches=micro, layers=draw(layers(count)), container=container)
        )
    return StagesOverLinks(
        micro_batches=tuple(ways),
        containers=tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=2, unique=True))),
        ring_s_per_byte=draw(st.sampled_from([0.0, 1e-8])),
        ring_round_s=draw(st.sampled_from([0.0, 0.05])),
        decline=draw(DECLINES),
        schedule=draw(st.sampled_from(list(ORDERS))),
    )


def random_problem(
    seed: int, *, layers: int, options: int, rate: float = 1.0, **more: Any
) -> StagesOverStore:
    """One of which no two plans take as long; a price for each MiB, and degrees 1, 2 and 4.

    rate: times 50 MB/s.
    """
    chance = np.random.default_rng(seed)
    sizes = np.rint(chance.uniform(1, 60, (layers, 4)) * 2**20)
    seconds = chance.uniform(0.1, 1.0, layers)
    values: dict[str, Any] = {
        "layers": tuple(
            LayerBytes(
                parameter_bytes=float(s),
                activation_bytes=float(a),
                output_bytes=float(o) / 4,
                gradient_bytes=float(g) / 4,
            )
            for s, a, o, g in sizes
        ),
        "options": tuple(
            MemoryOption(
                memory_mib=memory,
                forward_s=tuple((seconds * (1024 / memory) ** 0.9).tolist()),
                backward_s=tuple((seconds * (2000 / memory) ** 0.9).tolist()),
                bytes_per_s=5e7 * rate * (memory / 2048) ** 0.3,
                base_bytes=100.0 * 2**20,
                usd_per_s=memory * 1.6e-8,
            )
            for memory in (2048, 1024, 1536, 768, 512)[:options]
        ),
        "degrees": (1, 2, 4),
        "micro_batches": 8,
        "latency_s": 0.04,
        "pipelined": (True, False),
    }
    return StagesOverStore(**{**values, **more})
