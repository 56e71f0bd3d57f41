"""Fronts: what is on one, and what is chosen from it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.planning.choose.arrays import dominated, undominated
from dayfly.planning.choose.front import Front, Point, explained, number, per_cent

pytestmark = pytest.mark.long

#: By hand: seconds, dollars. b and e are dominated; f equals d.
POINTS = [
    Point(10.0, 9.0, "a"),
    Point(12.0, 9.5, "b"),
    Point(20.0, 4.0, "c", ("8 functions at once",)),
    Point(40.0, 2.0, "d"),
    Point(40.0, 3.0, "e"),
    Point(40.0, 2.0, "f"),
    Point(100.0, 1.5, "g"),
]
FRONT = Front.of(POINTS)

# Few distinct values, so that many are equal.
few = st.integers(1, 12).map(float)
plans = st.lists(st.tuples(few, few), min_size=1, max_size=30)


def by_hand(points: list[tuple[float, float]]) -> list[int]:
    """Indices of those that nothing dominates, the first of equal ones."""
    return [
        at
        for at, (s, usd) in enumerate(points)
        if not any(
            (t <= s and c <= usd and (t, c) != (s, usd)) or ((t, c) == (s, usd) and other < at)
            for other, (t, c) in enumerate(points)
        )
    ]


def front_of(points: list[tuple[float, float]]) -> Front[int]:
    return Front.of(Point(s, usd, at) for at, (s, usd) in enumerate(points))


def test_the_drawing() -> None:
    assert [point.plan for point in FRONT.points] == ["a", "c", "d", "g"]
    assert FRONT.fastest.plan == "a"
    assert FRONT.cheapest.plan == "g"
    assert str(FRONT.fastest) == "a: 10 s and $9"


@given(plans)
def test_a_front_is_what_nothing_dominates(points: list[tuple[float, float]]) -> None:
    expected = sorted(by_hand(points), key=lambda at: points[at])
    assert [point.plan for point in front_of(points).points] == expected
    seconds, usd = (np.array(side) for side in zip(*points, strict=True))
    assert undominated(seconds, usd).tolist() == expected


@given(plans, plans)
def test_what_a_front_dominates(
    points: list[tuple[float, float]], others: list[tuple[float, float]]
) -> None:
    seconds, usd = (np.array(side) for side in zip(*points, strict=True))
    kept = undominated(seconds, usd)
    other_s, other_usd = (np.array(side) for side in zip(*others, strict=True))
    found = dominated(other_s, other_usd, seconds[kept], usd[kept])
    assert found.tolist() == [any(a <= s and b <= c for a, b in points) for s, c in others]


def test_no_front() -> None:
    nothing = np.zeros(0)
    assert undominated(nothing, nothing).tolist() == []
    assert dominated(np.ones(1), np.ones(1), nothing, nothing).tolist() == [False]
    with pytest.raises(ValueError, match="a front has points"):
        Front.of([])
    with pytest.raises(ValueError, match="by rising seconds and falling dollars"):
        Front((POINTS[0], POINTS[1]))


@given(plans, few, few)
def test_choices_equal_a_search_through_all(
    points: list[tuple[float, float]], deadline_s: float, budget_usd: float
) -> None:
    front = front_of(points)
    in_time = [(usd, s) for s, usd in points if s <= deadline_s]
    paid = [(s, usd) for s, usd in points if usd <= budget_usd]
    if in_time:
        chosen = front.cheapest_within(deadline_s)
        assert (chosen.usd, chosen.seconds) == min(in_time)
    else:
        with pytest.raises(RequestError, match="no plan is done within the deadline"):
            front.cheapest_within(deadline_s)
    if paid:
        quickest = front.fastest_within(budget_usd)
        assert (quickest.seconds, quickest.usd) == min(paid)
    else:
        with pytest.raises(RequestError, match="no plan costs as little as the budget"):
            front.fastest_within(budget_usd)


@given(plans, st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.25, 1.0, 2.0]))
def test_weights_find_the_least_of_all(
    points: list[tuple[float, float]], alpha1: float, alpha2: float
) -> None:
    front = front_of(points)
    if not alpha1 and not alpha2:
        with pytest.raises(RequestError, match="give none below 0, and one above"):
            front.weighted(alpha1, alpha2)
        return
    chosen = front.weighted(alpha1, alpha2)
    # Equal sums: the cheapest; and of plans that cost the same, the fastest.
    assert (chosen.usd, chosen.seconds) == min(
        ((usd, s) for s, usd in points),
        key=lambda one: (alpha1 * one[0] + alpha2 * one[1], *one),
    )


def test_weights_alone_are_the_ends() -> None:
    assert FRONT.weighted(1, 0) is FRONT.cheapest
    assert FRONT.weighted(0, 1) is FRONT.fastest
    assert FRONT.weighted(1, 0.1).plan == "d"  # c is 4 + 2, d is 2 + 4: the cheaper one
    assert FRONT.weighted(1, 0.11).plan == "c"


def test_the_knee() -> None:
    """Scaled: c is (1/9, 1/3), d is (1/3, 1/15); below the line by 5/9 and by 3/5."""
    assert FRONT.knee().plan == "d"
    assert Front.of([Point(1.0, 1.0, "only")]).knee().plan == "only"
    two = Front.of([Point(1.0, 2.0, "fast"), Point(2.0, 1.0, "cheap")])
    assert two.knee().plan == "cheap"
    outward = Front.of([Point(1.0, 9.0, "x"), Point(8.0, 8.0, "y"), Point(9.0, 1.0, "z")])
    assert outward.knee().plan == "z"


@given(plans, st.floats(0.01, 100), st.floats(0.01, 100))
def test_the_knee_does_not_depend_on_units(
    points: list[tuple[float, float]], a: float, b: float
) -> None:
    front = front_of(points)
    scaled = front_of([(a * s, b * usd) for s, usd in points])
    first, last = front.fastest, front.cheapest

    def below(one: Point[int]) -> float:
        if first is last:
            return 0.0
        wide_s, wide_usd = last.seconds - first.seconds, first.usd - last.usd
        return 1 - (one.seconds - first.seconds) / wide_s - (one.usd - last.usd) / wide_usd

    most = max(below(one) for one in front.points)
    known = {one.plan: one for one in front.points}
    for knee in (front.knee(), known[scaled.knee().plan]):
        assert below(knee) == pytest.approx(most)


def test_funcpipes_recommendation() -> None:
    """Section 5.1: delta of d is (100/40 - 1) / (2/1.5 - 1) = 4.5; of c 4/(5/3) = 2.4, of a 9/5."""
    assert FRONT.recommended().plan == "a"
    assert FRONT.recommended(1.81).plan == "c"
    assert FRONT.recommended(2.4).plan == "c"
    assert FRONT.recommended(4.5).plan == "d"
    assert FRONT.recommended(5).plan == "g"
    assert FRONT.recommended(0).plan == "a"
    with pytest.raises(RequestError, match="delta is -1: give 0 or more"):
        FRONT.recommended(-1)
    free = Front.of([Point(1.0, 1.0, "paid"), Point(2.0, 0.0, "free")])
    assert free.recommended().plan == "free"


@given(plans, st.floats(0, 5))
def test_the_recommendation_is_the_fastest_of_so_much_delta(
    points: list[tuple[float, float]], delta: float
) -> None:
    front = front_of(points)
    least, chosen = front.cheapest, front.recommended(delta)
    for one in front.points:
        if one.seconds < chosen.seconds:
            assert (least.seconds / one.seconds - 1) / (one.usd / least.usd - 1) < delta + 1e-9
    if chosen is not least:
        assert (least.seconds / chosen.seconds - 1) / (chosen.usd / least.usd - 1) >= delta - 1e-9


def test_refusals_name_the_nearest_plan() -> None:
    with pytest.raises(RequestError) as refusal:
        FRONT.cheapest_within(9.5)
    assert str(refusal.value) == (
        "no plan is done within the deadline of 9.5 s: the fastest is a: 10 s and $9; allow 10 s"
    )
    with pytest.raises(RequestError) as refusal:
        Front.of(POINTS[2:3]).fastest_within(3)
    assert str(refusal.value) == (
        "no plan costs as little as the budget of $3: the cheapest is c: 20 s and $4; give $4, or "
        "more than 8 functions at once"
    )


exact = st.floats(1e-6, 1e9)


@given(exact, exact)
def test_what_a_refusal_says_is_enough(s: float, usd: float) -> None:
    front = Front.of([Point(s, usd, "x")])
    with pytest.raises(RequestError) as late:
        front.cheapest_within(s / 2)
    with pytest.raises(RequestError) as dear:
        front.fastest_within(usd / 2)
    allowed = re.search(r"allow ([0-9.]+) s$", str(late.value))
    given_usd = re.search(r"give \$([0-9.]+)$", str(dear.value))
    assert allowed
    assert given_usd
    assert front.cheapest_within(float(allowed[1])).plan == "x"
    assert front.fastest_within(float(given_usd[1])).plan == "x"
    assert float(allowed[1]) <= s * 1.0011


def test_words_of_a_deadline() -> None:
    chosen = FRONT.cheapest_within(39.8)
    assert explained(FRONT, chosen, deadline_s=39.8) == (
        "c: 20 s and $4. The deadline of 39.8 s binds: 1% more would save $2 (50%), with d: 40 s "
        "and $2. It is at the limit of 8 functions at once. A dollar more would buy nothing: what "
        "is faster costs $5 (125%) more, a: 10 s and $9."
    )
    assert "binds: 1% more would save nothing, and 33% more allow d: 40 s and $2." in explained(
        FRONT, chosen, deadline_s=30
    )
    assert "The deadline of 200 s does not bind: nothing is cheaper." in explained(
        FRONT, FRONT.cheapest_within(200), deadline_s=200
    )
    assert "does not bind: c: 20 s and $4 would keep it, too." in explained(
        FRONT, FRONT.fastest, deadline_s=50
    )


def test_words_of_a_budget() -> None:
    dear = Front.of([Point(10.0, 4.5, "x"), Point(20.0, 4.0, "y"), Point(30.0, 0.5, "z")])
    assert explained(dear, dear.fastest_within(4.2), budget_usd=4.2) == (
        "y: 20 s and $4. The budget of $4.2 binds: 1% more would save nothing, and 7.1% more allow "
        "x: 10 s and $4.5. A dollar more would save 10 s (50%), with x: 10 s and $4.5."
    )
    assert "binds: 1% more would save 10 s (50%), with x" in explained(
        dear, dear.fastest_within(4.46), budget_usd=4.46
    )
    assert explained(dear, dear.fastest, budget_usd=5) == (
        "x: 10 s and $4.5. The budget of $5 does not bind: nothing is faster. None of the plans "
        "that were compared is faster."
    )
    assert "The budget of $5 does not bind: it allows x: 10 s and $4.5, too." in explained(
        dear, dear.cheapest_within(25), budget_usd=5
    )
    assert explained(dear, dear.cheapest).endswith(
        "One per cent more dollars would buy nothing: what is faster costs $3.5 (700%) more, y: 20 "
        "s and $4."
    )


@given(plans, few, few)
def test_words_say_whether_a_limit_binds(
    points: list[tuple[float, float]], deadline_s: float, budget_usd: float
) -> None:
    """It binds if the plan is not the best that there is without it."""
    front = front_of(points)
    if front.fastest.seconds <= deadline_s:
        said = explained(front, front.cheapest_within(deadline_s), deadline_s=deadline_s)
        binds = front.cheapest_within(deadline_s) is not front.cheapest
        assert ("binds: " in said) == binds
        assert ("does not bind" in said) == (not binds)
    if front.cheapest.usd <= budget_usd:
        said = explained(front, front.fastest_within(budget_usd), budget_usd=budget_usd)
        binds = front.fastest_within(budget_usd) is not front.fastest
        assert ("binds: " in said) == binds


def test_figures_have_four_digits() -> None:
    assert [number(one) for one in (12345.6, 0.0123456, 1.5, 0.0)] == [
        "12350",
        "0.01235",
        "1.5",
        "0",
    ]
    assert [number(one, enough=True) for one in (12341.0, 0.1 + 0.2)] == ["12350", "0.3001"]
    assert [per_cent(part, 3) for part in (0.01, 1, 3, 300)] == ["0.33%", "33%", "100%", "10000%"]
    assert (per_cent(1, 0), per_cent(1e-6, 1)) == ("all", "under 0.01%")


@settings(max_examples=50, deadline=None)
@given(
    plans=st.lists(st.tuples(st.floats(1, 9), st.floats(1, 9)), min_size=1, max_size=12),
    slack=st.floats(0.0, 0.3),
)
def test_near_plans_are_those_that_none_beats_in_both_goals_by_more(
    plans: list[tuple[float, float]], slack: float
) -> None:
    points = [Point(seconds, usd, at) for at, (seconds, usd) in enumerate(plans)]
    front = Front.of(points)
    near = front.near(points, slack, len(points))
    for one in points:
        beaten = any(
            one.seconds / other.seconds > 1 + slack and one.usd / other.usd > 1 + slack
            for other in points
        )
        assert (one in near) == (not beaten)
    assert set(front.points) <= set(near)
    assert front.near(points, slack, 1) == near[:1]
