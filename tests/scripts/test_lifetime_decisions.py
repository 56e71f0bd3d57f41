"""When rank 0 says that it is time to save: literally, and for any steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.runs.scripts.lifetime import SPARE_S, Announcement, Decisions

pytestmark = pytest.mark.long


@dataclass
class Played:
    """What happened in a life. saves: when the calls began that said so, by their number."""

    announced: dict[int, Announcement] = field(default_factory=dict)
    announced_at_s: list[float] = field(default_factory=list)
    saves: dict[int, float] = field(default_factory=dict)
    calls: int = 0


def play(
    step_s: Callable[[int], float],
    *,
    calls: int,
    save_s: float = 0.0,
    life_s: float = inf,
    every_s: float = inf,
) -> Played:
    """A script that calls, saves if it is told to, and takes a step; until its life is over."""
    decisions, played, now_s = Decisions(), Played(), 0.0
    while played.calls < calls and now_s < life_s:
        call = played.calls
        left_s = life_s - now_s
        assert decisions.begin(now_s) == call
        for wanted in decisions.wanted(lambda left_s=left_s: left_s):
            assert wanted in (call, call + 1), "no more than one ahead"
            played.announced[wanted] = decisions.decide(wanted, left_s, every_s)
            played.announced_at_s.append(now_s)
        if decisions.answer():
            played.saves[call] = now_s
            now_s += save_s
        now_s += step_s(call)
        played.calls += 1
    return played


def followed(played: Played) -> dict[int, bool]:
    """What the others answer, who have the announcements alone."""
    answers, following = {}, 1
    for call in range(played.calls):
        answers[call] = False
        if call == following:
            answers[call] = played.announced[call].due
            following = played.announced[call].following
    return answers


def test_a_life_literally() -> None:
    """Steps of a quarter of a second: announcements reach 1, 2, then 4 calls, which is a second.

    Of the 20 s, 1.5 s are kept for two steps and the spare, and twice 1 s for a save that nobody
    has seen yet: it is due when less than 3.5 s are left. It takes 0.2 s, and there is no other.
    """
    played = play(lambda call: 0.25, calls=1000, save_s=0.2, life_s=20.0)
    assert [(call, made.due, made.following) for call, made in played.announced.items()] == [
        *[(1, False, 2), (2, False, 4), (4, False, 8)],
        *[(call, False, call + 4) for call in range(8, 52, 4)],
        *[(52, False, 55), (55, False, 57), (57, False, 59)],
        *[(call, False, call + 1) for call in range(59, 67)],
        (67, True, 71),  # at 16.75 s
        *[(call, False, call + 4) for call in (71, 75, 79)],
    ]
    assert played.saves == {67: 16.75}


def test_saves_come_every_so_often() -> None:
    played = play(lambda call: 0.01, calls=3000, save_s=0.19, every_s=5.0)
    times = list(played.saves.values())
    assert [round(time, 1) for time in times] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    assert len(played.announced_at_s) <= 33 + 6 * 3 + 6, "a second each, a few before a save"


def test_calls_are_announced_about_once_a_second_and_ahead() -> None:
    played = play(lambda call: 0.001, calls=20_000)
    assert len(played.announced) <= 20 + 12, "a second each, once it is known how long steps take"
    late = [call for call in played.announced if call > 1000]
    assert len(late) >= 15
    for call, at_s in zip(late, played.announced_at_s[-len(late) :], strict=True):
        assert at_s == pytest.approx(0.001 * (call - 1)), "one call ahead"


def test_a_few_fast_calls_do_not_hide_the_slow_ones() -> None:
    """Two calls right after each other, then steps of 2 s: nothing is announced far ahead."""
    played = play(lambda call: 1e-6 if call < 2 else 2.0, calls=1000, save_s=1.0, life_s=60.0)
    (saved_s,) = played.saves.values()
    assert 60 - saved_s > 1.0 + SPARE_S


def test_every_call_may_be_due() -> None:
    played = play(lambda call: 1.0, calls=6, every_s=0.0)
    assert list(played.saves) == [1, 2, 3, 4, 5]


def test_a_life_of_two_steps_is_of_use() -> None:
    """Each life gets the run a step further, if it holds a step and a save at all."""
    played = play(lambda call: 9.0, calls=1000, save_s=0.5, life_s=20.0)
    assert played.saves == {1: 9.0}


def test_without_a_lifetime_nothing_is_due_by_itself() -> None:
    assert play(lambda call: 3.0, calls=500, save_s=1.0).saves == {}


steps = st.lists(st.floats(0.02, 3.0), min_size=1, max_size=20)


@settings(deadline=None)
@given(steps, st.floats(0, 3), st.sampled_from([inf, 300.0]), st.sampled_from([inf, 40.0, 0.5]))
def test_all_ranks_answer_the_same(
    lengths: list[float], save_s: float, life_s: float, every_s: float
) -> None:
    played = play(
        lambda call: lengths[call % len(lengths)],
        calls=400,
        save_s=save_s,
        life_s=life_s,
        every_s=every_s,
    )
    answers = followed(played)
    assert {call for call, due in answers.items() if due} == played.saves.keys()
    assert not answers[0]


@settings(deadline=None)
@given(steps, st.floats(0.1, 6), st.sampled_from([inf, 60.0]))
def test_the_last_save_ends_in_time_and_not_long_before(
    lengths: list[float], save_s: float, every_s: float
) -> None:
    """Steps vary, but none after the first round of them is longer than those before."""
    life_s, longest_s = 200.0, max(lengths)
    played = play(
        lambda call: lengths[call % len(lengths)],
        calls=10**6,
        save_s=save_s,
        life_s=life_s,
        every_s=every_s,
    )
    last_s = max(played.saves.values())
    assert last_s + save_s <= life_s
    kept_s = 2 * longest_s + 2 * max(save_s + longest_s, 0.05 * life_s, longest_s) + SPARE_S
    assert life_s - last_s <= kept_s + 2 * longest_s
