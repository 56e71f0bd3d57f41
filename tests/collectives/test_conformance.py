"""What every collective promises: the sum in rank order, bit for bit, whatever is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.collectives import COLLECTIVES, Collective
from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Name, Schedule
from dayfly.wire.virtual import Link, simulate
from tests.collectives.world import World, random_inputs, same_bits, sum_in_rank_order, world

SIZES = range(1, 7)
LINK = Link(up_bytes_per_s=1e6, down_bytes_per_s=1e6, latency_s=0.01)


class Worlds:
    """Worlds of one collective, made when first used: engines and channels serve many steps."""

    def __init__(self, collective: Collective, stack: ExitStack) -> None:
        self.collective = collective
        self._stack = stack
        self._worlds: dict[int, World] = {}

    def of(self, size: int) -> World:
        """The world of this many ranks."""
        if size not in self._worlds:
            self._worlds[size] = self._stack.enter_context(world(self.collective, size))
        return self._worlds[size]

    def schedules(self, size: int, length: int, stored: frozenset[Name]) -> list[Schedule]:
        """Every rank's schedule."""
        return [self.collective.schedule(rank, size, length, stored) for rank in range(size)]


@pytest.fixture(scope="module", params=sorted(COLLECTIVES))
def worlds(request: pytest.FixtureRequest) -> Iterator[Worlds]:
    """Each of `COLLECTIVES`."""
    with ExitStack() as stack:
        yield Worlds(COLLECTIVES[request.param], stack)


@settings(max_examples=60, deadline=None)
@given(size=st.sampled_from(SIZES), length=st.integers(0, 300), seed=st.integers(0, 2**32))
def test_the_sum_is_in_rank_order_bit_for_bit(
    worlds: Worlds, size: int, length: int, seed: int
) -> None:
    inputs = random_inputs(size, length, seed)
    expected = sum_in_rank_order(inputs)
    for rank, result in enumerate(worlds.of(size).all_reduce(inputs)):
        assert same_bits(result, expected), f"rank {rank}"


@pytest.mark.parametrize("length", [0, 1, 2, 5, 6, 7, 4099])
@pytest.mark.parametrize("size", SIZES)
def test_whole_numbers_are_summed_exactly(worlds: Worlds, size: int, length: int) -> None:
    """Also where there are fewer elements than ranks."""
    inputs = [torch.arange(length) * 3.0 + rank for rank in range(size)]
    expected = torch.arange(length) * 3.0 * size + size * (size - 1) / 2
    for result in worlds.of(size).all_reduce(inputs):
        assert torch.equal(result, expected)


@pytest.mark.parametrize("size", SIZES)
def test_the_sums_alone_stay(worlds: Worlds, size: int) -> None:
    here = worlds.of(size)
    here.all_reduce(random_inputs(size, 50, 1))
    assert here.left() == set(worlds.collective.sums(size))
    assert all(name.destination == EVERYONE for name in here.left())


@pytest.mark.parametrize("size", [2, 3, 4])
def test_stored_sums_change_nothing(worlds: Worlds, size: int) -> None:
    """All ranks start again with any of the sums stored, and with input that changed since.

    What is stored is taken as it is; where it is not, the new input counts.
    """
    here, names = worlds.of(size), worlds.collective.sums(size)
    for count in range(len(names) + 1):
        for some in combinations(names, count):
            inputs = random_inputs(size, 11, count)
            expected = here.all_reduce(inputs)[0]
            here.drop(set(names) - set(some))
            found = here.engines[0].stored_sums(here.step, "grad")
            assert found == set(some)
            for result in here.all_reduce(inputs, found, here.step):
                assert same_bits(result, expected), f"stored: {some}"
            assert here.left() == set(names)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_with_all_sums_stored_nobody_needs_an_input(worlds: Worlds, size: int) -> None:
    here, names = worlds.of(size), frozenset(worlds.collective.sums(size))
    expected = here.all_reduce(random_inputs(size, 50, 3))[0]
    for schedule in worlds.schedules(size, 50, names):
        assert not schedule.reads_buffer
        assert {op.kind for op in schedule} <= {Kind.GET, Kind.DROP}
    garbage = [torch.full((50,), float("nan"))] * size
    for result in here.all_reduce(garbage, names, here.step):
        assert same_bits(result, expected)


@pytest.mark.parametrize("size", SIZES)
def test_a_fresh_start_needs_every_input(worlds: Worlds, size: int) -> None:
    assert all(schedule.reads_buffer for schedule in worlds.schedules(size, 50, frozenset()))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_with_a_sum_missing_inputs_are_needed(worlds: Worlds, size: int) -> None:
    """At least the ranks whose contributions go into it say so."""
    names = worlds.collective.sums(size)
    for missing in names:
        schedules = worlds.schedules(size, 50, frozenset(names) - {missing})
        assert all(schedule.reads_buffer for schedule in schedules)


@given(size=st.sampled_from(range(1, 20)), length=st.integers(0, 100))
def test_the_schedules_of_all_ranks_fit(worlds: Worlds, size: int, length: int) -> None:
    """Every message that is waited for is put, by the rank it says; all that is put is read."""
    schedules = worlds.schedules(size, length, frozenset())
    timed = simulate(schedules, LINK)
    assert [len(times) for times in timed] == [len(schedule) for schedule in schedules]
    put = [op.name for schedule in schedules for op in schedule if op.kind is Kind.PUT]
    read = {op.name for schedule in schedules for op in schedule if op.kind in READS}
    assert len(put) == len(set(put))
    assert read <= set(put)
    dropped = [
        name
        for schedule in schedules
        for op in schedule
        if op.kind is Kind.DROP
        for name in op.terms
    ]
    assert sorted(map(str, dropped)) == sorted(
        str(name) for name in put if name not in worlds.collective.sums(size)
    )


READS = {Kind.GET, Kind.HOLD}


def test_ranks_outside_the_world_are_refused(worlds: Worlds) -> None:
    for rank, size in ((-1, 2), (2, 2), (0, 0)):
        with pytest.raises(ValueError, match=f"rank {rank} of {size}"):
            worlds.collective.schedule(rank, size, 10)
