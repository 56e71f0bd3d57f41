"""How long zygotes are replaced that die before they started a function."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from dayfly.life.deaths import Patience
from dayfly.life.platforms.local_zygote import TRIES, ZygoteKeeper


class Dying:
    """Looks like a zygote that ends as it is told to."""

    def __init__(self, *, killed: bool) -> None:
        self.killed_from_outside = killed
        self.base_bytes = None
        self.ended = True
        self.give_up_at = time.monotonic() + 100.0
        self.pid = 1

    def receive(self) -> None:
        return None

    def close(self) -> None:
        return None

    def last_words(self) -> str:
        return "that was all"


def keeper(killed: Callable[[int], bool], **patience: float) -> tuple[ZygoteKeeper, list[Dying]]:
    """Of zygotes that die at once, the n-th by itself or killed; and those that there were."""
    spawned: list[Dying] = []

    def spawn() -> Any:
        spawned.append(Dying(killed=killed(len(spawned))))
        return spawned[-1]

    return ZygoteKeeper(spawn, Patience(**patience)), spawned


def turns(keeper: ZygoteKeeper, number: int) -> None:
    for _ in range(number):
        keeper.ready()
        keeper.look()


def test_kills_from_outside_never_end_it_by_their_number() -> None:
    kept, spawned = keeper(lambda n: True, first_pause_s=0.0)
    turns(kept, 50)
    assert (kept.failure, len(spawned)) == (None, 50)


def test_they_do_after_too_long_without_one_function() -> None:
    kept, _ = keeper(lambda n: True, first_pause_s=0.0, without_progress_s=-1.0)
    turns(kept, 1)
    assert "was killed from outside 1 times in 0 s without starting one fun" in (kept.failure or "")
    kept, _ = keeper(lambda n: True, first_pause_s=0.0, without_progress_s=0.02)
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        turns(kept, 1)
        kept.proved()
    assert kept.failure is None, "a function was started between any two"


def test_the_next_one_starts_later_and_nobody_is_kept_busy_meanwhile() -> None:
    kept, spawned = keeper(lambda n: True, first_pause_s=20.0)
    assert kept.look_at is None
    turns(kept, 20)
    assert len(spawned) == 2, "the second at once, the third after the pause"
    assert kept.look_at is not None
    assert 10 < kept.look_at - time.monotonic() <= 20


@pytest.mark.parametrize("killed", [lambda n: False, lambda n: n % 2 == 1], ids=["all", "some"])
def test_those_that_die_by_themselves_do(killed: Callable[[int], bool]) -> None:
    kept, spawned = keeper(killed, first_pause_s=0.0)
    turns(kept, 20)
    assert f"{TRIES} times in a row without starting one function" in (kept.failure or "")
    assert sum(not one.killed_from_outside for one in spawned) == TRIES
