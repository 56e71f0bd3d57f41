"""Several schedules at once on each rank, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.processor import SharedProcessor
from dayfly.wire.schedule import CompiledSchedule, Kind, Name, Op, Schedule, Span, Work
from dayfly.wire.simulation import run
from dayfly.wire.streams import Direction, Rank, ServingThread, Shared, Stream

TEN, A, B = Span(0, 10), Name("part", 0, 1), Name("other", 0, 1)


def plan(*ops: Op) -> CompiledSchedule:
    return CompiledSchedule(Schedule(ops))


def computing(*seconds: float, after: tuple[tuple[int, int | None], ...] = ()) -> Stream:
    """Passes, one after another."""
    ops = [Op(Kind.COMPUTE, Span(0, 0), work=Work("pass", n)) for n in range(len(seconds))]
    return Stream(plan=plan(*ops), after=after, works_s=seconds)


def putting(*names: Name, **more: Any) -> Stream:
    return Stream(plan=plan(*(Op(Kind.PUT, TEN, name) for name in names)), itemsize=1, **more)


def rank(*streams: Stream, **more: Any) -> Rank:
    """Ten bytes a second up, twenty down, half a second of latency."""
    values: dict[str, Any] = {
        "up": Direction(occupied_s=lambda nbytes: nbytes / 10, latency_s=0.5),
        "down": Direction(occupied_s=lambda nbytes: nbytes / 20, latency_s=0.5),
        **more,
    }
    return Rank(streams=streams, **values)


def spans_s(*ranks: Rank) -> list[list[list[tuple[float, float]]]]:
    """From when to when each operation took, by stream, by rank."""
    return [
        [list(zip(one.start_s, one.done_s, strict=True)) for one in streams]
        for streams in run(ranks)
    ]


def approximately(spans: Sequence[tuple[float, float]]) -> list[Any]:
    return [pytest.approx(span) for span in spans]


def test_a_stream_begins_when_an_operation_of_another_is_done() -> None:
    """The second pass goes on beside the message that the first one was waited for by."""
    ((passes, message),) = spans_s(rank(computing(1.0, 3.0), putting(A, after=((0, 0),))))
    assert passes == [(0.0, 1.0), (1.0, 4.0)]
    assert message == [(1.0, 2.5)]


def test_or_when_all_of_it_is() -> None:
    ((_, message, last),) = spans_s(
        rank(
            computing(1.0, 3.0), putting(A, after=((0, None),)), computing(1.0, after=((1, None),))
        )
    )
    assert (message, last) == ([(4.0, 5.5)], [(5.5, 6.5)])


def test_a_stream_behind_an_empty_one_begins_once() -> None:
    """As a sum behind the passes of a stage that has no micro-batch: its second of CPU time is
    taken once."""
    behind = putting(A, after=((0, None),), begin_s=1.0)
    ((_, message),) = spans_s(rank(computing(), behind, processor=SharedProcessor(1.0)))
    assert message == [(1.0, 2.5)]


def test_streams_share_a_line() -> None:
    ((_, one, other),) = spans_s(
        rank(
            computing(1.0),
            putting(A, name="a", after=((0, 0),)),
            putting(A, name="b", after=((0, 0),)),
        )
    )
    assert (one, other) == ([(1.0, 2.5)], [(2.0, 3.5)])


def test_in_pieces_large_messages_let_others_pass() -> None:
    """Ten bytes and ten in pieces of a quarter of a second take turns."""
    up = Direction(occupied_s=lambda nbytes: nbytes / 10, piece_s=0.25)
    ((one, other),) = spans_s(rank(putting(A, name="a"), putting(A, name="b"), up=up))
    assert (one, other) == ([(0.0, 1.75)], [(0.25, 2.0)])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=6))
def test_a_line_goes_from_piece_to_piece(asked: list[tuple[int, int]]) -> None:
    """Whoever asks between two pieces, or just as one ends: as if each were looked at.

    asked: when, in quarters of a second, and pieces of a quarter.
    """
    streams: list[Stream] = []
    for number, (at, pieces) in enumerate(asked):
        streams.append(computing(at / 4))
        put = plan(Op(Kind.PUT, Span(0, pieces), Name("part", 0, number)))
        streams.append(Stream(plan=put, itemsize=1, after=((2 * number, 0),)))
    up = Direction(occupied_s=lambda nbytes: nbytes / 4, piece_s=0.25)
    (found,) = spans_s(rank(*streams, up=up))
    assert found[1::2] == [[span] for span in _one_by_one(asked)]


def _one_by_one(asked: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """From when to when each took, in seconds, if a piece is carried at a time."""
    waiting = [(at, number, pieces) for number, (at, pieces) in enumerate(asked)]
    began: dict[int, float] = {}
    ended: dict[int, float] = {}
    now = 0
    while waiting:
        now = max(now, min(waiting)[0])
        at, number, pieces = min(waiting)
        waiting.remove((at, number, pieces))
        began.setdefault(number, now / 4)
        now += 1
        if pieces > 1:
            waiting.append((now, number, pieces - 1))
        else:
            ended[number] = now / 4
    return [(began[number], ended[number]) for number in range(len(asked))]


def test_a_pool_has_so_many_turns() -> None:
    """The third begins when the first is over, latency included."""
    ((one, other, third),) = spans_s(
        rank(*(putting(A, name=n, pool="buckets", at_once=2) for n in range(3)))
    )
    assert (one, other, third) == ([(0.0, 1.5)], [(1.0, 2.5)], [(2.0, 3.5)])
    ((one, other),) = spans_s(rank(*(putting(A, name=n, pool="buckets") for n in range(2))))
    assert (one, other) == ([(0.0, 1.5)], [(1.5, 3.0)])


def test_names_keep_streams_apart() -> None:
    """Each reads the message of its own name."""
    reader = plan(Op(Kind.GET, TEN, A))
    _, (one, other) = spans_s(
        rank(putting(A, name="late"), putting(A, name="later")),
        rank(*(Stream(plan=reader, name=n, member=1, itemsize=1) for n in ("later", "late"))),
    )
    assert one == [(2.5, 3.5)]
    assert other == [(1.5, 2.5)]


def test_held_requests_keep_their_place_until_they_are_answered() -> None:
    """Of two in flight the third waits for the first's latency."""
    times = [
        spans_s(rank(putting(A, B, Name("c", 0, 1), in_flight=2), up=_quick(), held=held))
        for held in (False, True)
    ]
    assert [span for ((spans,),) in times for span in spans] == [
        *[(0.0, 2.0), (0.0, 2.0), (0.0, 2.0)],
        *[(0.0, 2.0), (0.0, 2.0), (2.0, 4.0)],
    ]


def _quick() -> Direction:
    return Direction(occupied_s=lambda nbytes: 0.0, latency_s=2.0)


def test_alone_does_one_after_another() -> None:
    """Put, get what was put, reduce: as they stand, whatever lanes they are of."""
    ops = (
        Op(Kind.PUT, TEN, A),
        Op(Kind.PUT, TEN, B),
        Op(Kind.FETCH, TEN, A),
        Op(Kind.REDUCE, TEN, terms=(A, None), after=(2,)),
    )
    stream = Stream(plan=plan(*ops), member=1, itemsize=1, alone=True)
    ((found,),) = spans_s(rank(stream, reduce_s_per_byte=0.1))
    assert found == [(0.0, 1.5), (1.5, 3.0), (3.0, 4.0), (4.0, 5.0)]


def test_the_work_of_messages_is_taken_from_passes() -> None:
    """Half of a core, evenly: the second pass has a quarter while the message is stored.

    Of the put's 1.5 s, its CPU time of 0.25 s would be the last; at half of a half it takes 1 s.
    """
    up = Direction(occupied_s=lambda nbytes: nbytes / 10, latency_s=0.5, cpu_s=0.25)
    ((passes, message),) = spans_s(
        rank(computing(1.0), putting(A), up=up, processor=SharedProcessor(0.5))
    )
    assert message == approximately([(0.0, 2.25)])
    assert passes == approximately([(0.0, 2.5)])


def test_messages_of_a_stream_may_take_more_than_others() -> None:
    """The same, but 0.05 s of it are the direction's: another stream's message takes only them."""
    up = Direction(occupied_s=lambda nbytes: nbytes / 10, latency_s=0.5, cpu_s=0.05)
    made = rank(computing(1.0), putting(A, message_s=0.2), up=up, processor=SharedProcessor(0.5))
    passes, message = spans_s(made)[0]
    assert message == approximately([(0.0, 2.25)])
    assert passes == approximately([(0.0, 2.5)])


def test_a_reader_has_its_share_of_what_messages_take() -> None:
    """A second of CPU time, while the bytes take half a second and their latency."""
    get = Stream(plan=plan(Op(Kind.GET, TEN, A)), itemsize=1, message_s=1.0)
    ((put,),), ((got,),) = spans_s(rank(putting(A)), rank(get, processor=SharedProcessor(0.5)))
    assert put == (0.0, 1.5)
    assert got == (1.5, 3.5)


def test_an_effect_waits_for_the_next_period() -> None:
    """A pass has used up the quota when the message has arrived."""
    ((_, message),) = spans_s(
        rank(computing(3.0), putting(A), processor=SharedProcessor(0.25, 4.0))
    )
    assert message == approximately([(0.0, 4.0)])


def test_contributions_are_added_as_they_come() -> None:
    c = Name("part", 2, 1)
    reader = plan(
        Op(Kind.FETCH, TEN, A),
        Op(Kind.FETCH, TEN, c),
        Op(Kind.REDUCE, TEN, terms=(A, None, c), after=(0, 1)),
    )
    for early, expected in ((True, 3.0), (False, 4.0)):
        found = spans_s(
            rank(putting(A)),
            rank(
                Stream(plan=reader, member=1, itemsize=1, in_flight=2),
                reduce_s_per_byte=0.1,
                early=early,
                down=Direction(occupied_s=lambda nbytes: 0.0, latency_s=0.5),
            ),
            rank(putting(c)),
        )
        assert found[1][0][2][1] == pytest.approx(expected + (0.5 if early else 0.0))


def test_a_stream_waits_for_earlier_ones_only() -> None:
    with pytest.raises(ValueError, match="stream 0 waits for one that is not before it"):
        rank(computing(1.0, after=((0, None),)))


def test_a_message_that_nobody_puts_is_named() -> None:
    with pytest.raises(ValueError, match=r"rank 0 waits for ever: .*GET"):
        run([rank(Stream(plan=plan(Op(Kind.GET, TEN, A))))])


def finished_s(
    processors: Sequence[SharedProcessor], seconds: Sequence[float], cores: float
) -> Any:
    """When each rank's only pass is done."""
    ranks = [
        rank(computing(one), processor=processor)
        for one, processor in zip(seconds, processors, strict=True)
    ]
    return [
        pytest.approx(streams[0].done_s[0], abs=1e-6) for streams in run(ranks, Shared(cores=cores))
    ]


def test_a_store_of_one_thread_serves_all() -> None:
    """Lines take 1 s for each message, and the store, too, which has two at once each time."""
    there = Direction(occupied_s=lambda nbytes: nbytes / 10)
    store = ServingThread(cpu_s=0.5, cpu_s_per_byte=0.05)

    def at(number: int) -> Rank:
        ops = (
            Op(Kind.PUT, TEN, Name("part", number, 1 - number)),
            Op(Kind.GET, TEN, Name("part", 1 - number, number)),
        )
        both = Stream(plan=plan(*ops), name="both", member=number, members=2, itemsize=1)
        return rank(both, up=there, down=there)

    for streams in run([at(0), at(1)], Shared(store=store)):
        assert streams[0].done_s == pytest.approx([2.0, 4.0])
    for streams in run([at(0), at(1)]):
        assert streams[0].done_s == pytest.approx([1.0, 2.0])


def test_ranks_of_one_machine_share_its_cores() -> None:
    """Three on two cores get two thirds each until the first is done."""
    assert finished_s([SharedProcessor() for _ in range(3)], [2.0, 3.0, 3.0], 2.0) == [
        3.0,
        4.0,
        4.0,
    ]


def test_a_rank_that_stands_still_leaves_its_core_to_others() -> None:
    """All get a third until second 3, by when two have had the 1 s of their period of 4 s; then
    the third has the core for itself."""
    limited = [SharedProcessor(0.25, 4.0), SharedProcessor(0.25, 4.0), SharedProcessor()]
    assert finished_s(limited, [1.0, 1.0, 2.0], 1.0) == [3.0, 3.0, 4.0]


def test_a_share_is_still_a_share_when_the_cores_are_free() -> None:
    """5 of 20 ms each; beside each other on two cores they do not meet."""
    limited = [SharedProcessor(0.25, 0.02), SharedProcessor(0.25, 0.02)]
    assert finished_s(limited, [0.012, 0.005], 2.0) == [0.042, 0.005]


def test_functions_of_less_than_a_core_are_bound_to_one_each() -> None:
    """Of three quarters of a core the first and the third share a CPU, though the other is idle
    from 4 ms on. Of five halves four fill both CPUs; the fifth is bound to none: all get 2/5."""
    quarters = [SharedProcessor(0.25, 0.02) for _ in range(3)]
    assert finished_s(quarters, [0.004, 0.004, 0.004], 2.0) == [0.008, 0.004, 0.008]
    halves = [SharedProcessor(0.5, 0.02) for _ in range(5)]
    assert finished_s(halves, [0.002] * 5, 2.0) == [0.005] * 5


def test_threads_of_a_bound_function_are_no_faster_than_its_cpu() -> None:
    """Of two passes side by side each gets half of a CPU, and 2 ms of the 4 ms of a period."""
    both = [computing(0.003), computing(0.003)]
    found = run([rank(*both, processor=SharedProcessor(0.2, 0.02))], Shared(cores=2.0))
    assert [stream.done_s[0] for stream in found[0]] == pytest.approx([0.022, 0.022])


@given(
    st.lists(st.tuples(st.floats(0.05, 1.0), st.floats(0.001, 0.2)), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.02]),
)
def test_enough_cores_are_as_good_as_one_each(
    jobs: list[tuple[float, float]], period_s: float
) -> None:
    def times(cores: float) -> Any:
        processors = [SharedProcessor(share, period_s) for share, _ in jobs]
        return finished_s(processors, [seconds for _, seconds in jobs], cores)

    found, alone = times(len(jobs)), times(math.inf)
    assert [one.expected for one in found] == alone


@given(st.lists(st.floats(0.001, 0.2), min_size=1, max_size=5), st.floats(0.5, 4.0))
def test_cores_are_busy_until_all_is_done(jobs: list[float], cores: float) -> None:
    """No machine does more than its cores can, nor less while enough threads have work."""
    last = max(one.expected for one in finished_s([SharedProcessor() for _ in jobs], jobs, cores))
    assert last >= max(max(jobs), sum(jobs) / cores) - 1e-6
    assert last <= max(jobs) + sum(jobs) / cores + 1e-6


def test_a_stream_takes_cpu_time_before_its_first_operation() -> None:
    """A second of a processor that a pass of 2 s shares with it; its turn has begun meanwhile."""
    processor = SharedProcessor(1.0)
    message = putting(A, begin_s=1.0, pool="sums")
    later = putting(B, begin_s=0.5, pool="sums")
    made = rank(computing(2.0), message, later, processor=processor)
    passes, first, second = spans_s(made)[0]
    assert passes == approximately([(0.0, 3.0)])
    assert first == approximately([(2.0, 3.5)])  # 1 s of the line, and the latency
    assert second == approximately([(4.0, 5.5)])


def test_a_stream_of_a_processor_without_limit_begins_after_its_own_time() -> None:
    ((message,),) = spans_s(rank(putting(A, begin_s=1.0)))
    assert message == [(1.0, 2.5)]
