"""Keeps a zygote alive while one is wanted; gives up when zygotes keep dying without any use.

Those that are killed from outside are no sign that the next one dies, too: they are replaced, later
and later, for as long as deaths are borne with that are nobody's fault (see `Patience`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dayfly.life.deaths import PATIENCE, Count, Patience
from dayfly.life.platforms import processes
from dayfly.life.platforms.local_zygote import READY_TIMEOUT_S, LocalZygote

#: So often in a row may zygotes die by themselves before they started one function, or may a
#: living one fail to start the same function.
TRIES = 3


class ZygoteKeeper:
    """Not thread-safe: its owner holds a lock. `spawn` starts a zygote process.

    base_bytes: memory of the last zygote that was ready; None before the first. failure: why there
    will be no zygote any more, or None.
    """

    def __init__(self, spawn: Callable[[], LocalZygote], patience: Patience = PATIENCE) -> None:
        self.base_bytes: int | None = None
        self.failure: str | None = None
        self._spawn = spawn
        self._zygote: LocalZygote | None = None
        self._patience = patience
        self._started = 0  # functions
        self._deaths = Count()  # by themselves
        self._kills = Count()  # from outside
        self._start_at = 0.0  # the next zygote, by time.monotonic()
        self._dead_pids: set[int] = set()

    @property
    def fd(self) -> int:
        """To be watched; -1 if there is none."""
        return -1 if self._zygote is None else self._zygote.fileno()

    @property
    def look_at(self) -> float | None:
        """time.monotonic() until which the zygote must be ready, or from which on the next one may
        start; None if there is neither to wait for."""
        if self._zygote is None:
            return self._start_at if self._start_at > time.monotonic() else None
        return self._zygote.give_up_at if self._zygote.base_bytes is None else None

    def ready(self) -> LocalZygote | None:
        """The zygote, if it is ready; if there is none, one is started."""
        if self.failure is not None:
            return None
        if self._zygote is None:
            if time.monotonic() < self._start_at:
                return None
            try:
                self._zygote = self._spawn()
            except OSError as error:
                self.failure = f"the local platform cannot start a process: {error}"
                return None
        if self._zygote.base_bytes is None:
            return None
        self.base_bytes = self._zygote.base_bytes
        return self._zygote

    def look(self) -> None:
        """Notice readiness, death and delay."""
        zygote = self._zygote
        if zygote is None:
            return
        zygote.receive()
        if zygote.base_bytes is None and time.monotonic() >= zygote.give_up_at:
            zygote.kill()
        if zygote.ended:
            self.drop()
            if (why := self._why_to_give_up(zygote)) is not None:
                self.failure = (
                    "the local platform's zygote, which imports torch and the preloaded modules, "
                    f"{why} without starting one function: {zygote.last_words()}"
                )

    def proved(self) -> None:
        """A function was started: whatever kills the zygotes, there is progress."""
        self._started += 1

    def give_up(self, reason: str) -> None:
        """Start no functions any more."""
        if self.failure is None:
            words = f"; {self._zygote.last_words()}" if self._zygote is not None else ""
            self.failure = reason + words

    def release(self) -> LocalZygote | None:
        """The zygote, if it is of use to another keeper; it is not this one's any more."""
        zygote = self.ready() if self._zygote is not None else None
        if zygote is not None:
            self._zygote = None
        return zygote

    def drop(self) -> None:
        """Kill and reap the zygote, if there is one. Functions that it forked go on."""
        if self._zygote is not None:
            self._zygote.close()
            self._dead_pids.add(self._zygote.pid)
            self._zygote = None

    def _why_to_give_up(self, dead: LocalZygote) -> str | None:
        """Counts a death; says why no other zygote follows, if none does."""
        now = time.monotonic()
        if not dead.killed_from_outside:
            if self._deaths.add(self._started) < TRIES:
                return None
            ready_s = f"{READY_TIMEOUT_S:.0f} s"
            return f"died or was not ready in {ready_s}, {TRIES} times in a row"
        kills = self._kills.add(self._started, now)
        killed_s = now - self._kills.since
        if killed_s > self._patience.without_progress_s:
            return f"was killed from outside {kills} times in {killed_s:.0f} s"
        self._start_at = now + self._patience.pause_s(kills)
        return None

    def reap_betweens(self) -> None:
        """Reap the processes between a zygote and its functions that a killed zygote left to us.

        Only while no function's hello is due: until then a dead function looks like one of them.
        """
        for pid in self._dead_pids:
            processes.reap_zombies(pid)
        self._dead_pids.clear()
