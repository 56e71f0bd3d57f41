"""What many plans and workers have alike is made once, and says the same as if made for each."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest

from dayfly.planning import staged
from dayfly.planning.configuration import Configuration
from dayfly.planning.passages import BETWEEN, FIRST, LAST, PIECE, passage_plan
from dayfly.planning.profile import Affine
from dayfly.planning.ranks import ChannelModel, all_reduce, chain, small_sum
from dayfly.planning.summed import Summed
from dayfly.planning.timing import moved_by, timed
from dayfly.wire.collectives import SMALL_SUM, collective
from dayfly.wire.collectives.cost import AllReduce, Cost, Phase
from dayfly.wire.collectives.link import plain_link
from dayfly.wire.collectives.ring import RING
from dayfly.wire.collectives.virtual_cost import cost_of
from dayfly.wire.pipelines.orders import ORDERS, forward_only, in_waves
from dayfly.wire.schedule import CompiledSchedule, Kind, Work
from dayfly.wire.simulation import run
from dayfly.wire.streams import Direction, Live, MessageId, Moments, Rank, Stream, repeated
from tests.planning.by_hand import layer, profile, size

AT_ONCE = Direction(occupied_s=lambda nbytes: 0.0)


def stepping(*, is_store: bool = False) -> Rank:
    """A step of a pass of 2 s, a second stream of 3 s behind it, and an ending of 0.5 s."""
    streams = [
        Stream(plan=chain(1), name="pass", works_s=[2.0]),
        Stream(plan=chain(1), after=((0, 0),), works_s=[3.0]),
        Stream(plan=chain(1), after=((0, None), (1, None)), works_s=[0.5]),
    ]
    return Rank(streams=streams, up=AT_ONCE, down=AT_ONCE, is_store=is_store)


def test_steps_follow_each_other_and_their_messages_differ() -> None:
    (rank,) = repeated([stepping()], 3)
    assert [one.after for one in rank.streams[3:6]] == [
        ((2, None),),
        ((3, 0),),
        ((3, None), (4, None)),
    ]
    assert [one.name for one in rank.streams[::3]] == [(0, "pass"), (1, "pass"), (2, "pass")]
    assert rank.streams[1].name is None
    assert timed([rank], 3, lambda at: at == 2).step_s == 5.5
    assert timed([stepping()], 3, lambda at: at == 2, repeat=True).step_s == 5.5


def test_a_store_serves_steps_as_they_come() -> None:
    (store,) = repeated([stepping(is_store=True)], 2)
    assert store.streams[3].after == ()
    once = [stepping()]
    assert repeated(once, 1) is once


@pytest.mark.parametrize(("jitter", "kinds"), [(0.0, 1), (0.2, 3)])
def test_replicas_of_one_pace_have_the_same_passes(jitter: float, kinds: int) -> None:
    functions = size(
        2, forward=(Affine(0.0, 0.01),) * 2, backward=(Affine(0.0, 0.02),) * 2, jitter=jitter
    )
    made = profile([layer("a", 100, passed=40.0), layer("b", 100, passed=40.0)], functions)
    c = Configuration(
        workers=6, replicas=3, cut=(1,), memory_mib=(1024,), micro_batches=2, batch_size=12
    )
    first = staged.ranks(made, c, ChannelModel.of(made), 12)[:3]
    passages = [rank.streams[0] for rank in first]
    assert len({id(one.plan) for one in passages}) == 1
    assert len({tuple(one.works_s) for one in passages}) == kinds
    assert len({one.name for one in passages}) == 3


def test_who_asks_about_one_run_gets_the_same_workers() -> None:
    made = profile([layer("a", 100), layer("b", 100)], size(2))
    c = Configuration(workers=2, cut=(1,), memory_mib=(1024,), batch_size=4)
    means = ChannelModel.of(made)
    assert ChannelModel.of(replace(made)) is means
    assert staged.stage_workers(made, c, means) is staged.stage_workers(made, replace(c), means)
    other = replace(made)  # a profile that equals it may be another one
    assert staged.stage_workers(other, c, means) is not staged.stage_workers(made, c, means)


@pytest.mark.parametrize("members", [1, 2, 5])
def test_members_of_a_small_sum_have_one_plan(members: int) -> None:
    """It says what a plan of each member's own does."""
    means = ChannelModel.of(profile([layer("a", 100)], size(1)))
    shared: dict[str, Any] = {"name": "tail", "after": (), "itemsize": 8, "begin_s": 0.5}
    sums = [small_sum(rank, members, 3, means, **shared) for rank in range(members)]
    assert len({id(one.plan) for one in sums[1:]}) == (members > 1)
    own = [
        all_reduce(*SMALL_SUM, rank, members, Summed(3), means, pool="all", **shared)
        for rank in range(members)
    ]
    way = Direction(occupied_s=float, latency_s=0.25)

    def moments(streams: list[Stream]) -> tuple[tuple[Moments, ...], ...]:
        return run([Rank(streams=[one], up=way, down=way) for one in streams])

    assert moments(sums) == moments(own)
    for one, other in zip(sums, own, strict=True):
        assert moved_by([one], means) == moved_by([other], means)


@pytest.mark.parametrize("order", [None, *ORDERS])
@pytest.mark.parametrize("like", [FIRST, BETWEEN, LAST])
@pytest.mark.parametrize("early", [0, 3])
def test_passages_are_the_schedules_of_their_steps(
    order: str | None, like: int, early: int
) -> None:
    """Made without operations, they say what a schedule that was made ready does."""
    if order is None and early:
        return  # pieces are of a backward pass
    passes = in_waves(ORDERS.get(order or "", forward_only), like, 3, ((0, 1), (2,), (3, 4)))
    side = tuple((50 * n + 1, 30 * n * (order is not None)) for n in range(5))
    before, behind = side if like != FIRST else (), side if like != LAST else ()
    plan, pieces = passage_plan(like, passes, before, behind, 20, early)
    whole = CompiledSchedule(plan.schedule)
    for name in (
        *("kinds", "numbers", "lengths", "largest", "works", "after", "names", "totals"),
        *("adds", "lanes", "waits_for", "sums", "dependents"),
    ):
        assert getattr(plan, name) == getattr(whole, name), name
    assert plan.each_work == tuple(plan.schedule.ops[at].work for at in plan.works)
    assert len(pieces) == early
    for at, number in enumerate(pieces):
        assert plan.schedule.ops[number].work == Work(PIECE, at)
        assert plan.kinds[number + 1] is Kind.COMPUTE  # the next one, or the pass itself


@pytest.mark.parametrize("replicas", [(1, 1, 1, 1), (2, 2, 2, 2), (1, 2, 1, 3), (3, 3, 1, 1)])
@pytest.mark.parametrize("schedule", ORDERS)
def test_ranks_of_one_plan_talk_to_their_own_neighbours(
    replicas: tuple[int, ...], schedule: str
) -> None:
    """They put and get the messages that a run's own steps do, each once, and to whom these do."""
    made = profile([layer(name, 100, passed=40.0) for name in "abcd"], size(4))
    c = Configuration(
        workers=sum(replicas),
        replicas=replicas[0] if len(set(replicas)) == 1 else replicas,
        cut=(1, 2, 3),
        memory_mib=(1024,),
        micro_batches=2,
        batch_size=2 * max(replicas),
        schedule=schedule,
    )
    passages = [rank.streams[0] for rank in staged.ranks(made, c, ChannelModel.of(made), 12)]
    assert len({id(one.plan) for one in passages}) < len(passages) or len(passages) == 4
    ends: dict[MessageId, dict[Kind, int]] = {}
    for rank, one in enumerate(passages):
        for op in one.plan.schedule:
            if op.name is not None:
                of = ends.setdefault(Live(rank, rank, one, stepping()).message(op.name), {})
                assert of.setdefault(op.kind, rank) == rank
    wanted = set()
    for rank in range(c.workers):
        own = c.layout.stage_rank(rank)
        passing = c.flow.passing(12, own)
        for micro, to in zip(passing.micros, passing.behind or repeat(own.replica), strict=False):
            if own.stage < 3:
                other = c.layout.rank(own.stage + 1, to)
                wanted |= {(rank, other, micro.number), (other, rank, micro.number)}
    pairs = [(of[Kind.PUT], of[Kind.GET]) for of in ends.values()]
    assert sorted(pairs) == sorted((put, get) for put, get, _ in wanted)


def test_a_cost_is_asked_for_once() -> None:
    asked: list[AllReduce] = []

    def cost(one: AllReduce) -> Cost:
        asked.append(one)
        return Cost(phases=(Phase(1.0),))

    mine = replace(RING, cost=cost)
    four = AllReduce(members=4, length=100, link=plain_link(1e-6, 1e-6, 0.01))
    assert cost_of("mine", mine, four) is cost_of("mine", mine, replace(four))
    cost_of("mine", mine, replace(four, length=101))
    assert [one.length for one in asked] == [100, 101]
    assert collective("k-reduce", 2, 4) is collective("k-reduce", 2, 4)


def test_passes_without_a_time_each_are_refused() -> None:
    with pytest.raises(ValueError, match="1 times for 2 passes"):
        Stream(plan=chain(2), works_s=[1.0])


def test_sizes_with_other_figures_are_other_sizes() -> None:
    one = size(2)
    assert hash(one) == hash(replace(one))
    assert one != replace(one, base_mib=replace(one.base_mib, value=1.0))
