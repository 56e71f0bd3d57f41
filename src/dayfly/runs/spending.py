"""How many functions run, and what they cost so far, from a run's events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dayfly.catalogue.metering import MeteredInvocation
from dayfly.runs.events import used_until
from dayfly.specs.events import Ended, Event, Invoked

#: Prices of functions: the dollars of invocations.
Priced = Callable[[Sequence[MeteredInvocation]], float]


class Spending:
    """What a run spends on its functions, while it goes on. What is stored and sent is left out.

    Args:
        priced: by what.
        before: invocations of earlier lives of the run.
    """

    def __init__(self, priced: Priced, before: Sequence[MeteredInvocation] = ()) -> None:
        self._priced = priced
        self._ended_usd = priced(before) if before else 0.0
        self._running: dict[str, Invoked] = {}

    @property
    def workers(self) -> int:
        """Functions that run."""
        return len(self._running)

    def hear(self, event: Event) -> None:
        """Notes a function that begins or ends."""
        match event:
            case Invoked():
                self._running[event.function] = event
            case Ended():
                self._running.pop(event.used.function, None)
                self._ended_usd += self._priced([event.used])

    def usd(self, now: float) -> float:
        """Dollars so far: of what ended, and of what runs as if it ended now (Unix seconds)."""
        running = [used_until(one, now, "running") for one in self._running.values()]
        return self._ended_usd + (self._priced(running) if running else 0.0)
