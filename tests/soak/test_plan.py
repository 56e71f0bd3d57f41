"""What a soak plans follows from its seed, and is worth doing."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import pytest

from dayfly.runs.settings import Settings
from dayfly.specs.protocols import PROTOCOLS
from dayfly.wire.keys import COORDINATOR
from tests.soak import job
from tests.soak.plan import FULL, LEAVES, SHORT, VARIANTS, Size, plan, plans, variants


def test_a_plan_follows_from_seed_and_number() -> None:
    assert list(islice(plans(5), 3)) == [plan(5, number) for number in range(3)]
    assert len({str(plan(seed, 0)) for seed in range(10)}) > 5


def test_every_protocol_has_its_turn() -> None:
    assert set(PROTOCOLS) <= set(VARIANTS), "say in VARIANTS how to soak a new protocol"
    own = variants()
    for number, planned in enumerate(islice(plans(1), 2 * len(own))):
        assert own[number % len(own)].items() <= planned.settings.items()
        Settings(workers=planned.workers, **{**planned.settings, "channel": None})


def test_every_protocol_is_tried_with_every_number_of_workers() -> None:
    own = variants()
    pairs = {
        (number % len(own), planned.workers)
        for number, planned in enumerate(islice(plans(1), 3 * len(own)))
    }
    assert pairs == {(variant, workers) for variant in range(len(own)) for workers in (2, 3, 4)}


@pytest.mark.parametrize("size", [FULL, SHORT], ids=["full", "short"])
def test_plans_are_within_their_bounds(size: Size) -> None:
    workers = set()
    victims = set()
    sizes: set[Any] = set()
    channels = set()
    for planned in islice(plans(2, size), 40):
        workers.add(planned.workers)
        lifetime_s = planned.settings["lifetime_s"]
        assert isinstance(lifetime_s, float)
        assert 3 <= lifetime_s <= 6
        assert planned.least_s > 1.9 * lifetime_s, "several lives pass"
        assert len(planned.kills) == size.kills
        assert len(planned.asks) == size.asks
        asked = {ask.changes["workers"] for ask in planned.asks if "workers" in ask.changes}
        assert ("virtual_workers" in planned.settings) == bool(asked)
        sizes |= asked
        first = [next(iter(ask.changes)) for ask in planned.asks[:4]]
        other = ["channel", "memory_mib"]
        assert first == (["workers", *other[:1], "workers", *other[1:]] if asked else other * 2)
        where = [ask.changes["channel"] for ask in planned.asks if "channel" in ask.changes]
        assert all(a != b for a, b in pairwise([planned.settings["channel"], *where]))
        assert len(planned.outages) == size.outages
        channels.add((planned.settings["channel"], "virtual_workers" in planned.settings))
        victims |= {kill.victim for kill in planned.kills}
        of_workers = [fault for fault in planned.faults if fault.worker != COORDINATOR]
        assert len({fault.step for fault in of_workers}) == len(of_workers) == size.injected
        assert {fault.worker for fault in of_workers} <= set(range(planned.workers))
        assert {fault.what for fault in of_workers} == {"self", "zygote"}
        assert all(0 <= fault.step < job.STEPS for fault in planned.faults)
        assert "step" in {fault.point for fault in planned.faults if fault.worker == COORDINATOR}
    assert workers == {2, 3, 4}
    assert channels == {(where, how) for where in ("files", "redis") for how in (True, False)}
    assert victims == {f"worker-{rank}" for rank in range(4)} | {"zygote", "coordinator", "stop"}
    assert sizes <= set(range(1, LEAVES + 1))
    assert len(sizes) >= (LEAVES if size is FULL else LEAVES - 1)  # few are asked for in short runs
