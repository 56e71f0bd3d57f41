"""Ends functions, and waits until they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable

from dayfly.errors import RunFailed
from dayfly.life.platforms.base import Ended, Platform

#: Longest sleep of a coordinator's loop, in seconds.
TICK_S = 0.05
#: How long functions may take to be gone after they were killed, in seconds: when the run ends, and
#: when successors are to follow, which cannot begin before.
LAST_S = 5.0
FOLLOWED_S = 60.0


def kill_all(
    platform: Platform, ended: list[Ended], killed: set[str], timeout_s: float = LAST_S
) -> None:
    """Kill what still runs, and wait for its end, which is added to `ended`.

    killed: gets the names of those that were killed here. What runs after `timeout_s` is left.
    """
    for function in platform.running():
        killed.add(function)
        platform.cancel(function)
    until = time.monotonic() + timeout_s
    while platform.running() and time.monotonic() < until:
        try:
            ended += platform.wait(TICK_S)
        except RunFailed:
            time.sleep(TICK_S)  # it starts nothing any more, but still tells what ended


def pause(seconds: float, stop_asked: Callable[[], bool]) -> None:
    """Wait before a start, unless the run is to stop."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not stop_asked():
        time.sleep(min(left, TICK_S))
