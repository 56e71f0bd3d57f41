"""Virtual seconds of fill-drain against FuncPipe's formula; and 1F1B's.

FuncPipe (section 3.4.1, with the transfers written out), for one replica, without the sum of
gradients:

    t = sum F + sum (fu + fd) + (mu - 1) Df + sum B + sum (bu + bd) + (mu - 1) Db

F, B: seconds of a stage's forward and backward pass of a micro-batch. fu, fd: of an activation over
a boundary, up and down: o / W of who sends and of who reads, and a latency each. bu, bd: the same
of a gradient. Df: the longest of all F, fu and fd; Db: of all B, bu and bd. mu: micro-batches.

It counts a latency as time of the lane. Here requests overlap, so the two agree where there is no
latency, and otherwise the formula is an upper bound, which a lane with one input ahead keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.pipelines.orders import FORWARD, MakeOrder, fill_drain, one_f_one_b
from dayfly.wire.pipelines.step import Layout, StageBoundary
from dayfly.wire.schedule import Work
from dayfly.wire.virtual import Link, finish_s, simulate
from tests.pipelines.kit import pipeline

#: Bytes, all messages' sizes being multiples: so all chunks of a message are equal.
UNIT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Seconds of each stage's passes, bytes a second of its link, and bytes of each boundary."""

    forward_s: list[float]
    backward_s: list[float]
    bytes_per_s: list[float]
    boundaries: list[StageBoundary]
    micro_batches: int
    latency_s: float

    def formula_s(self, chunk_of: int | None = None) -> float:
        """FuncPipe's t. chunk_of: messages go in so many chunks; None: as one, up and then down.

        In chunks a message's way down begins while it still goes up: what a boundary takes is the
        longer of the two, and a chunk of the other.
        """
        between = list(enumerate(self.boundaries))
        rate, lat_s = self.bytes_per_s, self.latency_s
        forth = [
            (one.activation_bytes / rate[at] + lat_s, one.activation_bytes / rate[at + 1] + lat_s)
            for at, one in between
        ]
        back = [
            (one.gradient_bytes / rate[at + 1] + lat_s, one.gradient_bytes / rate[at] + lat_s)
            for at, one in between
        ]
        total = 0.0
        for computed, transfers in ((self.forward_s, forth), (self.backward_s, back)):
            lag = max(*computed, *(one for pair in transfers for one in pair), 0.0)
            over = [
                sum(pair) if chunk_of is None else max(pair) + min(pair) / chunk_of
                for pair in transfers
            ]
            total += sum(computed) + sum(over) + (self.micro_batches - 1) * lag
        return total

    def simulated_s(self, *, chunk_bytes: int, ahead: int, make: MakeOrder = fill_drain) -> float:
        """When the last rank is through."""
        layout, numbers = Layout(len(self.forward_s), 1), range(self.micro_batches)
        between = [dict.fromkeys(numbers, one) for one in self.boundaries]
        steps = pipeline(layout, make, numbers, [between], chunk_bytes)
        links = [
            Link(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=self.latency_s)
            for rate in self.bytes_per_s
        ]

        def takes_s(rank: int, work: Work) -> float:
            return (self.forward_s if work.what == FORWARD else self.backward_s)[rank]

        schedules = [step.schedule(ahead=ahead) for step in steps]
        return finish_s(simulate(schedules, links, itemsize=1, work_s=takes_s))


@st.composite
def plans(draw: st.DrawFn, latency_s: st.SearchStrategy[float]) -> Plan:
    """Any stages and sizes; messages are UNIT to 20 UNIT bytes."""
    stages = draw(st.integers(1, 5))
    seconds = st.lists(st.floats(0.1, 10), min_size=stages, max_size=stages)
    size = st.integers(1, 20).map(lambda units: units * UNIT)
    boundary = st.builds(StageBoundary, activation_bytes=size, gradient_bytes=size)
    return Plan(
        forward_s=draw(seconds),
        backward_s=draw(seconds),
        bytes_per_s=draw(st.lists(st.floats(5, 500), min_size=stages, max_size=stages)),
        boundaries=draw(st.lists(boundary, min_size=stages - 1, max_size=stages - 1)),
        micro_batches=draw(st.integers(1, 8)),
        latency_s=draw(latency_s),
    )


WHOLE = 10**9


@settings(deadline=None)
@given(plans(st.just(0.0)), st.integers(1, 3))
def test_without_latency_whole_messages_take_what_the_formula_says(plan: Plan, ahead: int) -> None:
    assert plan.simulated_s(chunk_bytes=WHOLE, ahead=ahead) == pytest.approx(plan.formula_s())


@settings(deadline=None)
@given(plans(st.floats(0, 3)), st.integers(1, 3))
def test_with_latency_the_formula_is_an_upper_bound(plan: Plan, ahead: int) -> None:
    assert plan.simulated_s(chunk_bytes=WHOLE, ahead=ahead) <= plan.formula_s() * (1 + 1e-9)


@settings(deadline=None)
@given(plans(st.just(0.0)), st.integers(1, 3))
@pytest.mark.long
def test_chunks_save_most_of_the_shorter_way_of_each_boundary(plan: Plan, ahead: int) -> None:
    """Chunks of UNIT are 1 to 20 of a message; of 20 units each, so that all have as many."""
    twenty = [StageBoundary(activation_bytes=20 * UNIT, gradient_bytes=20 * UNIT)]
    plan = Plan(
        forward_s=plan.forward_s,
        backward_s=plan.backward_s,
        bytes_per_s=plan.bytes_per_s,
        boundaries=twenty * len(plan.boundaries),
        micro_batches=plan.micro_batches,
        latency_s=0.0,
    )
    assert plan.simulated_s(chunk_bytes=UNIT, ahead=ahead) == pytest.approx(plan.formula_s(20))


def test_nothing_overlaps_without_an_input_ahead() -> None:
    """Two stages, all passes and transfers a second long, four micro-batches.

    The last one's downlink and compute take turns: Df and Db count twice there but for what the
    formula has once; in the backward direction it is the first stage.
    """
    plan = Plan(
        forward_s=[1.0, 1.0],
        backward_s=[1.0, 1.0],
        bytes_per_s=[UNIT, UNIT],
        boundaries=[StageBoundary(activation_bytes=UNIT, gradient_bytes=UNIT)],
        micro_batches=4,
        latency_s=0.0,
    )
    assert plan.formula_s() == 2 * (2 + 2 + 3)
    assert plan.simulated_s(chunk_bytes=WHOLE, ahead=1) == 14
    assert plan.simulated_s(chunk_bytes=WHOLE, ahead=0) == 20


@pytest.mark.parametrize(
    ("transfer_s", "fill_drain_s", "one_f_one_b_s"), [(0.0, 27, 27), (0.5, 31, 39), (1.0, 35, 51)]
)
def test_one_forward_one_backward_pays_for_every_way(
    transfer_s: float, fill_drain_s: float, one_f_one_b_s: float
) -> None:
    """S = 3 equal stages, mu = 7, B = 2 F: (mu + S - 1) (F + B) where sending takes no time.

    Otherwise fill-drain pays for the way there and back once, as transfers overlap; 1F1B waits for
    a micro-batch's gradient before it begins another.
    """
    plan = Plan(
        forward_s=[1.0] * 3,
        backward_s=[2.0] * 3,
        bytes_per_s=[UNIT / transfer_s if transfer_s else float("inf")] * 3,
        boundaries=[StageBoundary(activation_bytes=UNIT, gradient_bytes=UNIT)] * 2,
        micro_batches=7,
        latency_s=0.0,
    )
    found = {
        make: plan.simulated_s(chunk_bytes=WHOLE, ahead=2, make=make)
        for make in (fill_drain, one_f_one_b)
    }
    assert found == {fill_drain: fill_drain_s, one_f_one_b: one_f_one_b_s}
