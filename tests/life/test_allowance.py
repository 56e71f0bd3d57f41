"""Bills never add up to more than the budget, whatever functions do with their grants."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.life.allowance import LATE_S, SHORTEST_S, Allowance

#: Prices of two functions of two sizes.
PRICES = (0.25, 0.25, 0.5, 0.5)
ALL = sum(PRICES)
START = 0.125


def ask(allowance: Allowance, rank: int, now: float, longest_s: float = math.inf) -> float | None:
    """Returns the life that a function is granted."""
    grant = allowance.ask(
        f"worker-{rank}",
        usd_per_s=PRICES[rank],
        beside_usd=START,
        all_usd_per_s=ALL,
        longest_s=longest_s,
        now=now,
    )
    return None if grant is None else grant.lifetime_s


def test_all_functions_of_a_start_share_the_budget() -> None:
    """33 dollars pay for 22 s of four functions: less a second's delay, and each one's start."""
    allowance = Allowance(33.0)
    assert allowance.lasts_s(7.0, ALL) == 22.0
    lives = [ask(allowance, rank, now=7.0) for rank in range(4)]
    assert lives == [20.5, 20.5, 20.75, 20.75]
    assert allowance.free_usd == 33.0 - (21.5 * 0.5 + 21.75 * 1.0 + 4 * START)
    assert allowance.lasts_s(17.0, ALL) == 12.0


def test_a_successor_lives_on_what_its_predecessor_left() -> None:
    allowance = Allowance(33.0)
    for rank in range(4):
        ask(allowance, rank, now=0.0)
    allowance.settle("worker-3", 10.0 * 0.5 + START)  # it died after ten seconds
    life_s = ask(allowance, 3, now=10.0)
    assert life_s is not None
    assert 10.0 < life_s < 10.75, "until its peers end"
    assert allowance.free_usd >= 0


def test_a_life_that_is_short_anyway_takes_no_more() -> None:
    allowance = Allowance(33.0)
    assert ask(allowance, 0, now=0.0, longest_s=4.0) == 4.0
    assert allowance.free_usd == 33.0 - ((4.0 + LATE_S) * 0.25 + START)


def test_what_pays_for_no_life_is_not_granted() -> None:
    least = (SHORTEST_S + LATE_S + START / PRICES[0]) * ALL
    assert ask(Allowance(least), 0, now=0.0) == SHORTEST_S
    assert ask(Allowance(least - 0.01), 0, now=0.0) is None


@given(
    budget=st.floats(0.0, 100.0),
    moves=st.lists(
        st.tuples(st.integers(0, 3), st.floats(0.0, 1.0), st.floats(0.0, 5.0)), max_size=60
    ),
)
def test_bills_never_exceed_the_budget(
    budget: float, moves: list[tuple[int, float, float]]
) -> None:
    """Functions start and end in any order, each within its grant and the delay."""
    allowance, running, now, bills = Allowance(budget), {}, 0.0, 0.0
    for rank, part, pause_s in moves:
        now += pause_s
        if rank in running:
            began_s, life_s = running.pop(rank)
            lived_s = min(part * (life_s + LATE_S), now - began_s)
            bill = lived_s * PRICES[rank] + START
            bills += bill
            allowance.settle(f"worker-{rank}", bill)
        elif (life_s := ask(allowance, rank, now)) is not None:
            assert life_s >= SHORTEST_S
            running[rank] = (now, life_s)
        most = sum((life + LATE_S) * PRICES[one] + START for one, (_, life) in running.items())
        assert bills + most <= budget + 1e-9


@pytest.mark.parametrize("budget", [0.0, 1e-9])
def test_nothing_pays_for_nothing(budget: float) -> None:
    assert ask(Allowance(budget), 0, now=0.0) is None
