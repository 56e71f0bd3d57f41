"""Rounds of workers in virtual time, by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from dayfly.planning.closed_sums import asked_of, sum_of
from dayfly.planning.configuration import flat
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.simulation.rounds import LocalSteps
from dayfly.planning.summed import Summed
from dayfly.wire.collectives.cost import Phase
from dayfly.wire.streams import HostLink
from tests.planning.simulation.made import configuration, made_course, profile


def test_what_a_predecessor_has_put_comes_earlier_to_the_sum() -> None:
    """Two workers of two steps of 1 s; a sum of 3 s. Rank 1 begins at 5 s, with a credit of 4 s.

    Without credit all have its contribution at 7 s, with it at 3 s, so the sum is over at 6 s; but
    rank 1 itself computes until 7 s.
    """
    rounds = LocalSteps(np.ones((2, 2)), [Phase(3.0)], apply_s=0.5, over_s=0.25)
    began_N, slow_NK = np.array([0.0, 5.0]), np.ones((2, 2))
    late = rounds.take(began_N, slow_NK, np.zeros(2))
    assert late.ended_N.tolist() == [10.75, 10.75]
    taken = rounds.take(began_N, slow_NK, np.array([0.0, 4.0]))
    assert taken.computed_N.tolist() == [2.0, 7.0]
    assert taken.ended_N.tolist() == [6.75, 7.75]


def test_a_stage_shares_the_links_of_the_hosts_that_it_is_on() -> None:
    """Three functions on a host: ranks 0 and 1 of the first stage, and 2 of the second; then 3."""
    host = HostLink(functions=3, bytes_per_s=50e6)  # as much as one of them can carry
    known = profile(host=host)
    asked = configuration(4, cut=(2,), replicas=2, micro_batches=2)
    rounds = made_course(asked, known=known).turn(0).rounds
    taken = rounds.take(np.zeros(4), np.ones((4, 1)), np.zeros(4))
    first_s, second_s = (sum(one.phase.length_s for one in row) for row in taken.windows)
    size, means = known.sizes[0], ChannelModel.of(known)
    of = partial(asked_of, 2, means=means, size=size, groups=2)
    buckets = flat(known.layers[:2], tail=0).buckets
    expected = [
        sum(sum_of("scatter-reduce", None, of(Summed(n), first=first)).seconds for n in buckets)
        for first in (0, 2)
    ]
    assert [first_s, second_s] == pytest.approx(expected)
    assert first_s > 1.5 * second_s
