"""What of a timeline goes into a page: all of it, or what is near events, and shares elsewhere."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dayfly.runs.report import detail
from dayfly.runs.report.detail import UNIT_S, Detail, choose, tree
from dayfly.runs.report.spans import Step, TimeSpan
from dayfly.runs.report.timeline import Attempt, Band, Timeline
from tests.report.made_up import regular, timeline


def one_band(spans: list[tuple[float, float]], length_s: float, died_s: float) -> Timeline:
    attempts = (
        Attempt(life=0, number=0, start_s=0.0, ready_s=0.0, end_s=died_s, end="death"),
        Attempt(life=0, number=1, start_s=died_s, ready_s=died_s, end_s=length_s, end="done"),
    )
    drawn = {"compute": tuple(TimeSpan("compute", *pair) for pair in spans)}
    steps = tuple(Step(n, *pair, True) for n, pair in enumerate(spans))
    band = Band(0, attempts, steps, drawn)
    return Timeline(origin_s=0.0, as_of_s=length_s, length_s=length_s, bands=(band,))


def decoded(numbers: list[int]) -> list[tuple[float, float]]:
    ends = list(accumulate(numbers))
    times = [round(end * UNIT_S, 5) for end in ends]
    return list(zip(times[::2], times[1::2], strict=True))


def test_a_small_run_is_whole() -> None:
    times = one_band([(0.0, 0.5), (1.0, 1.25)], 2.0, 1.0)
    chosen = choose(times)
    assert chosen == Detail(((0.0, 2.0),), None, 0, 4)
    band = tree(times, chosen)["bands"][0]
    assert band["spans"] == {"compute": [0, 50_000, 50_000, 25_000]}
    assert band["steps"] == [0, 50_000, 0, 1, 50_000, 25_000, 1, 1]
    assert band["attempts"] == [
        [0, 0, 0, 0, 100_000, "death", ""],
        [0, 1, 100_000, 100_000, 200_000, "done", ""],
    ]
    assert band["shares"] == {}


#  time     0     1     2     3     4     5     6     7     8
#  spans    |=    |=    |=    |=    |=    |=    |=    |=    |      half of each second
#  events   begin                   died              end
#  order    1     4     8     5     2     6     7     3            -> with room for 5 seconds:
#  drawn    each  each  share share each  share each  each
def test_what_is_near_the_ends_and_deaths_is_drawn_one_by_one() -> None:
    times = one_band([(float(n), n + 0.5) for n in range(8)], 8.0, 4.25)
    chosen = choose(times, spans=10, shares=8)  # a second has a span and a step
    assert (chosen.bins, chosen.bin_s, chosen.total) == (8, 1.0, 16)
    assert chosen.windows == ((0.0, 2.0), (3.0, 5.0), (7.0, 8.0))
    assert list(chosen.coarse()) == [2, 5, 6]
    page = tree(times, chosen)
    assert page["coarse"] == (2, 5, 6)
    assert page["bands"][0]["shares"] == {"compute": [500, 500, 500]}
    assert decoded(page["bands"][0]["spans"]["compute"]) == [
        (0.0, 0.5),
        (1.0, 1.5),
        (3.0, 3.5),
        (4.0, 4.5),
        (7.0, 7.5),
    ]
    assert page["bands"][0]["steps"][2::4] == [0, 1, 3, 4, 7]


def test_a_span_over_a_border_is_cut_there() -> None:
    times = one_band([(0.0, 0.1), (0.2, 3.5), (3.6, 3.7)], 4.0, 0.5)
    chosen = choose(times, spans=5, shares=4)
    assert chosen.windows == ((0.0, 1.0),)
    page = tree(times, chosen)
    assert decoded(page["bands"][0]["spans"]["compute"]) == [(0.0, 0.1), (0.2, 1.0)]
    assert page["bands"][0]["shares"] == {"compute": [1000, 1000, 600]}


def test_a_run_with_too_much_in_every_bin_has_shares_only() -> None:
    times = one_band([(n / 100, n / 100 + 0.005) for n in range(400)], 4.0, 2.0)
    chosen = choose(times, spans=3, shares=4)
    assert chosen.windows == ()
    assert tree(times, chosen)["bands"][0]["shares"] == {"compute": [500] * 4}
    assert tree(times, chosen)["bands"][0]["spans"] == {"compute": []}


def seconds(page: dict[str, Any], kind: str) -> float:
    """Of all workers: of what is drawn by itself, and of shares."""
    drawn = sum(
        end - start for band in page["bands"] for start, end in decoded(band["spans"].get(kind, []))
    )
    shares = sum(share for band in page["bands"] for share in band["shares"].get(kind, ()))
    return drawn + shares / 1000 * (page["bin"] or 0) * UNIT_S


@settings(deadline=None, max_examples=30)
@given(some.integers(2, 5), some.integers(4, 40), some.integers(0, 400), some.integers(1, 400))
def test_no_time_is_lost(workers: int, steps: int, spans: int, shares: int) -> None:
    times = timeline(*regular(workers, steps), running=False)
    chosen = choose(times, spans=spans, shares=shares)
    page = tree(times, chosen)
    for kind in ("compute", "upload", "wait", "cold start"):
        true_s = sum(band.seconds()[kind] for band in times.bands)
        numbers = len(chosen.windows) * workers + workers * max(1, chosen.bins) + 10 * steps
        allowed_s = UNIT_S * numbers + (chosen.bin_s or 0) * workers * chosen.bins * 5e-4
        assert seconds(page, kind) == pytest.approx(true_s, abs=allowed_s)
    drawn = sum(len(band["spans"][kind]) // 2 for band in page["bands"] for kind in band["spans"])
    if chosen.bin_s is not None:
        assert drawn <= spans
    assert page == tree(times, choose(times, spans=spans, shares=shares))


@pytest.mark.slow
@pytest.mark.long
def test_64_workers_and_hundreds_of_steps_fit_into_a_page() -> None:
    times = timeline(*regular(64, 500), running=False)
    chosen = choose(times)
    assert chosen.total > detail.SPANS
    assert chosen.windows[0][0] == 0.0
    (died_s,) = (one.end_s for band in times.bands for one in band.attempts if one.end == "death")
    assert any(start_s < died_s - 1 and died_s + 1 < end_s for start_s, end_s in chosen.windows)
    assert len(json.dumps(tree(times, chosen), separators=(",", ":"))) < 4_000_000
