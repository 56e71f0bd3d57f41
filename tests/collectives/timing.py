"""Virtual seconds of collectives, to be compared with their closed forms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from dayfly.wire import execution
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.conformance_world import SOON_S
from dayfly.wire.collectives.cost import AllReduce, Cost
from dayfly.wire.collectives.link import DirectionModel, LinkModel
from dayfly.wire.collectives.virtual_cost import cost_of
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import Schedule
from dayfly.wire.streams import Direction
from dayfly.wire.virtual import Link, finish_s, simulate

#: Bytes a second each way, and seconds, of the links of these tests.
RATE, LATENCY_S = 3.5e6, 0.04


def link(rate: float = RATE, latency_s: float = LATENCY_S, **others: Any) -> Link:
    """A link with the same rate each way."""
    return Link(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=latency_s, **others)


def seconds(schedules: Iterable[Schedule], over: Link | None = None) -> float:
    """When the last rank is through, with four-byte elements."""
    return finish_s(simulate(tuple(schedules), over or link()))


def direction(
    rate: float = RATE, latency_s: float = LATENCY_S, store: float = math.inf, chunk_bytes: int = 1
) -> DirectionModel:
    """Without headers, and with as many messages in flight as one likes."""
    way = Direction(
        occupied_s=lambda nbytes: (nbytes - HEADER_BYTES) / rate,
        latency_s=latency_s,
    )
    return DirectionModel(
        direction=way, in_flight=10**9, store_bytes_per_s=store, chunk_bytes=chunk_bytes
    )


def stated(
    name: str, size: int, length: int, *, aggregators: int | None = None, **line: Any
) -> Cost:
    """The cost that a collective states, over links of one rate each way; see `direction`."""
    both = direction(**line)
    one = AllReduce(members=size, length=length, link=LinkModel(up=both, down=both))
    return cost_of(name, collective(name, aggregators, size), one)


def without_looks(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether waiting is still of use, which is a request, however long it takes."""
    patch.setattr(execution, "LOOK_UP_S", 10 * SOON_S)
