"""What every collective promises: its order of summation, bit for bit, whatever is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, split
from dayfly.wire.virtual import Link, simulate
from tests.collectives.algorithms import ALGORITHMS, REPLAYED, Algorithm
from tests.collectives.play import Buffer, play
from tests.collectives.world import World, random_inputs, same_bits, world

SIZES = range(1, 6)
READS = {Kind.GET, Kind.FETCH}

of_all = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
of_replayed = pytest.mark.parametrize("algorithm", REPLAYED, ids=str)


class Worlds:
    """Worlds of one collective, made when first used: engines and channels serve many steps."""

    def __init__(self, algorithm: Algorithm, stack: ExitStack) -> None:
        self.algorithm = algorithm
        self._stack = stack
        self._worlds: dict[tuple[int, int], World] = {}

    def of(self, size: int, chunk: int = 16) -> World:
        """The world of this many ranks."""
        if (size, chunk) not in self._worlds:
            here = world(self.algorithm.of(size), size, chunk)
            self._worlds[size, chunk] = self._stack.enter_context(here)
        return self._worlds[size, chunk]


@pytest.fixture(scope="module", params=ALGORITHMS, ids=str)
def worlds(request: pytest.FixtureRequest) -> Iterator[Worlds]:
    """Each algorithm."""
    with ExitStack() as stack:
        yield Worlds(request.param, stack)


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from(SIZES),
    chunk=st.sampled_from([1, 7, 16, 1000]),
    length=st.integers(0, 300),
    seed=st.integers(0, 2**32),
)
@pytest.mark.long
def test_the_sum_is_in_the_stated_order_bit_for_bit(
    worlds: Worlds, size: int, chunk: int, length: int, seed: int
) -> None:
    inputs = random_inputs(size, length, seed)
    expected = worlds.algorithm.expected(inputs)
    for rank, result in enumerate(worlds.of(size, chunk).all_reduce(inputs)):
        assert same_bits(result, expected), f"rank {rank}"


@pytest.mark.parametrize("length", [0, 1, 2, 5, 7, 4099])
@pytest.mark.parametrize("size", SIZES)
def test_whole_numbers_are_summed_exactly(worlds: Worlds, size: int, length: int) -> None:
    """Also where there are fewer elements than ranks."""
    inputs = [torch.arange(length) * 3.0 + rank for rank in range(size)]
    expected = torch.arange(length) * 3.0 * size + size * (size - 1) / 2
    here = worlds.of(size)
    for result in here.all_reduce(inputs):
        assert torch.equal(result, expected)
    assert here.left() == worlds.algorithm.stays(size, length, here.chunk)
    assert all(name.destination == EVERYONE for name in here.left())


@pytest.mark.parametrize("size", [2, 3])
def test_stored_sums_change_nothing(worlds: Worlds, size: int) -> None:
    """All ranks start again with some of the sums stored, and with input that changed since.

    What is stored is taken as it is; where it is not, the new input counts.
    """
    here, random = worlds.of(size, 2), Random(size)
    names = sorted(here.sums(11), key=str)
    for count in range(len(names) + 1) if names else ():
        some = set(random.sample(names, count))
        inputs = random_inputs(size, 11, count)
        expected = here.all_reduce(inputs)[0]
        here.drop(set(names) - some)
        found = here.engines[0].stored_sums(inputs[0], here.step, "grad")
        assert found == some
        for result in here.all_reduce(inputs, found, here.step):
            assert same_bits(result, expected), f"stored: {some}"
        assert here.left() == set(names)


@of_replayed
@pytest.mark.parametrize("size", [2, 3, 4])
def test_with_all_sums_stored_nobody_needs_an_input(algorithm: Algorithm, size: int) -> None:
    names = algorithm.of(size).sums(size, 50, 5)
    for schedule in algorithm.schedules(size, 50, names, chunk=5):
        assert not schedule.reads_buffer
        assert {op.kind for op in schedule} <= {Kind.GET, Kind.DROP}
        assert {op.name for op in schedule if op.kind is Kind.GET} == set(names)


@of_all
@pytest.mark.parametrize("size", SIZES)
def test_a_fresh_start_needs_every_input(algorithm: Algorithm, size: int) -> None:
    schedules = algorithm.schedules(size, 50, chunk=5)[:size]
    assert all(schedule.reads_buffer for schedule in schedules)


@of_replayed
@pytest.mark.parametrize("size", [2, 3, 4])
def test_with_a_sum_missing_inputs_are_needed(algorithm: Algorithm, size: int) -> None:
    """The ranks whose contributions go into it say so, and nothing is sent for the others."""
    names = set(algorithm.of(size).sums(size, 50, 5))
    for missing in names:
        schedules = algorithm.schedules(size, 50, names - {missing}, chunk=5)
        assert all(schedule.reads_buffer for schedule in schedules)
        puts = [op for schedule in schedules for op in schedule if op.kind is Kind.PUT]
        assert {op.name for op in puts if op.feeds is None} == {missing}
        assert {op.feeds for op in puts} == {missing, None}


@of_all
@settings(deadline=None, max_examples=25)
@given(
    size=st.sampled_from(range(1, 12)),
    length=st.integers(0, 100),
    chunk=st.integers(1, 40),
    in_flight=st.sampled_from([1, 3, 100]),
    direct=st.booleans(),
)
@pytest.mark.long
def test_the_schedules_of_all_ranks_fit(
    algorithm: Algorithm, size: int, length: int, chunk: int, in_flight: int, direct: bool
) -> None:
    """Every message that is waited for is put, by the rank it says; none is put twice or unread."""
    schedules = algorithm.schedules(size, length, chunk=chunk)
    link = Link(
        up_bytes_per_s=1e6, down_bytes_per_s=1e6, latency_s=0.01, in_flight=in_flight, direct=direct
    )
    timed = simulate(schedules, link)
    assert [len(times) for times in timed] == [len(schedule) for schedule in schedules]
    put = [op.name for schedule in schedules for op in schedule if op.kind is Kind.PUT]
    read = {op.name for schedule in schedules for op in schedule if op.kind in READS}
    assert len(put) == len(set(put))
    assert read == set(put)
    dropped = [
        name
        for schedule in schedules
        for op in schedule
        if op.kind is Kind.DROP
        for name in op.terms
    ]
    stays = algorithm.stays(size, length, chunk)
    assert sorted(map(str, dropped)) == sorted(str(name) for name in put if name not in stays)
    sums = set(algorithm.of(size).sums(size, length, chunk))
    for schedule in schedules[:size]:
        for op in schedule:
            if op.kind is Kind.PUT and sums and op.name not in sums:
                assert op.feeds in sums


@of_all
@settings(deadline=None, max_examples=40)
@given(
    size=st.sampled_from(range(1, 6)),
    length=st.integers(0, 30),
    chunk=st.integers(1, 10),
    seed=st.none() | st.integers(0, 2**32),
    share=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
)
def test_any_order_that_the_schedule_allows_gives_the_same(
    algorithm: Algorithm, size: int, length: int, chunk: int, seed: int | None, share: float
) -> None:
    """Lanes run beside each other, and requests pass each other: `after` says all that counts.

    Also with a share of the sums stored, and one operation at a time, in the order of the list.
    """
    random = None if seed is None else Random(seed)
    expected: Buffer = [()] * length
    for owner, span in enumerate(split(length, size)):
        expected[span.start : span.stop] = [tuple(algorithm.order(size, owner))] * len(span)
    fresh, buffers = _ranks(algorithm, size, length)
    left = play(algorithm.schedules(size, length, chunk=chunk), buffers, random)
    assert buffers[:size] == [expected] * size
    assert set(left) == algorithm.stays(size, length, chunk)
    sums = sorted(algorithm.of(size).sums(size, length, chunk), key=str)
    stored = {name: left[name] for name in sums if Random(str((seed, name))).random() < share}
    play(algorithm.schedules(size, length, stored, chunk=chunk), fresh, random, stored)
    assert fresh[:size] == [expected] * size


def _ranks(algorithm: Algorithm, size: int, length: int) -> tuple[list[Buffer], list[Buffer]]:
    """Buffers of all, also of a server, that hold terms of their rank alone; twice."""
    count = len(algorithm.schedules(size, length))
    one, other = ([[(rank,)] * length for rank in range(count)] for _ in range(2))
    return one, other


@of_all
def test_ranks_outside_the_world_are_refused(algorithm: Algorithm) -> None:
    for rank, size in ((-1, 2), (2, 2)):
        with pytest.raises(ValueError, match=f"rank {rank} of {size}"):
            algorithm.of(2).schedule(rank, size, 10)
