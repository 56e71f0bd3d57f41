"""The schedule of a step: as written down, and that those of all ranks fit each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.keys import Key
from dayfly.wire.pipelines.orders import ORDERS, MakeOrder, fill_drain, forward_only, one_f_one_b
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import (
    Layout,
    PipelineStep,
    StageBoundary,
    StageRank,
    input_part,
    output_part,
)
from dayfly.wire.schedule import MOST_CHUNKS, Kind, Name, Schedule, Work
from dayfly.wire.virtual import Link, Timed, simulate
from tests.pipelines.kit import Boundaries, ends_in, equal, one_at_a_time, pipeline


def written(schedule: Schedule) -> list[str]:
    """A line each operation: its position, what it does, and what it waits for."""
    lines = []
    for position, op in enumerate(schedule):
        what = op.kind.value
        if op.work is not None:
            what = f"{op.work.what} {op.work.micro_batch}"
        elif op.name is not None:
            name, span = op.name, op.span
            route = f"{name.source}>{name.destination}"
            what += f" {name.phase} {route} {span.start}:{span.stop}"
        after = f" after {', '.join(map(str, op.after))}" if op.after else ""
        lines.append(f"{position} {what}{after}")
    return lines


def test_two_stages_two_micro_batches() -> None:
    """Two replicas; the second micro-batch is smaller, as at the end of an epoch.

    Parts of micro-batch 0, then of 1; what comes in for a pass, and what it sends:
    stage 0   |f: 0|4|b: 4|0|  |f: 0|2|b: 2|0|
    stage 1   |f: 4|0|b: 0|4|  |f: 2|0|b: 0|2|
    """
    between = {
        0: StageBoundary(activation_bytes=4, gradient_bytes=4),
        1: StageBoundary(activation_bytes=2, gradient_bytes=2),
    }
    steps = pipeline(Layout(2, 2), fill_drain, range(2), [[between]] * 2, chunk_bytes=2)
    assert [step.sizes() for step in steps[::2]] == [
        (0, 4, 4, 0, 0, 2, 2, 0),
        (4, 0, 0, 4, 2, 0, 0, 2),
    ]
    assert written(steps[0].schedule(ahead=1)) == [
        "0 forward 0",
        "1 put f0-0 0>2 0:2 after 0",
        "2 put f0-1 0>2 2:4 after 0",
        "3 forward 1",
        "4 put f1-0 0>2 8:10 after 3",
        "5 get b0-0 2>0 4:6 after 0",
        "6 get b0-1 2>0 6:8 after 0",
        "7 backward 0 after 5, 6, 1, 2",
        "8 get b1-0 2>0 10:12 after 3",
        "9 backward 1 after 8, 4",
    ]
    assert written(steps[3].schedule(ahead=1)) == [
        "0 get f0-0 1>3 0:2",
        "1 get f0-1 1>3 2:4",
        "2 forward 0 after 0, 1",
        "3 get f1-0 1>3 8:10",
        "4 forward 1 after 3",
        "5 backward 0",
        "6 put b0-0 3>1 4:6 after 5",
        "7 put b0-1 3>1 6:8 after 5",
        "8 backward 1",
        "9 put b1-0 3>1 10:12 after 8",
    ]


def test_three_stages_one_forward_one_backward() -> None:
    """The middle one computes 0, 1, 0', 2, 1', 2'; four bytes a message, one chunk each."""
    layout = Layout(3, 1)
    steps = pipeline(layout, one_f_one_b, range(3), equal(layout, range(3), 4), chunk_bytes=4)
    assert written(steps[1].schedule()) == [
        "0 get f0-0 0>1 0:4",
        "1 forward 0 after 0",
        "2 put f0-0 1>2 4:8 after 1",
        "3 get f1-0 0>1 16:20",
        "4 forward 1 after 3",
        "5 put f1-0 1>2 20:24 after 4",
        "6 get b0-0 2>1 8:12",
        "7 backward 0 after 6",
        "8 put b0-0 1>0 12:16 after 7",
        "9 get f2-0 0>1 32:36 after 1",
        "10 forward 2 after 9, 2",
        "11 put f2-0 1>2 36:40 after 10",
        "12 get b1-0 2>1 24:28 after 4",
        "13 backward 1 after 12, 5",
        "14 put b1-0 1>0 28:32 after 13",
        "15 get b2-0 2>1 40:44 after 7",
        "16 backward 2 after 15, 8",
        "17 put b2-0 1>0 44:48 after 16",
    ]


def test_a_rank_that_starts_again_puts_only_what_is_not_stored() -> None:
    layout = Layout(2, 1)
    steps = pipeline(layout, fill_drain, range(2), equal(layout, range(2), 4), chunk_bytes=2)
    stored = {Name("f0-1", 0, 1), Name("f1-0", 0, 1), Name("f1-1", 0, 1)}
    assert written(steps[0].schedule(stored)) == [
        "0 forward 0",
        "1 put f0-0 0>1 0:2 after 0",
        "2 forward 1",
        "3 get b0-0 1>0 4:6",
        "4 get b0-1 1>0 6:8",
        "5 backward 0 after 3, 4",
        "6 get b1-0 1>0 12:14 after 0",
        "7 get b1-1 1>0 14:16 after 0",
        "8 backward 1 after 6, 7, 1",
    ]


def test_without_anything_to_learn_before_it_a_boundary_carries_no_gradients() -> None:
    layout = Layout(2, 1)
    boundaries = [[{0: StageBoundary(activation_bytes=2)}]]
    first, last = pipeline(layout, fill_drain, range(1), boundaries, chunk_bytes=2)
    assert written(first.schedule()) == [
        "0 forward 0",
        "1 put f0-0 0>1 0:2 after 0",
        "2 backward 0",
    ]
    assert written(last.schedule()) == ["0 get f0-0 0>1 0:2", "1 forward 0 after 0", "2 backward 0"]


def test_one_stage_only_computes() -> None:
    (step,) = pipeline(Layout(1, 1), one_f_one_b, range(2), [[]], chunk_bytes=2)
    lines = ["0 forward 0", "1 backward 0", "2 forward 1", "3 backward 1"]
    assert written(step.schedule()) == lines
    assert step.gets() == step.puts() == ()
    assert Slots(step.sizes(), step.schedule()).numel() == 0


def test_parts() -> None:
    works = [Work(what, number) for number in (0, 3) for what in ("forward", "backward")]
    assert [(input_part(work), output_part(work)) for work in works] == [
        (0, 1),
        (2, 3),
        (12, 13),
        (14, 15),
    ]


def test_boundaries_that_do_not_fit_are_refused() -> None:
    passes = fill_drain(0, 3, range(2))

    def step(stage: int, order: tuple[Work, ...] = passes, **others: Any) -> PipelineStep:
        own = StageRank(stage, 0)
        return PipelineStep(
            layout=Layout(3, 1), stage_rank=own, order=order, chunk_bytes=1, **others
        )

    between = dict.fromkeys(range(2), StageBoundary(activation_bytes=1))
    step(0, behind=between)
    with pytest.raises(ValueError, match="stage 0 of 3 has no boundary before it"):
        step(0, before=between, behind=between)
    with pytest.raises(ValueError, match="stage 2 of 3 has no boundary behind it"):
        step(2, before=between, behind=between)
    with pytest.raises(ValueError, match="stage 1: no boundary before it for micro-batch 1"):
        step(1, before={0: between[0]}, behind=between)
    with pytest.raises(ValueError, match="stage 1: no boundary behind it for micro-batch 0"):
        step(1, before=between)
    with pytest.raises(ValueError, match="replica 0 of stage 3: there is none"):
        step(3, behind=between)
    with pytest.raises(ValueError, match="a pass is there twice"):
        step(0, behind=between, order=(Work("forward", 0), Work("forward", 0)))
    with pytest.raises(ValueError, match="-1 inputs ahead"):
        step(0, behind=between).schedule(ahead=-1)


#: Orders of every stage, also where there is no backward pass.
EVERY_ORDER = {**ORDERS, "forward-only": forward_only}
SIZES = st.integers(0, 40)
SECONDS = st.floats(0, 3)


@st.composite
def pipelines(draw: st.DrawFn) -> list[PipelineStep]:
    """Any layout, order, micro-batches and sizes, which differ by boundary and replica."""
    layout = Layout(draw(st.integers(1, 4)), draw(st.integers(1, 2)))
    micro_batches = sorted(draw(st.sets(st.integers(0, 6), max_size=5)))
    boundary = st.builds(StageBoundary, activation_bytes=SIZES, gradient_bytes=SIZES)
    boundaries: list[Boundaries] = [
        [{number: draw(boundary) for number in micro_batches} for _ in range(layout.stages - 1)]
        for _ in range(layout.replicas)
    ]
    make: MakeOrder = EVERY_ORDER[draw(st.sampled_from(sorted(EVERY_ORDER)))]
    return pipeline(layout, make, micro_batches, boundaries, draw(st.integers(1, 12)))


@settings(deadline=None)
@given(pipelines(), st.integers(0, 3), st.data())
@pytest.mark.long
def test_all_ranks_fit_each_other(
    steps: list[PipelineStep], ahead: int, data: st.DataObject
) -> None:
    """Nobody waits for ever, over any links; every message is put and got once."""
    schedules = [step.schedule(ahead=ahead) for step in steps]
    links = [
        Link(
            up_bytes_per_s=data.draw(st.floats(1, 100)),
            down_bytes_per_s=data.draw(st.floats(1, 100)),
            latency_s=data.draw(SECONDS),
            in_flight=data.draw(st.integers(1, 5)),
        )
        for _ in schedules
    ]
    passes = {(rank, work) for rank, step in enumerate(steps) for work in step.order}
    takes = {one: data.draw(SECONDS) for one in sorted(passes, key=str)}
    times = simulate(schedules, links, itemsize=1, work_s=lambda rank, work: takes[rank, work])
    for one, step in zip(times, steps, strict=True):
        _check_bounds(one, step, ahead)
    assert one_at_a_time(schedules) == [len(schedule) for schedule in schedules]
    counts = {
        kind: Counter(op.name for schedule in schedules for op in schedule if op.kind is kind)
        for kind in (Kind.PUT, Kind.GET)
    }
    assert counts[Kind.PUT] == counts[Kind.GET]
    assert set(counts[Kind.PUT].values()) <= {1}
    assert Counter(name for step in steps for name in step.puts()) == counts[Kind.PUT]
    assert Counter(name for step in steps for name in step.gets()) == counts[Kind.GET]
    for step, schedule in zip(steps, schedules, strict=True):
        assert [op.work for op in schedule if op.kind is Kind.COMPUTE] == list(step.order)


@settings(deadline=None)
@given(pipelines(), st.integers(0, 3), st.integers(1, 4), st.randoms(use_true_random=False))
@pytest.mark.long
def test_an_outbox_of_what_is_in_flight_is_enough(
    steps: list[PipelineStep], ahead: int, in_flight: int, random: Random
) -> None:
    """Over a direct channel puts wait for room. One message's is enough for puts in their order;
    those that are under way beside the first may take that of one each before it does."""
    schedules = [step.schedule(ahead=ahead) for step in steps]
    largest = max((len(op.span) for schedule in schedules for op in schedule), default=0)
    assert ends_in(in_flight * largest, schedules, in_flight, random)
    if largest:
        assert not ends_in(largest - 1, schedules, in_flight, random)


def _check_bounds(times: Sequence[Timed], step: PipelineStep, ahead: int) -> None:
    """Never more than `ahead` inputs beside the pass that is computed, nor outputs."""
    passes = {one.op.work: one for one in times if one.op.work is not None}
    numbers = {part: work for work in step.order for part in (input_part(work), output_part(work))}
    slots = Slots(step.sizes(), Schedule(()))
    parts = {slots.span(part).start: part for part, size in enumerate(step.sizes()) if size}
    comes = dict.fromkeys(step.order, float("inf"))
    gone = {work: one.done_s for work, one in passes.items()}
    for one in times:
        if one.op.name is not None:
            start = max(begin for begin in parts if begin <= one.op.span.start)
            work = numbers[parts[start]]
            if one.op.kind is Kind.GET:
                comes[work] = min(comes[work], one.start_s)
            else:
                gone[work] = max(gone[work], one.done_s)
    for number, work in enumerate(step.order):
        began = passes[work].start_s
        earlier = step.order[: max(0, number - ahead)]
        assert all(gone[other] <= began for other in earlier)
        later = step.order[number + ahead + 1 :]
        assert all(comes[other] >= passes[work].done_s for other in later)


@settings(deadline=None)
@given(pipelines())
def test_messages_are_whole_and_their_names_are_keys(steps: list[PipelineStep]) -> None:
    for step in steps:
        schedule = step.schedule()
        slots = Slots(step.sizes(), schedule)
        covered: Counter[int] = Counter()
        for op in schedule:
            if op.name is not None:
                assert Key(0, f"pipe-{op.name.phase}", op.name.source, op.name.destination)
                assert slots[op.span.start : op.span.stop].numel() == len(op.span) > 0
                covered.update(range(op.span.start, op.span.stop))
        assert covered == Counter(range(slots.numel()))


def test_a_large_message_has_few_chunks() -> None:
    layout = Layout(2, 1)
    boundaries = equal(layout, range(1), 10**6)
    steps = pipeline(layout, forward_only, range(1), boundaries, chunk_bytes=10)
    assert len(steps[0].puts()) == MOST_CHUNKS
