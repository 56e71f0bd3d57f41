"""Whose turn it is to ask a store, where many messages of one sender are waited for at once.

A sender's messages come about in the order in which they are waited for. So the first few are asked
for, and those behind them hardly ever: each question is a request, which the store may bill.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

#: So many of a sender's messages are asked for as often as patience has it.
_FIRST = 4


class Turns:
    """All waits of one channel, by the sender; for several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[int, list[Turn]] = defaultdict(list)

    @contextmanager
    def line_up(self, source: int) -> Iterator[Turn]:
        """Wait for a message of a sender, behind those that were waited for before."""
        with self._changed:
            line = self._lines[source]
            turn = Turn(self._changed, line)
            line.append(turn)
        try:
            yield turn
        finally:
            with self._changed:
                line.remove(turn)
                self._changed.notify_all()

    def wake(self) -> None:
        """End all sleep that goes on now."""
        with self._changed:
            for line in self._lines.values():
                for turn in line:
                    turn.woken = True
            self._changed.notify_all()


class Turn:
    """One wait's place in the line of its sender. woken: its sleep was ended from outside."""

    def __init__(self, changed: threading.Condition, line: list[Turn]) -> None:
        self._changed = changed
        self._line = line
        self.woken = False

    @property
    def first(self) -> bool:
        """Whether it is among the first of its line."""
        return self in self._line[:_FIRST]

    def sleep_until(self, then_s: float, *, behind: bool = False) -> None:
        """Until a moment (`time.monotonic()`), or until it is woken.

        behind: whether it was not among the first when the moment was chosen: then it sleeps no
        longer than until it is, which it may be by now.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self.woken or (behind and self.first),
                max(0.0, then_s - time.monotonic()),
            )
