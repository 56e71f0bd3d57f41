"""Ctrl-C, TERM, a closed terminal: the first asks a run to end in order, the second ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from dayfly.closing import Closing

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal ended the request; as KeyboardInterrupt, no Exception.

    Args:
        number: the signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class StopSignals(Closing):
    """While it is open, a signal raises Stopped; within `patiently`, the first is only noted.

    Outside the main thread, which alone gets signals, it does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._patient = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """Marks the time in which a run is under way that can end in order."""
        before, self._patient = self._patient, True
        try:
            yield
        finally:
            self._patient = before

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            ignored = {n for n in _SIGNALS if signal.getsignal(n) is signal.SIG_IGN}  # as by nohup
            heeded = [number for number in _SIGNALS if number not in ignored]
            self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def close(self) -> None:
        """Put back the handlers that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        first = self.received is None
        self.received = self.received or number
        if not (first and self._patient):
            raise Stopped(number)
