"""The conformance suite of collectives: derive from `CollectiveConformance` and give it a case.

    class TestMine(CollectiveConformance):
        @pytest.fixture
        def case(self):
            return CollectiveCase(MINE)

One that is `whole` passes it along trees, too: give it `TreeCase(MINE)` as another case.

Schedules are played with names for numbers, in any order that `after` and messages allow. An
element of the buffer of rank 2 is the term (2,); sums append their terms in order. So what ends
where, what was summed in which order, and what is left are seen exactly, without an engine or a
channel. Real bytes are summed by `conformance_world`. pytest is needed here alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from random import Random

import pytest

from dayfly.wire.collectives.conformance_cases import CollectiveCase, Named, Terms, TreeCase
from dayfly.wire.collectives.conformance_world import same_bits, world
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.link import DirectionModel, LinkModel
from dayfly.wire.collectives.virtual_cost import cost_by_schedule, cost_of
from dayfly.wire.keys import EVERYONE
from dayfly.wire.leaves import Node, joins
from dayfly.wire.schedule import Kind, Name, Op, Schedule
from dayfly.wire.streams import Direction
from dayfly.wire.virtual import Link, simulate

__all__ = ["CollectiveCase", "CollectiveConformance", "TreeCase"]

SIZES = range(1, 6)
READS = {Kind.GET, Kind.FETCH}


class Stuck(Exception):
    """Nothing can be done, and not all is; `waiting` has the first operation left of each rank."""

    def __init__(self, waiting: Sequence[Op]) -> None:
        super().__init__(*waiting)
        self.waiting = waiting


def play(
    schedules: Sequence[Schedule],
    buffers: Sequence[Named],
    random: Random | None = None,
    stored: Mapping[Name, Named] | None = None,
) -> dict[Name, Named]:
    """Runs all schedules on the buffers, in place; returns the messages that are left.

    Args:
        schedules: one a rank.
        buffers: one a rank.
        random: draws the next operation from all that may be done; None: the ranks take turns, each
            in the order of its list, as over a channel in memory.
        stored: messages that are there before.
    """
    there = {name: list(held) for name, held in (stored or {}).items()}
    held: list[dict[Name, Named]] = [{} for _ in schedules]
    left = [list(range(len(schedule))) for schedule in schedules]
    done: list[set[int]] = [set() for _ in schedules]
    while any(left):
        possible = [
            (rank, position)
            for rank, positions in enumerate(left)
            for position in (positions if random else positions[:1])
            if _may(schedules[rank].ops[position], done[rank], there)
        ]
        if not possible:
            waiting = [schedules[rank].ops[one[0]] for rank, one in enumerate(left) if one]
            raise Stuck(waiting)
        rank, position = random.choice(possible) if random else possible[0]
        _perform(schedules[rank].ops[position], buffers[rank], held[rank], there)
        left[rank].remove(position)
        done[rank].add(position)
    assert not any(held), "what was held was summed up"
    return there


def _may(op: Op, done: set[int], there: Mapping[Name, Named]) -> bool:
    reads = op.kind is Kind.GET or op.kind is Kind.FETCH
    return set(op.after) <= done and (not reads or op.name in there)


def _perform(op: Op, buffer: Named, held: dict[Name, Named], there: dict[Name, Named]) -> None:
    where = slice(op.span.start, op.span.stop)
    if op.kind is Kind.DROP:
        for name in op.terms:
            assert name is not None, f"{op}: it drops a message without a name"
            there.pop(name, None)
        return
    if op.kind is Kind.REDUCE:
        own = iter(op.own or [op.span] * op.terms.count(None))
        columns = [
            held.pop(name) if name is not None else buffer[slice(*astuple(next(own)))]
            for name in op.terms
        ]
        added = partial(_along_the_tree, op.nodes) if op.nodes else _one_after_another
        buffer[where] = [added(terms) for terms in zip(*columns, strict=True)]
        return
    assert op.name is not None
    if op.kind is Kind.PUT:
        there.setdefault(op.name, buffer[where])
        return
    assert len(there[op.name]) == len(op.span)
    if op.kind is Kind.FETCH:
        held[op.name] = there[op.name]
    else:
        buffer[where] = there[op.name]


def _one_after_another(terms: Sequence[Terms]) -> Terms:
    return sum(terms, ())


def _along_the_tree(nodes: tuple[Node, ...], terms: Sequence[Terms]) -> Terms:
    values = dict(zip(nodes, terms, strict=True))
    for left, right in joins(nodes):
        values[range(left.start, right.stop)] = values.pop(left), values.pop(right)
    (whole,) = values.values()
    return whole


def _random_all_reduce(random: Random, *, sums: bool) -> AllReduce:
    """An all-reduce of up to 12 members and 100 chunks, over links of one rate or of two."""
    rates = [random.choice([10e6, 30e6, 70e6])] * 2
    if random.random() < 0.5:
        rates[1] = random.choice([10e6, 30e6, 70e6])
    in_flight, chunk_bytes = random.choice([4, 16]), 2 ** random.randint(12, 20)
    up, down = (
        DirectionModel(
            direction=Direction(
                occupied_s=lambda nbytes, rate=rate: nbytes / rate,  # type: ignore[misc]
                latency_s=random.choice([0.0, 0.001, 0.01]),
            ),
            in_flight=in_flight,
            chunk_bytes=chunk_bytes,
        )
        for rate in rates
    )
    link = LinkModel(
        up=up,
        down=down,
        direct=not sums and random.random() < 0.3,
    )
    members, length = random.randint(2, 12), random.randint(3_000, 3_000_000)
    return AllReduce(members=members, length=min(length, 25 * chunk_bytes), link=link)


def _buffers(case: CollectiveCase, size: int, length: int) -> tuple[list[Named], list[Named]]:
    """Buffers of all, also of a server, that hold terms of their rank alone; twice."""
    count = len(case.schedules(size, length))
    one, other = (
        [[*case.terms(min(rank, size - 1), size, length)] for rank in range(count)]
        for _ in range(2)
    )
    return one, other


def _skip_unless_replayed(case: CollectiveCase) -> None:
    if not case.of(2).sums(2, 1, 1):
        pytest.skip("it keeps no sums: after a death all workers go back")


class CollectiveConformance:
    """The promises of `Collective`, one test a promise."""

    @pytest.fixture
    def case(self) -> CollectiveCase:
        """The collective that is tested."""
        raise NotImplementedError("give the suite a collective: override this fixture")

    @pytest.mark.parametrize(
        ("size", "chunk"), [(1, 16), (2, 7), (3, 1), (3, 1000), (4, 16), (5, 7)]
    )
    def test_the_sum_is_in_the_stated_order_bit_for_bit(
        self, case: CollectiveCase, size: int, chunk: int
    ) -> None:
        """Also where there are fewer elements than ranks; whole worlds, on real bytes."""
        with world(case.of(size), size, chunk) as here:
            for seed, length in enumerate([0, 1, 2, 5, 7, 300, 4099 // max(1, 16 // chunk)]):
                inputs = case.inputs(size, length, seed)
                expected = case.expected(inputs)
                brought = [case.buffer(rank, size, inputs) for rank in range(size)]
                for rank, result in enumerate(here.sum_up(brought)):
                    assert same_bits(result, expected), f"rank {rank} of {size}, {length} elements"
                assert here.sums(length) <= here.left()
                assert all(name.destination == EVERYONE for name in here.left())

    @pytest.mark.parametrize("size", [2, 3, 4])
    def test_with_all_sums_stored_nobody_needs_an_input(
        self, case: CollectiveCase, size: int
    ) -> None:
        _skip_unless_replayed(case)
        names = case.of(size).sums(size, 50, 5)
        for schedule in case.schedules(size, 50, names, chunk=5):
            assert not schedule.reads_buffer
            assert {op.kind for op in schedule} <= {Kind.GET, Kind.DROP}
            assert {op.name for op in schedule if op.kind is Kind.GET} == set(names)

    @pytest.mark.parametrize("size", SIZES)
    def test_a_fresh_start_needs_every_input(self, case: CollectiveCase, size: int) -> None:
        schedules = case.schedules(size, 50, chunk=5)[:size]
        assert all(schedule.reads_buffer for schedule in schedules)

    @pytest.mark.parametrize("size", [2, 3, 4])
    def test_with_a_sum_missing_inputs_are_needed(self, case: CollectiveCase, size: int) -> None:
        """The ranks whose contributions go into it say so, and nothing is sent for the others."""
        names = set(case.of(size).sums(size, 50, 5))
        for missing in names:
            schedules = case.schedules(size, 50, names - {missing}, chunk=5)
            assert all(schedule.reads_buffer for schedule in schedules)
            puts = [op for schedule in schedules for op in schedule if op.kind is Kind.PUT]
            assert {op.name for op in puts if op.feeds is None} == {missing}
            assert {op.feeds for op in puts} == {missing, None}

    def test_the_schedules_of_all_ranks_fit(self, case: CollectiveCase) -> None:
        """What is waited for is put, by the rank it says; nothing is put twice, or never read."""
        for seed in range(20):
            random = Random(seed)
            size, length, chunk = (random.randint(*of) for of in ((2, 11), (0, 100), (1, 40)))
            schedules = case.schedules(size, length, chunk=chunk)
            link = Link(
                up_bytes_per_s=1e6,
                down_bytes_per_s=1e6,
                latency_s=0.01,
                in_flight=random.choice([1, 3, 100]),
                direct=random.random() < 0.5,
            )
            timed = simulate(schedules, link)
            assert [len(times) for times in timed] == [len(schedule) for schedule in schedules]
            ops = [op for schedule in schedules for op in schedule]
            put = [op.name for op in ops if op.kind is Kind.PUT and op.name is not None]
            assert len(put) == len(set(put))
            assert {op.name for op in ops if op.kind in READS} == set(put)
            dropped = [name for op in ops if op.kind is Kind.DROP for name in op.terms]
            assert len(dropped) == len(set(dropped))
            left = set(put).difference(dropped)
            assert len(left) == len(put) - len(dropped), "what is dropped was put"
            assert all(name.destination == EVERYONE for name in left), "its reader drops a message"
            sums = set(case.of(size).sums(size, length, chunk))
            assert sums <= left
            for op in (op for schedule in schedules[:size] for op in schedule):
                if op.kind is Kind.PUT and sums and op.name not in sums:
                    assert op.feeds in sums

    @pytest.mark.parametrize("in_list_order", [True, False])
    def test_any_order_that_the_schedule_allows_gives_the_same(
        self, case: CollectiveCase, in_list_order: bool
    ) -> None:
        """Lanes run beside each other, and requests pass each other: `after` says all that counts.

        Also with a share of the sums stored.

        Args:
            in_list_order: one operation at a time.
        """
        for seed in range(25):
            drawn = Random(seed)
            size, length, chunk = (drawn.randint(*of) for of in ((1, 5), (0, 30), (1, 10)))
            share = drawn.choice([0.0, 0.3, 0.8, 1.0])
            random = None if in_list_order else drawn
            expected = case.named(size, length)
            fresh, buffers = _buffers(case, size, length)
            left = play(case.schedules(size, length, chunk=chunk), buffers, random)
            assert [one[:length] for one in buffers[:size]] == [expected] * size
            sums = sorted(case.of(size).sums(size, length, chunk), key=str)
            assert set(sums) <= set(left)
            assert all(name.destination == EVERYONE for name in left)
            stored = {name: left[name] for name in sums if drawn.random() < share}
            play(case.schedules(size, length, stored, chunk=chunk), fresh, random, stored)
            assert [one[:length] for one in fresh[:size]] == [expected] * size

    def test_the_stated_cost_is_that_of_the_schedule(self, case: CollectiveCase) -> None:
        """Requests and bytes are exact, memory is an upper bound, time is within a stated error."""
        if case.of(2).cost is None:
            pytest.skip("it states no cost: it is taken from the schedule")
        for seed in range(20):
            one = _random_all_reduce(Random(seed), sums=case.of(2).server)
            how = case.of(one.members)
            stated, there = cost_of("", how, one), cost_by_schedule(how, one)
            for what in ("puts", "gets", "bytes_up", "bytes_down"):
                assert getattr(stated, what) == getattr(there, what), f"{what} of {one}"
            assert stated.memory_bytes >= there.memory_bytes, f"memory of {one}"
            near = pytest.approx(there.seconds, rel=case.cost_error)
            assert stated.seconds == near, f"time of {one}"

    def test_ranks_outside_the_world_are_refused(self, case: CollectiveCase) -> None:
        for rank, size in ((-1, 2), (2, 2)):
            with pytest.raises(ValueError, match=f"rank {rank} of {size}"):
                case.of(2).schedule(rank, size, 10)
