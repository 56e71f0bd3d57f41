"""Every collective passes the conformance suite; and what the message log promises on top."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dayfly.wire.collectives.base import Collective, no_sums
from dayfly.wire.collectives.conformance import CollectiveCase, CollectiveConformance
from dayfly.wire.collectives.conformance_world import random_inputs, same_bits, world
from dayfly.wire.collectives.k_reduce import at_everyone
from dayfly.wire.schedule import Schedule
from tests.collectives.algorithms import ALGORITHMS, REPLAYED, TREES, Algorithm


class TestEveryCollective(CollectiveConformance):
    @pytest.fixture(params=[*ALGORITHMS, *TREES], ids=str)
    def case(self, request: pytest.FixtureRequest) -> CollectiveCase:
        found: CollectiveCase = request.param
        return found


@pytest.mark.parametrize("algorithm", REPLAYED, ids=str)
@pytest.mark.parametrize("size", [2, 3])
def test_stored_sums_change_nothing(algorithm: Algorithm, size: int) -> None:
    """All ranks start again with some of the sums stored, and with input that changed since.

    What is stored is taken as it is; where it is not, the new input counts.
    """
    random = Random(size)
    with world(algorithm.of(size), size, 2) as here:
        names = sorted(here.sums(11), key=str)
        for count in range(len(names) + 1):
            some = set(random.sample(names, count))
            inputs = random_inputs(size, 11, count)
            expected = here.all_reduce(inputs)[0]
            here.drop(set(names) - some)
            found = here.engines[0].stored_sums(inputs[0], here.step, "grad")
            assert found == some
            for result in here.all_reduce(inputs, found, here.step):
                assert same_bits(result, expected), f"stored: {some}"
            assert here.left() == set(names)


def test_a_collective_that_sums_in_another_order_is_caught() -> None:
    def backward(rank: int, world_size: int, *others: Any, **named: Any) -> Schedule:
        ops = at_everyone(rank, world_size, *others[:1], chunk=named.get("chunk", 1)).ops
        return Schedule(tuple(replace(op, terms=op.terms[::-1]) for op in ops))

    case = CollectiveCase(Collective(schedule=backward, sums=no_sums))
    suite = CollectiveConformance()
    suite.test_the_schedules_of_all_ranks_fit(case)
    with pytest.raises(AssertionError):
        suite.test_any_order_that_the_schedule_allows_gives_the_same(case, True)
    with pytest.raises(AssertionError):
        suite.test_the_sum_is_in_the_stated_order_bit_for_bit(case, 3, 1)
