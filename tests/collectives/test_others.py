"""Reduce-scatter, all-gather, broadcast, all-to-all, send and receive, barrier."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.collectives import OTHERS, WITH_A_PEER
from dayfly.wire.collectives.all_gather import all_gather, all_gather_s
from dayfly.wire.collectives.all_to_all import all_to_all, all_to_all_s
from dayfly.wire.collectives.barrier import barrier
from dayfly.wire.collectives.broadcast import broadcast, broadcast_s
from dayfly.wire.collectives.point_to_point import recv, send, send_s
from dayfly.wire.collectives.reduce_scatter import reduce_scatter, reduce_scatter_s
from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span, split
from tests.collectives.play import Buffer, Stuck, play
from tests.collectives.timing import LATENCY_S, RATE, link, seconds

PUT, GET, HOLD, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.HOLD, Kind.REDUCE, Kind.DROP
NOTHING = Span(0, 0)

any_order = st.none() | st.builds(Random, st.integers(0, 2**32))
worlds = given(
    size=st.integers(1, 6), length=st.integers(0, 40), chunk=st.integers(1, 12), random=any_order
)
several = settings(deadline=None, max_examples=60)


def own(size: int, length: int) -> list[Buffer]:
    """Every element of every rank as a term of its own."""
    return [[((rank, at),) for at in range(length)] for rank in range(size)]


def all_stay(left: dict[Name, Buffer]) -> bool:
    """Whether only messages that everyone reads are left: who read last, nobody knows."""
    return all(name.destination == EVERYONE for name in left)


def test_reduce_scatter_of_rank_0_of_3() -> None:
    """3 elements are cut in |0|1|2|.

    uplink    0 part>1  1 part>2
    downlink            2 part<2  3 part<1
    compute                                 4 reduce 0+1+2  5 drop
    """
    parts = (Name("part-0", 2, 0), Name("part-0", 1, 0))
    assert reduce_scatter(0, 3, 3).ops == (
        Op(PUT, Span(1, 2), Name("part-0", 0, 1)),
        Op(PUT, Span(2, 3), Name("part-0", 0, 2)),
        Op(HOLD, Span(0, 1), parts[0]),
        Op(HOLD, Span(0, 1), parts[1]),
        Op(REDUCE, Span(0, 1), terms=(None, parts[1], parts[0]), after=(2, 3)),
        Op(DROP, NOTHING, terms=parts, after=(4,)),
    )


@several
@worlds
def test_reduce_scatter(size: int, length: int, chunk: int, random: Random | None) -> None:
    buffers, before = own(size, length), own(size, length)
    left = play(
        [reduce_scatter(r, size, length, chunk=chunk) for r in range(size)], buffers, random
    )
    for rank, span in enumerate(split(length, size)):
        for at in range(length):
            summed = tuple((other, at) for other in range(size))
            mine = span.start <= at < span.stop
            assert buffers[rank][at] == (summed if mine else before[rank][at])
    assert left == {}


def test_all_gather_of_rank_0_of_3() -> None:
    """6 elements are cut in |0 1|2 3|4 5|, two chunks each.

    uplink    0 block 0  1 block 1
    downlink  2 0<2  3 0<1  4 1<2  5 1<1
    """
    assert all_gather(0, 3, 6).ops == (
        Op(PUT, Span(0, 1), Name("block-0", 0)),
        Op(PUT, Span(1, 2), Name("block-1", 0)),
        Op(GET, Span(4, 5), Name("block-0", 2)),
        Op(GET, Span(2, 3), Name("block-0", 1)),
        Op(GET, Span(5, 6), Name("block-1", 2)),
        Op(GET, Span(3, 4), Name("block-1", 1)),
    )


@several
@worlds
def test_all_gather(size: int, length: int, chunk: int, random: Random | None) -> None:
    buffers = own(size, length)
    left = play(
        [all_gather(rank, size, length, chunk=chunk) for rank in range(size)], buffers, random
    )
    owners = [rank for rank, span in enumerate(split(length, size)) for _ in range(len(span))]
    assert buffers == [[((owner, at),) for at, owner in enumerate(owners)]] * size
    assert all_stay(left)


def test_broadcast_from_rank_1() -> None:
    """In two chunks.

    rank 1  uplink    0 chunk 0  1 chunk 1
    rank 0  downlink             0 chunk 0  1 chunk 1
    """
    messages = ((Span(0, 2), Name("chunk-0", 1)), (Span(2, 4), Name("chunk-1", 1)))
    made = broadcast(1)
    assert made(1, 3, 4, chunk=2).ops == tuple(Op(PUT, *message) for message in messages)
    assert made(0, 3, 4, chunk=2).ops == tuple(Op(GET, *message) for message in messages)
    assert made(0, 3, 4, chunk=2) == made(2, 3, 4, chunk=2)


@several
@worlds
def test_broadcast(size: int, length: int, chunk: int, random: Random | None) -> None:
    for root in range(size):
        buffers = own(size, length)
        made = broadcast(root)
        left = play(
            [made(rank, size, length, chunk=chunk) for rank in range(size)], buffers, random
        )
        assert buffers == [own(size, length)[root]] * size
        assert all_stay(left)


def test_all_to_all_of_rank_0_of_3() -> None:
    """In place: what comes from a rank goes where what went to it was.

    uplink    0 block>1  1 block>2
    downlink             2 block<1  3 block<2
    compute                                    4 drop
    """
    names = (Name("block-0", 1, 0), Name("block-0", 2, 0))
    assert all_to_all(0, 3, 6, chunk=2).ops == (
        Op(PUT, Span(2, 4), Name("block-0", 0, 1)),
        Op(PUT, Span(4, 6), Name("block-0", 0, 2)),
        Op(GET, Span(2, 4), names[0], after=(0,)),
        Op(GET, Span(4, 6), names[1], after=(1,)),
        Op(DROP, NOTHING, terms=names, after=(2, 3)),
    )


@several
@worlds
def test_all_to_all(size: int, length: int, chunk: int, random: Random | None) -> None:
    length //= size  # of a block
    buffers = own(size, size * length)
    schedules = [all_to_all(rank, size, size * length, chunk=chunk) for rank in range(size)]
    left = play(schedules, buffers, random)
    for rank in range(size):
        assert buffers[rank] == [
            ((block, rank * length + at),) for block in range(size) for at in range(length)
        ]
    assert left == {}


def test_all_to_all_needs_equal_blocks() -> None:
    with pytest.raises(ValueError, match="7 elements are not 3 equal blocks"):
        all_to_all(0, 3, 7)


def test_send_and_receive_of_two_chunks() -> None:
    """From rank 2 to rank 0.

    rank 2  uplink    0 chunk 0  1 chunk 1
    rank 0  downlink             0 chunk 0  1 chunk 1
            compute                                   2 drop
    """
    names = (Name("chunk-0", 2, 0), Name("chunk-1", 2, 0))
    assert send(0)(2, 3, 4, chunk=2).ops == (
        Op(PUT, Span(0, 2), names[0]),
        Op(PUT, Span(2, 4), names[1]),
    )
    assert recv(2)(0, 3, 4, chunk=2).ops == (
        Op(GET, Span(0, 2), names[0]),
        Op(GET, Span(2, 4), names[1]),
        Op(DROP, NOTHING, terms=names, after=(0, 1)),
    )


@several
@given(length=st.integers(0, 40), chunk=st.integers(1, 12), random=any_order)
def test_send_and_receive(length: int, chunk: int, random: Random | None) -> None:
    buffers = own(2, length)
    left = play(
        [send(1)(0, 2, length, chunk=chunk), recv(0)(1, 2, length, chunk=chunk)], buffers, random
    )
    assert buffers == [own(2, length)[0]] * 2
    assert left == {}


def test_nobody_sends_to_itself() -> None:
    for made in (send(1), recv(1)):
        with pytest.raises(ValueError, match="rank 1 to itself"):
            made(1, 3, 4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nobody_is_through_a_barrier_before_all_have_come(size: int) -> None:
    """The last one's first message must be there before any other is through."""
    schedules = [barrier(rank, size, 30) for rank in range(size)]
    left = play(schedules, buffers := own(size, 30))
    assert buffers == own(size, 30)
    assert all_stay(left)
    # With the messages of any rank missing, none of the others comes through.
    for late in range(size if size > 1 else 0):
        others = [
            schedule if rank != late else Schedule(()) for rank, schedule in enumerate(schedules)
        ]
        with pytest.raises(Stuck) as stuck:
            play(others, own(size, 30))
        assert len(stuck.value.waiting) == size - 1


@pytest.mark.parametrize("latency_s", [0.0, LATENCY_S])
@pytest.mark.parametrize("count", [1, 4, 32])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_virtual_time_is_the_closed_form(size: int, count: int, latency_s: float) -> None:
    """Of each, with equal chunks."""
    over = link(latency_s=latency_s)
    chunk = 96
    length = size * count * chunk
    for made, form_s in (
        (reduce_scatter, reduce_scatter_s),
        (all_gather, all_gather_s),
    ):
        took_s = seconds([made(rank, size, length, chunk=chunk) for rank in range(size)], over)
        expected_s = form_s(4 * length, size, count, RATE, latency_s)
        assert took_s == pytest.approx(expected_s, rel=1e-9), made
    exchange = [all_to_all(rank, size, length, chunk=chunk) for rank in range(size)]
    expected_s = all_to_all_s(4 * length, size, count, RATE, latency_s)
    assert expected_s - 1e-9 <= seconds(exchange, over) <= expected_s + 4 * chunk / RATE + 1e-9
    whole, piece = 4 * chunk * count, 4 * chunk
    made = broadcast(size - 1)
    took_s = seconds([made(rank, size, chunk * count, chunk=chunk) for rank in range(size)], over)
    assert took_s == pytest.approx(broadcast_s(whole, piece, RATE, latency_s), rel=1e-9)
    both = [send(1)(0, 2, chunk * count, chunk=chunk), recv(0)(1, 2, chunk * count, chunk=chunk)]
    assert seconds(both, over) == pytest.approx(send_s(whole, piece, RATE, latency_s), rel=1e-9)


def test_a_barrier_takes_four_latencies() -> None:
    assert seconds([barrier(rank, 5) for rank in range(5)]) == pytest.approx(4 * LATENCY_S)


def test_ranks_outside_the_world_are_refused() -> None:
    made = [*OTHERS.values(), *(one(0) for one in WITH_A_PEER.values())]
    for schedule in made:
        for rank in (-1, 2):
            with pytest.raises(ValueError, match=f"rank {rank} of 2"):
                schedule(rank, 2, 4)
    for one in WITH_A_PEER.values():
        with pytest.raises(ValueError, match="rank 2 of 2"):
            one(2)(0, 2, 4)
