"""What scripts ask about their lives: the same answers in all ranks, over real channels."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import inf
from typing import Any

import pytest

import dayfly
from dayfly.errors import WaitTimeout
from dayfly.runs.scripts.lifetime import Announcement, ScriptLifetime, installed
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, ChannelPlace
from dayfly.wire.keys import COORDINATOR
from tests.channels.kit import eventually
from tests.channels.places import PLACES

pytestmark = pytest.mark.long

FILES = "files-tmpfs"


class Clock:
    """Of all ranks; it moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Ranks:
    """Lives over one channel; the clock of each rank's machine shows something else.

    ends_s: when each is over, by `clock`. begin: the ranks that begin at 0 s; None: all.
    """

    def __init__(
        self,
        place: ChannelPlace,
        stack: ExitStack,
        *ends_s: float,
        begin: Sequence[int] | None = None,
        **more: Any,
    ) -> None:
        self.clock = Clock()
        self.lives: dict[int, ScriptLifetime] = {}
        self._place = place
        self._stack = stack
        self._ends_s = ends_s
        self._more = more
        self._pool = stack.enter_context(ThreadPoolExecutor(len(ends_s)))
        self.begin(*(range(len(ends_s)) if begin is None else begin))

    def begin(self, *ranks: int) -> None:
        """Some begin now. If rank 0 has begun, what they tell it is told before this returns."""
        for rank in ranks:
            channel = self._stack.enter_context(self._place.open(NAMESPACE, rank))
            life = ScriptLifetime(
                channel,
                rank,
                len(self._ends_s),
                lambda rank=rank: self._ends_s[rank] - self.clock.now_s,  # type: ignore[misc]
                clock=lambda rank=rank: self.clock.now_s + 1e6 * rank,  # type: ignore[misc]
                **{"wait_timeout_s": SOON_S, **self._more},
            )
            self.lives[rank] = self._stack.enter_context(life)
        if 0 in self.lives:
            for life in self.lives.values():
                for sent in life._sending:
                    sent.result(SOON_S)

    def call(self, every_s: float = inf) -> list[bool]:
        """What all say who call at once."""
        calls = [self._pool.submit(life.checkpoint_due, every_s) for life in self.lives.values()]
        return [call.result(SOON_S) for call in calls]


@pytest.fixture
def coordinator() -> Iterator[tuple[ChannelPlace, Channel, ExitStack]]:
    with ExitStack() as stack:
        place = stack.enter_context(PLACES[FILES]())
        channel = stack.enter_context(place.make(NAMESPACE))
        yield place, channel, stack


@pytest.mark.parametrize("name", sorted(PLACES))
def test_all_ranks_say_the_same_over_every_channel(name: str) -> None:
    with PLACES[name]() as place, place.make(NAMESPACE), ExitStack() as stack:
        ranks = Ranks(place, stack, 30.0, 30.0, 30.0)
        said = []
        for _ in range(40):
            said.append(ranks.call(every_s=8.0))
            ranks.clock.now_s += 0.7
        assert all(len(set(answers)) == 1 for answers in said)
        due = [round(0.7 * call, 1) for call, answers in enumerate(said) if answers[0]]
        # Every 8 s; then the end of the life, with 3.8 s for two steps, two saves and the spare.
        assert due == [8.4, 16.8, 25.2, 26.6]


@pytest.mark.quick
def test_the_first_to_end_counts(coordinator: tuple[ChannelPlace, Channel, ExitStack]) -> None:
    """Rank 1's function began long before rank 0's, and did not wait for it."""
    place, _, stack = coordinator
    ranks = Ranks(place, stack, 100.0, 40.0)
    due = []
    for _ in range(39):
        if ranks.call() == [True, True]:
            due.append(ranks.clock.now_s)
        ranks.clock.now_s += 1.0
    # 7 s are kept for two steps, two saves of a twentieth of 40 s each and the spare; then it turns
    # out that a save takes no time, so that 5 s are enough.
    assert due == [34.0, 36.0]


def test_what_is_left_counts_from_when_it_is_told(
    coordinator: tuple[ChannelPlace, Channel, ExitStack],
) -> None:
    """Rank 1 has less left than when it began, by the time that rank 0 can hear of it."""
    place, _, stack = coordinator
    ranks = Ranks(place, stack, 100.0, 50.0, begin=[1])
    ranks.clock.now_s = 20.0
    ranks.begin(0)
    due = []
    for _ in range(29):
        ranks.clock.now_s += 1.0
        if ranks.call() == [True, True]:
            due.append(ranks.clock.now_s)
    assert due == [45.0]


def test_a_function_that_begins_late_is_not_taken_for_one_that_did_not(
    coordinator: tuple[ChannelPlace, Channel, ExitStack],
) -> None:
    """Nothing was told when rank 0 looked last, so what is left counts from then on."""
    place, _, stack = coordinator
    ranks = Ranks(place, stack, 200.0, 90.0, begin=[0])
    due = []
    for second in range(88):
        ranks.clock.now_s = float(second)
        if second == 30:
            ranks.begin(1)
        if ranks.lives[0].checkpoint_due(inf):
            due.append(second)
    assert due == [67, 85]


def test_rank_0_may_ask_alone_and_nothing_piles_up(
    coordinator: tuple[ChannelPlace, Channel, ExitStack],
) -> None:
    place, channel, stack = coordinator
    ranks = Ranks(place, stack, inf, inf)
    for _ in range(1000):
        ranks.lives[0].checkpoint_due(60.0)
        ranks.clock.now_s += 1.5
    assert 64 <= len(channel.waiting(COORDINATOR)) <= 128


def test_a_rank_may_be_behind(coordinator: tuple[ChannelPlace, Channel, ExitStack]) -> None:
    place, _, stack = coordinator
    ranks = Ranks(place, stack, inf, inf)
    ahead, behind = ranks.lives.values()
    said = []
    for _ in range(60):
        said.append(ahead.checkpoint_due(10.0))
        ranks.clock.now_s += 1.5
    assert [behind.checkpoint_due(10.0) for _ in range(60)] == said
    assert sum(said) == 8


def test_a_rank_that_asks_more_often_than_rank_0_is_named(
    coordinator: tuple[ChannelPlace, Channel, ExitStack],
) -> None:
    place, _, stack = coordinator
    ranks = Ranks(place, stack, inf, inf, wait_timeout_s=0.1)
    assert ranks.lives[1].checkpoint_due(60.0) is False, "the first answer is known"
    with pytest.raises(WaitTimeout, match=r"call 1 of dayfly.checkpoint_due\(\) in rank 1, to be"):
        ranks.lives[1].checkpoint_due(60.0)


def test_between_announcements_nothing_is_asked(
    coordinator: tuple[ChannelPlace, Channel, ExitStack],
) -> None:
    place, _, stack = coordinator
    ranks = Ranks(place, stack, inf, inf)
    for _ in range(2000):
        ranks.call(every_s=60.0)
        ranks.clock.now_s += 0.01
    for life in ranks.lives.values():
        assert life._channel.traffic.counters()["requests"] <= 20 + 10


def test_outside_of_a_run_scripts_go_on_as_they_are() -> None:
    assert dayfly.remaining_s() == inf
    assert [dayfly.checkpoint_due(every_s=0) for _ in range(3)] == [False] * 3


@pytest.mark.parametrize("every_s", [-1.0, float("nan")])
def test_a_wrong_interval_is_refused_everywhere(every_s: float) -> None:
    with pytest.raises(ValueError, match="give 0 seconds or more"):
        dayfly.checkpoint_due(every_s=every_s)


def test_in_a_run_the_public_names_ask_the_life(
    coordinator: tuple[ChannelPlace, Channel, ExitStack],
) -> None:
    place, _, stack = coordinator
    ranks = Ranks(place, stack, 50.0)
    with installed(ranks.lives[0]):
        assert dayfly.remaining_s() == 50.0
        said = []
        for _ in range(49):
            said.append(dayfly.checkpoint_due(every_s=20.0))
            ranks.clock.now_s += 1.0
        assert [call for call, due in enumerate(said) if due] == [20, 40, 46]
        with pytest.raises(ValueError, match="has a lifetime already"), installed(ranks.lives[0]):
            pass
    assert dayfly.remaining_s() == inf


def test_a_script_that_fails_is_not_hidden_by_its_end() -> None:
    """Over a link: what was to be announced cannot be sent any more."""
    before = set(threading.enumerate())
    with PLACES["redis"]() as place, place.make(NAMESPACE) as channel, ExitStack() as stack:
        ranks = Ranks(place, stack, inf, inf)

        def script() -> None:
            for _ in range(4):
                dayfly.checkpoint_due(every_s=0)
                ranks.clock.now_s += 0.01
            channel.destroy()
            ranks.lives[0]._announce(99, Announcement(due=False, following=100), ahead=True)
            raise KeyError("the script's own")

        with pytest.raises(KeyError), installed(ranks.lives[0]):
            script()
    eventually(lambda: set(threading.enumerate()) <= before, "all of its threads end")
