"""Shows what functions print while they do: whole lines, each with the rank it comes from.

logs/worker-1.log    loading\\n|\\r 10%|\\r 20%|...|\\r100%\\n|done\\n
shown                [rank 1] loading
                     [rank 1]  20%          a bar that moves: a state now and then
                     [rank 1] 100%          and its last one
                     [rank 1] done
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Sequence
from typing import Protocol

from dayfly.life.platforms.base import Logs

#: Least time between two states of a line that is written over again and again, in seconds.
STATE_EVERY_S = 1.0
#: A line that is longer is shown in pieces, in characters.
_LONGEST = 64 * 1024
#: Colours of the ranks' prefixes on a terminal, one after another.
_COLOURS = (36, 33, 35, 32, 34, 31)


class Output(Protocol):
    """Where lines are shown, such as a text file."""

    @property
    def encoding(self) -> str | None:
        """Letters that it has not are escaped; None: it has all."""

    def write(self, text: str, /) -> object:
        """Writes whole lines."""

    def flush(self) -> None:
        """Shows what was written."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""


class PrintedLines:
    """Text that comes in pieces, as the lines that a person would have seen."""

    def __init__(self) -> None:
        self._pending = ""
        self._state = ""  # of the pending line, before its last carriage return
        self._shown_state = ""
        self._shown_s = float("-inf")

    def feed(self, text: str, now_s: float) -> list[str]:
        """The lines that are to be shown now.

        Args:
            now_s: of a clock that never goes back.
        """
        *whole, self._pending = (self._pending + text).split("\n")
        lines = []
        for line in whole:
            lines += self._end_line(line)
        # A carriage return at the very end may belong to a line's end that is still to come.
        over, back, rest = self._pending[:-1].rpartition("\r")
        if back:
            self._state = _last_state(over) or self._state
            self._pending = rest + self._pending[-1:]
        while len(self._pending) > _LONGEST:
            lines.append(self._pending[:_LONGEST])
            self._pending = self._pending[_LONGEST:]
        due = now_s - self._shown_s >= STATE_EVERY_S
        if self._state and self._state != self._shown_state and due:
            lines.append(self._state)
            self._shown_state, self._shown_s = self._state, now_s
        return lines

    def end(self) -> list[str]:
        """What is left at the end, without a line's end of its own."""
        left, self._pending = self._pending, ""
        return self._end_line(left) if left or self._state else []

    def _end_line(self, line: str) -> list[str]:
        shown = _last_state(line) or self._state
        again = bool(shown) and shown == self._shown_state
        self._state = self._shown_state = ""
        return [] if again else [shown]


def _last_state(line: str) -> str:
    """What stands in a line that was written over: what came last, unless it was wiped out."""
    states = [state.rstrip() if "\r" in line else state for state in line.split("\r")]
    return next((state for state in reversed(states) if state), "")


class _Log:
    """One function's log, from where it ends now."""

    def __init__(self, logs: Logs, function: str, prefix: str) -> None:
        self._logs = logs
        self._function = function
        self._prefix = prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines = PrintedLines()
        self._at = logs.log_end(function)

    def read(self) -> list[str]:
        """The lines that came since the last call."""
        return self._shown(self._lines.feed(self._more(), time.monotonic()))

    def rest(self) -> list[str]:
        """All that is still to be shown, to the end of a line that has none."""
        shown = []
        while text := self._more():
            shown += self._shown(self._lines.feed(text, time.monotonic()))
        return shown + self._shown(self._lines.end())

    def _more(self) -> str:
        found = self._logs.log(self._function, self._at)
        self._at = found.position
        return self._decoder.decode(found.text)

    def _shown(self, lines: Sequence[str]) -> list[str]:
        return [self._prefix + line + "\n" for line in lines]


class Follower:
    """Shows the logs of a run's functions on a stream, as far as they have come.

    Args:
        logs: what they hold already is passed over.
        functions: the name of each rank's.
        stream: to which they are written; that nobody reads it any more is no error.
    """

    def __init__(self, logs: Logs, functions: Sequence[str], stream: Output) -> None:
        self._stream = stream
        self._unread = False
        coloured = stream.isatty()
        self._followed = [
            _Log(logs, function, _prefix(rank, coloured)) for rank, function in enumerate(functions)
        ]

    def follow(self) -> None:
        """Show what came since the last call."""
        for log in self._followed:
            self._write(log.read())

    def drain(self) -> None:
        """Show all that is left: the functions have ended."""
        for log in self._followed:
            self._write(log.rest())

    def _write(self, lines: Sequence[str]) -> None:
        if not lines or self._unread:
            return
        encoding = self._stream.encoding or "utf-8"
        text = "".join(lines).encode(encoding, "backslashreplace").decode(encoding)
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._unread = True  # that nobody reads any more is no reason to end a run


def _prefix(rank: int, coloured: bool) -> str:
    name = f"[rank {rank}]"
    return f"\033[{_COLOURS[rank % len(_COLOURS)]}m{name}\033[0m " if coloured else f"{name} "
