"""Stages with different numbers of replicas: who has which micro-batch, when, and from whom."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.batches import share
from dayfly.wire.pipelines.flow import Flow, Passing
from dayfly.wire.pipelines.orders import ORDERS, in_waves
from dayfly.wire.pipelines.routes import Routes
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, StageRank
from dayfly.wire.schedule import Schedule
from tests.pipelines.kit import ends_in, one_at_a_time

#: Replicas of each stage.
EACH = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)


def test_waves_as_drawn() -> None:
    routes = Routes((4, 2, 1), 8)
    computed = {
        stage: [
            [number for wave in routes.waves(stage, replica) for number in wave]
            for replica in range(replicas)
        ]
        for stage, replicas in enumerate((4, 2, 1))
    }
    assert computed == {
        0: [[0, 1], [2, 3], [4, 5], [6, 7]],
        1: [[0, 2, 1, 3], [4, 6, 5, 7]],
        2: [[0, 2, 4, 6, 1, 3, 5, 7]],
    }
    assert routes.waves(1, 1) == ((4, 6), (5, 7))
    assert Routes((4, 2, 1), 4, in_order=True).waves(1, 1) == ((), (), (2,), (3,))


def rows_of(flow: Flow, samples: int, own: StageRank) -> list[int]:
    """The rows of a batch that a rank has."""
    return [
        row
        for micro in flow.passing(samples, own).micros
        for row in share(samples, micro.number, flow.total)
    ]


@given(EACH, st.integers(1, 3), st.integers(1, 60))
def test_each_stage_has_every_row_once(each: tuple[int, ...], pieces: int, samples: int) -> None:
    flow = Flow(Layout(len(each), each), pieces)
    if flow.shared is None:
        return
    for stage, replicas in enumerate(each):
        rows = [sorted(rows_of(flow, samples, StageRank(stage, r))) for r in range(replicas)]
        assert [row for some in rows for row in some] == list(range(samples)), "in order, too"


def passings(flow: Flow, samples: int) -> dict[StageRank, Passing]:
    """Of every rank."""
    ranks = map(flow.layout.stage_rank, range(flow.layout.world_size))
    return {own: flow.passing(samples, own) for own in ranks}


@given(EACH, st.integers(1, 3), st.integers(1, 60), st.sampled_from([None, 5, 7, 12]))
def test_routes_lead_to_who_has_the_same_rows(
    each: tuple[int, ...], pieces: int, samples: int, leaves: int | None
) -> None:
    """What a rank sends to another is what that one expects from it, of as many samples."""
    flow = Flow(Layout(len(each), each), pieces, leaves)
    if flow.shared is None:
        return
    of = passings(flow, samples)

    def routed(own: StageRank, replicas: tuple[int, ...], to: int) -> set[tuple[object, ...]]:
        pairs = zip(of[own].micros, replicas, strict=True)
        return {(micro, *((own.replica, other)[::to])) for micro, other in pairs}

    for stage, _ in pairwise(range(len(each))):
        sent = [routed(own, of[own].behind, 1) for own in of if own.stage == stage]
        read = [routed(own, of[own].before, -1) for own in of if own.stage == stage + 1]
        assert set().union(*sent) == set().union(*read)
        assert sum(map(len, sent)) == len(set().union(*sent)), "each micro-batch once"


def schedules(flow: Flow, samples: int, name: str) -> list[Schedule]:
    """Of every rank, with a byte a sample over each boundary."""
    stages, found = flow.layout.stages, []
    for own, passing in passings(flow, samples).items():
        sides = []
        for replicas in (passing.before, passing.behind):
            pairs = zip(passing.micros, replicas, strict=False)
            sides.append(
                {
                    micro.number: StageBoundary(
                        activation_bytes=micro.samples, gradient_bytes=micro.samples, replica=to
                    )
                    for micro, to in pairs
                }
            )
        step = PipelineStep(
            layout=flow.layout,
            stage_rank=own,
            order=in_waves(ORDERS[name], own.stage, stages, passing.waves),
            before=sides[0],
            behind=sides[1],
            chunk_bytes=1 << 20,
        )
        found.append(step.schedule())
    return found


@pytest.mark.parametrize("name", ORDERS)
@given(
    EACH,
    st.integers(1, 3),
    st.integers(1, 40),
    st.sampled_from([None, 6, 11]),
    st.randoms(use_true_random=False),
)
def test_all_ranks_come_to_an_end(
    name: str, each: tuple[int, ...], pieces: int, samples: int, leaves: int | None, random: Random
) -> None:
    """One operation after another, and where a put waits for room for what is in flight."""
    flow = Flow(Layout(len(each), each), pieces, leaves)
    if flow.shared is None:
        return
    made = schedules(flow, samples, name)
    assert one_at_a_time(made) == [len(one) for one in made]
    largest = -(-samples // flow.total)
    assert ends_in(2 * largest, made, 2, random)
