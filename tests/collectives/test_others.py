"""Reduce-scatter, reduce, all-gather, all-reduce of a few elements, and all others."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.collectives.conformance import Stuck, play
from dayfly.wire.collectives.conformance_cases import Named
from dayfly.wire.collectives.exchange import broadcast, exchange
from dayfly.wire.collectives.k_reduce import at_everyone, barrier
from dayfly.wire.collectives.reduce_scatter import all_gather, reduce, reduce_scatter
from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span, check_rank, split
from tests.collectives.timing import LATENCY_S, RATE, link, seconds

PUT, GET, FETCH, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.FETCH, Kind.REDUCE, Kind.DROP
NOTHING = Span(0, 0)

any_order = st.none() | st.builds(Random, st.integers(0, 2**32))
worlds = given(
    size=st.integers(1, 6), length=st.integers(0, 40), chunk=st.integers(1, 12), random=any_order
)
several = settings(deadline=None, max_examples=60)


def own(size: int, length: int) -> list[Named]:
    """Every element of every rank as a term of its own."""
    return [[((rank, at),) for at in range(length)] for rank in range(size)]


def all_to_all(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """Block j of the first half goes to rank j, and what comes from there to block j of the second.

    length: of 2n equal blocks; ValueError if it is not. Own blocks are left alone.
    """
    check_rank(rank, world_size)
    if length % (2 * world_size):
        raise ValueError(f"{length} elements are not twice {world_size} equal blocks")
    blocks = dict(enumerate(split(length, 2 * world_size)))
    peers = [peer for peer in range(world_size) if peer != rank]
    sends = {peer: blocks[peer] for peer in peers}
    receives = {peer: blocks[world_size + peer] for peer in peers}
    return exchange(rank, world_size, sends, receives, chunk=chunk)


def reduce_scatter_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: (n-1)/n s/w + q + 2 t_lat, q = s/(n count w) the time of one of `count` chunks.

    s = size_bytes, n = world_size, w = bytes_per_s each way, t_lat = latency_s. Exact in virtual
    time if the chunks are equal: the downlink is busy from the first contribution on.
    """
    n = world_size
    q = size_bytes / (n * count) / bytes_per_s
    return (n - 1) / n * size_bytes / bytes_per_s + q + 2 * latency_s if n > 1 else 0.0


def reduce_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: d + max(d, n q + 2 t_lat) + q + 2 t_lat, d = (n-1)/n s/w.

    s = size_bytes, n = world_size, w = bytes_per_s each way, t_lat = latency_s, q = s/(n count w)
    the time of one of `count` chunks. Exact in virtual time if the chunks are equal: the root's
    downlink carries contributions and then sums, d each; the first sum is there once its owner has
    sent its contributions, d, and has got all n-1 to its first chunk.
    """
    n = world_size
    if n == 1:
        return 0.0
    q = size_bytes / (n * count) / bytes_per_s
    d = (n - 1) / n * size_bytes / bytes_per_s
    return d + max(d, n * q + 2 * latency_s) + q + 2 * latency_s


def all_stay(left: dict[Name, Named]) -> bool:
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
        Op(FETCH, Span(0, 1), parts[0]),
        Op(FETCH, Span(0, 1), parts[1]),
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


def test_all_reduce_of_a_few_elements_by_rank_0_of_3() -> None:
    """All of it at everyone.

    uplink    0 term 0
    downlink           1 term 2  2 term 1
    compute                                3 reduce 0+1+2
    """
    whole, terms = Span(0, 2), (Name("term", 1), Name("term", 2))
    assert at_everyone(0, 3, 2).ops == (
        Op(PUT, whole, Name("term", 0)),
        Op(FETCH, whole, terms[1]),
        Op(FETCH, whole, terms[0]),
        Op(REDUCE, whole, terms=(None, *terms), after=(0, 1, 2)),
    )


@several
@worlds
def test_all_reduce_of_a_few_elements(
    size: int, length: int, chunk: int, random: Random | None
) -> None:
    buffers = own(size, length)
    left = play(
        [at_everyone(rank, size, length, chunk=chunk) for rank in range(size)], buffers, random
    )
    summed = [tuple((rank, at) for rank in range(size)) for at in range(length)]
    assert buffers == [summed] * size
    assert all_stay(left)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_time_of_an_all_reduce_of_a_few_elements(size: int) -> None:
    made = [at_everyone(rank, size, 1000) for rank in range(size)]
    assert seconds(made) == pytest.approx(size * 4000 / RATE + 2 * LATENCY_S if size > 1 else 0.0)


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


def test_an_exchange_of_rank_0_of_3() -> None:
    """Two elements to rank 1, one to rank 2; one from rank 1, nothing, but a message, from rank 2.

    uplink    0 block 0>1  1 block 0>2             4 block 1>1
    downlink                            2 0<2  3 0<1
    compute                                                     5 drop
    """
    names = (Name("block-0", 2, 0), Name("block-0", 1, 0))
    sends = {2: Span(2, 3), 1: Span(0, 2)}
    assert exchange(0, 3, sends, {1: Span(3, 4), 2: Span(4, 4)}).ops == (
        Op(PUT, Span(0, 1), Name("block-0", 0, 1)),
        Op(PUT, Span(2, 3), Name("block-0", 0, 2)),
        Op(GET, Span(4, 4), names[0]),
        Op(GET, Span(3, 4), names[1]),
        Op(PUT, Span(1, 2), Name("block-1", 0, 1)),
        Op(DROP, NOTHING, terms=names, after=(2, 3)),
    )
    assert exchange(0, 3, {}, {}).ops == ()


@several
@given(
    lengths=st.lists(st.lists(st.integers(-1, 9), min_size=4, max_size=4), min_size=1, max_size=4),
    chunk=st.integers(1, 4),
    random=any_order,
)
def test_an_exchange(lengths: list[list[int]], chunk: int, random: Random | None) -> None:
    """lengths: [of the sender] [to the reader]; -1: no message. What is sent is kept, in front."""
    size = len(lengths)
    schedules, buffers, expected = [], [], []
    for rank in range(size):
        sends, receives, content, result = {}, {}, [], []
        for peer in range(size):
            if peer != rank and lengths[rank][peer] >= 0:
                start = len(content)
                content += [((rank, peer, at),) for at in range(lengths[rank][peer])]
                sends[peer] = Span(start, len(content))
        stop = len(content)
        for peer in range(size):
            if peer != rank and lengths[peer][rank] >= 0:
                result += [((peer, rank, at),) for at in range(lengths[peer][rank])]
                receives[peer] = Span(stop, len(content) + len(result))
                stop = len(content) + len(result)
        schedules.append(exchange(rank, size, sends, receives, chunk=chunk))
        buffers.append(content + [()] * len(result))
        expected.append(content + result)
    assert play(schedules, buffers, random) == {}
    assert buffers == expected


@pytest.mark.parametrize(
    ("sends", "receives"),
    [
        ({1: Span(0, 3)}, {2: Span(2, 4)}),
        ({1: Span(3, 5)}, {2: Span(2, 4)}),
        ({1: Span(0, 9), 2: Span(1, 2)}, {2: Span(3, 4)}),
        ({}, {1: Span(0, 3), 2: Span(2, 4)}),
        ({}, {1: Span(0, 3), 2: Span(0, 3)}),
    ],
)
def test_what_is_received_has_a_place_of_its_own(
    sends: dict[int, Span], receives: dict[int, Span]
) -> None:
    with pytest.raises(ValueError, match="would be written over elements"):
        exchange(0, 3, sends, receives)


def test_the_same_may_be_sent_to_several() -> None:
    assert len(exchange(0, 3, {1: Span(0, 3), 2: Span(0, 2)}, {1: Span(3, 4)}, chunk=9)) == 4


def test_nobody_exchanges_with_itself_or_nobody() -> None:
    for sends, receives in (({0: Span(0, 1)}, {}), ({}, {0: Span(0, 1)})):
        with pytest.raises(ValueError, match="rank 0 to itself"):
            exchange(0, 3, sends, receives)
    with pytest.raises(ValueError, match="rank 3 of 3"):
        exchange(0, 3, {3: Span(0, 1)}, {})


def test_all_to_all_of_rank_0_of_3() -> None:
    """Blocks 0, 1, 2 are sent, and 3, 4, 5 received, of two elements each.

    uplink    0 block>1  1 block>2
    downlink             2 block<2  3 block<1
    compute                                    4 drop
    """
    names = (Name("block-0", 2, 0), Name("block-0", 1, 0))
    assert all_to_all(0, 3, 12, chunk=2).ops == (
        Op(PUT, Span(2, 4), Name("block-0", 0, 1)),
        Op(PUT, Span(4, 6), Name("block-0", 0, 2)),
        Op(GET, Span(10, 12), names[0]),
        Op(GET, Span(8, 10), names[1]),
        Op(DROP, NOTHING, terms=names, after=(2, 3)),
    )


@several
@worlds
def test_all_to_all(size: int, length: int, chunk: int, random: Random | None) -> None:
    length //= size  # of a block
    half = size * length
    buffers, before = own(size, 2 * half), own(size, 2 * half)
    schedules = [all_to_all(rank, size, 2 * half, chunk=chunk) for rank in range(size)]
    left = play(schedules, buffers, random)
    for rank in range(size):
        assert buffers[rank][:half] == before[rank][:half]
        for peer in range(size):
            into = slice(half + peer * length, half + (peer + 1) * length)
            sent = before[peer][rank * length : (rank + 1) * length]
            assert buffers[rank][into] == (before[rank][into] if peer == rank else sent)
    assert left == {}


def test_all_to_all_needs_equal_blocks() -> None:
    with pytest.raises(ValueError, match="15 elements are not twice 3 equal blocks"):
        all_to_all(0, 3, 15)


def test_reduce_at_rank_0_of_2() -> None:
    """2 elements are cut in |0|1|.

    rank 0  uplink    0 part>1
            downlink            1 part<1                        4 sum<1
            compute                       2 reduce 0+1  3 drop           5 drop
    rank 1  uplink    0 part>0                          4 sum>0
            downlink            1 part<0
            compute                       2 reduce 0+1  3 drop
    """
    part, total = Name("part-0", 1, 0), Name("sum-0", 1, 0)
    made = reduce(0)
    assert made(0, 2, 2).ops == (
        Op(PUT, Span(1, 2), Name("part-0", 0, 1)),
        Op(FETCH, Span(0, 1), part),
        Op(REDUCE, Span(0, 1), terms=(None, part), after=(1,)),
        Op(DROP, NOTHING, terms=(part,), after=(2,)),
        Op(GET, Span(1, 2), total, after=(0,)),
        Op(DROP, NOTHING, terms=(total,), after=(4,)),
    )
    scattered = reduce_scatter(1, 2, 2).ops
    assert made(1, 2, 2).ops == (*scattered, Op(PUT, Span(1, 2), total, after=(2,)))


@several
@worlds
def test_reduce(size: int, length: int, chunk: int, random: Random | None) -> None:
    for root in range(size):
        buffers = own(size, length)
        made = reduce(root)
        left = play(
            [made(rank, size, length, chunk=chunk) for rank in range(size)], buffers, random
        )
        assert buffers[root] == [tuple((rank, at) for rank in range(size)) for at in range(length)]
        assert left == {}


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
@pytest.mark.long
def test_virtual_time_is_the_closed_form(size: int, count: int, latency_s: float) -> None:
    """Of each, with equal chunks."""
    over = link(latency_s=latency_s)
    chunk = 96
    length = size * count * chunk
    for made, form_s in (
        (reduce_scatter, reduce_scatter_s),
        (all_gather, reduce_scatter_s),
        (reduce(size - 1), reduce_s),
    ):
        took_s = seconds([made(rank, size, length, chunk=chunk) for rank in range(size)], over)
        expected_s = form_s(4 * length, size, count, RATE, latency_s)
        assert took_s == pytest.approx(expected_s, rel=1e-9), made
    both = [all_to_all(rank, size, 2 * length, chunk=chunk) for rank in range(size)]
    expected_s = reduce_scatter_s(4 * length, size, count, RATE, latency_s)
    assert seconds(both, over) == pytest.approx(expected_s, rel=1e-9)
    whole, piece = 4 * chunk * count, 4 * chunk
    made = broadcast(size - 1)
    took_s = seconds([made(rank, size, chunk * count, chunk=chunk) for rank in range(size)], over)
    assert took_s == pytest.approx((whole + piece) / RATE + 2 * latency_s, rel=1e-9)


def test_a_barrier_takes_four_latencies() -> None:
    assert seconds([barrier(rank, 5) for rank in range(5)]) == pytest.approx(4 * LATENCY_S)


def test_ranks_outside_the_world_are_refused() -> None:
    made = [reduce_scatter, all_gather, barrier, broadcast(0), reduce(0)]
    for schedule in made:
        for rank in (-1, 2):
            with pytest.raises(ValueError, match=f"rank {rank} of 2"):
                schedule(rank, 2, 4)
    for one in (broadcast, reduce):
        with pytest.raises(ValueError, match="rank 2 of 2"):
            one(2)(0, 2, 4)
