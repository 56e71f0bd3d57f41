"""Who hears of a run while it goes on: the display at once, everybody else from a queue.

    recorder --- event ---> display                     in the coordinator's own thread
                       |--> queue ---> listener         in a thread of its own
                       `--> queue, full: the event is dropped, and counted

A listener never stalls a run: it may be slow, and it may fail. What decides about a run is no
listener.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from dayfly.closing import Closing
from dayfly.errors import RequestError, in_short
from dayfly.registry import Registry
from dayfly.specs.events import Event

#: Is called with who tells ("coordinator", or "worker-3") and what.
Listener: TypeAlias = Callable[[str, Event], None]
#: Listeners of other packages, by name: each entry makes one for a run.
LISTENERS: Registry[Callable[[], Listener]] = Registry("listener", "dayfly.listeners", {})
#: Events that may wait for a listener.
_MOST = 10_000
#: Seconds that a listener has, once the run is over, to hear what waits for it.
_END_S = 5.0


class Listeners(Closing):
    """The listeners of one life of a run. Close it: they have heard all by then, or are left.

    Args:
        told_at_once: hears each event before the run goes on.
        others: hear from queues.
        note: told of a listener that failed, or missed events.
    """

    def __init__(
        self, told_at_once: Listener, others: Sequence[Listener], note: Callable[[str], None]
    ) -> None:
        self._told_at_once = told_at_once
        self._queues = [_Queue(one) for one in others]
        self._note = note

    def publish(self, source: str, event: Event) -> None:
        """Tells all listeners of an event.

        Args:
            source: who tells it: `coordinator` or `worker-3`.
            event: of `dayfly.specs.events`.
        """
        self._told_at_once(source, event)
        for one in self._queues:
            one.put(source, event)

    def end(self, some: Sequence[Listener]) -> None:
        """Lets some of the listeners hear what waits for them; they hear no more then."""
        ended = [one for one in self._queues if one.listener in some]
        self._queues = [one for one in self._queues if one not in ended]
        until_s = time.monotonic() + _END_S
        for one in ended:
            if (what := one.end(until_s)) is not None:
                self._note(what)

    def close(self) -> None:
        self.end([one.listener for one in self._queues])


def chosen(named: Sequence[str | Listener]) -> list[Listener]:
    """Returns the listeners that a user gives: functions, or names of the registry.

    Raises:
        RequestError: a name is not known, or a listener cannot be called.
    """
    found: list[Listener] = []
    for one in named:
        if isinstance(one, str):
            LISTENERS.check(one)
            found.append(LISTENERS[one]())
        elif callable(one):
            found.append(one)
        else:
            raise RequestError(f"a listener is a function of (source, event), and {one!r} is none")
    return found


class _Queue:
    """A listener with the events that wait for it, and the thread that calls it."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._name = getattr(listener, "__name__", type(listener).__name__)
        self._waiting: queue.Queue[tuple[str, Event] | None] = queue.Queue(_MOST)
        self._dropped = 0
        self._error: str | None = None
        self._thread = threading.Thread(target=self._serve, name=f"listener {self._name}")
        self._thread.daemon = True
        self._thread.start()

    def put(self, source: str, event: Event) -> None:
        try:
            self._waiting.put_nowait((source, event))
        except queue.Full:
            self._dropped += 1

    def end(self, until_s: float) -> str | None:
        """Lets it hear the rest; returns what there is to say of it."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=max(0.0, until_s - time.monotonic()))
            self._thread.join(max(0.0, until_s - time.monotonic()))
        what = f"listener {self._name}"
        if self._error is not None:
            return f"{what} failed, and heard nothing from then on: {self._error}"
        with self._waiting.mutex:
            unheard = sum(one is not None for one in self._waiting.queue)  # the end is no event
        missed = self._dropped + unheard
        return f"{what} was too slow: it missed {missed} events" if missed else None

    def _serve(self) -> None:
        while (told := self._waiting.get()) is not None:
            if self._error is None:
                try:
                    self.listener(*told)
                except (Exception, SystemExit) as error:
                    self._error = in_short(error)
