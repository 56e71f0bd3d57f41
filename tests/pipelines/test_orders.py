"""In which order stages compute, as drawn; and what they hold meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.pipelines import orders
from dayfly.wire.pipelines.orders import (
    BACKWARD,
    FORWARD,
    ORDERS,
    MakeOrder,
    fill_drain,
    forward_only,
    one_f_one_b,
)
from dayfly.wire.pipelines.step import Layout
from dayfly.wire.schedule import Kind, Work
from dayfly.wire.virtual import Link, simulate
from tests.pipelines.kit import equal, pipeline

#: So fast that only computing takes time.
AT_ONCE = Link(up_bytes_per_s=float("inf"), down_bytes_per_s=float("inf"), latency_s=0)

DRAWN = {
    "fill-drain": """\
    stage 0 |0 |1 |2 |3 |  |  |  |  |0'|1'|2'|3'|
    stage 1 |  |0 |1 |2 |3 |  |  |0'|1'|2'|3'|  |
    stage 2 |  |  |0 |1 |2 |3 |0'|1'|2'|3'|  |  |
""",
    "1F1B": """\
    stage 0 |0 |1 |2 |  |  |0'|3 |1'|  |2'|  |3'|
    stage 1 |  |0 |1 |  |0'|2 |1'|3 |2'|  |3'|  |
    stage 2 |  |  |0 |0'|1 |1'|2 |2'|3 |3'|  |  |
""",
}


def short(works: tuple[Work, ...]) -> str:
    """`0 1 0' 1'`"""
    marks = {FORWARD: "", BACKWARD: "'"}
    return " ".join(f"{work.micro_batch}{marks[work.what]}" for work in works)


def most_held(works: tuple[Work, ...]) -> int:
    """Most micro-batches whose forward pass is done, and the backward one not."""
    held, most = set(), 0
    for work in works:
        if work.what == FORWARD:
            held.add(work.micro_batch)
        most = max(most, len(held))
        if work.what == BACKWARD:
            held.remove(work.micro_batch)
    assert not held
    return most


@pytest.mark.parametrize("name", DRAWN)
def test_the_drawing_is_what_happens(name: str) -> None:
    """In virtual time, where a pass takes a second and sending nothing."""
    layout = Layout(3, 1)
    boundaries = equal(layout, range(4), 8)
    steps = pipeline(layout, ORDERS[name.lower()], range(4), boundaries, 8)
    times = simulate([step.schedule() for step in steps], AT_ONCE, work_s=lambda rank, work: 1.0)
    lines = []
    for stage, ops in enumerate(times):
        boxes = ["  "] * 12
        for one in ops:
            if one.op.kind is Kind.COMPUTE:
                assert one.op.work is not None
                boxes[round(one.start_s)] = short((one.op.work,)).ljust(2)
        lines.append(f"    stage {stage} |{'|'.join(boxes)}|\n")
    assert "".join(lines) == DRAWN[name]
    assert f"    {name}\n{DRAWN[name]}" in str(orders.__doc__)


def test_orders_of_few_micro_batches() -> None:
    """1F1B with no more micro-batches than stages that follow is fill-drain."""
    cases = {(0, 4): "0 1 0' 1'", (2, 4): "0 1 0' 1'", (3, 4): "0 0' 1 1'"}
    for (stage, stages), expected in cases.items():
        assert short(one_f_one_b(stage, stages, range(2))) == expected
    assert short(fill_drain(3, 4, range(2))) == "0 1 0' 1'"
    assert short(forward_only(3, 4, range(2))) == "0 1"
    assert short(one_f_one_b(0, 2, (1, 4, 5))) == "1 4 1' 5 4' 5'"
    assert all(make(0, 2, ()) == () for make in (fill_drain, one_f_one_b, forward_only))


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 12), st.data())
def test_what_a_stage_holds(stages: int, count: int, data: st.DataObject) -> None:
    """Fill-drain: all micro-batches; 1F1B: as many as there are stages from this one on."""
    stage = data.draw(st.integers(0, stages - 1))
    assert most_held(fill_drain(stage, stages, range(count))) == count
    assert most_held(one_f_one_b(stage, stages, range(count))) == min(stages - stage, count)


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
@settings(deadline=None)
@given(stages=st.integers(1, 6), count=st.integers(0, 10), data=st.data())
def test_every_pass_is_there_once_and_backwards_in_one_order(
    make: MakeOrder, stages: int, count: int, data: st.DataObject
) -> None:
    works = make(data.draw(st.integers(0, stages - 1)), stages, range(count))
    for what in (FORWARD, BACKWARD):
        assert [work.micro_batch for work in works if work.what == what] == list(range(count))
    assert len(works) == 2 * count


@pytest.mark.parametrize("make", [fill_drain, one_f_one_b, forward_only])
def test_there_is_no_such_stage(make: MakeOrder) -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        make(2, 2, range(3))
