"""Labels of marks: none lies over another, or over a mark; those that are needed are there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dayfly.runs.report.labels import Label, Spot, spots

WIDE, MARK = 1000.0, 6.0


def box(spot: Spot, text: str) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of 12 px text."""
    long = 6.8 * len(text)
    left = spot.x if spot.anchor == "start" else spot.x - long
    return left, spot.y - 9, left + long, spot.y + 3


def test_a_lone_label_stands_to_the_right_above_its_mark() -> None:
    (spot,) = spots([Label(100, 100, "1")], WIDE, MARK)
    assert spot == Spot(113, 91, "start")


def test_at_the_right_edge_it_stands_to_the_left() -> None:
    (spot,) = spots([Label(990, 100, "17 chosen", needed=True)], WIDE, MARK)
    assert spot is not None
    assert spot.anchor == "end"


def test_what_is_needed_is_placed_first() -> None:
    crowd = [Label(100 + at, 100, str(at)) for at in range(12)]
    found = spots([*crowd, Label(106, 100, "13 chosen, knee", needed=True)], WIDE, MARK)
    assert found[-1] is not None
    assert any(spot is None for spot in found), "there is no room for all of them"


@given(
    st.lists(
        st.builds(
            Label,
            st.floats(60, 940),
            st.floats(20, 400),
            st.sampled_from(["1", "12", "107"]),
        ),
        max_size=25,
    )
)
def test_none_lies_over_another_or_over_a_mark(labels: list[Label]) -> None:
    found = spots(labels, WIDE, MARK)
    boxes = [(at, box(spot, labels[at].text)) for at, spot in enumerate(found) if spot is not None]
    marks = [(one.x - MARK, one.y - MARK, one.x + MARK, one.y + MARK) for one in labels]
    for at, one in boxes:
        others = [two for it, two in boxes if it != at] + marks[:at] + marks[at + 1 :]
        for two in others:
            apart = one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
            assert apart
