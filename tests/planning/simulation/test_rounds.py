"""Rounds of workers in virtual time, by hand."""

from __future__ import annotations

import numpy as np

from dayfly.planning.simulation.rounds import LocalSteps
from dayfly.wire.collectives.cost import Phase


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
