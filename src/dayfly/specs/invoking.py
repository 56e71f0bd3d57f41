"""Who invokes the functions that start together, and when.

    one by one             coordinator  |0|1|2|3|4|5|
    two calls at once      coordinator  |0|2|4|
                                        |1|3|5|
    tree of fan-out 2      coordinator  |0|1|
                           function 0       start |2|3|
                           function 1         start |4|5|

|i| is the call that starts function i. In a tree each function, once it has started and before it
begins its work, invokes `fan_out` others: function i those from (i + 1) fan_out on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.errors import RequestError

#: Of an invocation call: no platform takes longer, and who waits for a function gives up in time.
MOST_CALL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoking:
    """How functions that start together are invoked.

    Args:
        call_s: of one invocation, until the platform has taken it.
        at_once: calls that the coordinator, or a function of a tree, has under way at once.
        fan_out: functions that each of the tree invokes; None: the coordinator invokes all.

    Raises:
        RequestError: a way of invoking that cannot be.
    """

    call_s: float = 0.0
    at_once: int = 1
    fan_out: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.call_s <= MOST_CALL_S:
            raise RequestError(
                f"an invocation call of {self.call_s:g} s: give 0 to {MOST_CALL_S:g} s"
            )
        for what, value in (("calls at once", self.at_once), ("fan-out", self.fan_out)):
            if value is not None and value < 1:
                raise RequestError(f"{what} {value}: give a whole number from 1")

    def invoker(self, function: int) -> int | None:
        """Returns who invokes a function: the number of another one; None: the coordinator.

        Args:
            function: its number among those that start together, from 0.
        """
        if self.fan_out is None or function < self.fan_out:
            return None
        return function // self.fan_out - 1

    def invoked_by(self, function: int, functions: int) -> range:
        """Returns the numbers of those that a function invokes.

        Args:
            function: its number.
            functions: that start together.
        """
        if self.fan_out is None:
            return range(0)
        first = (function + 1) * self.fan_out
        return range(min(first, functions), min(first + self.fan_out, functions))

    def calling_s(self, calls: int) -> float:
        """Returns the seconds in which one caller makes so many calls."""
        return -(-calls // self.at_once) * self.call_s

    def invoked_s(self, start_s: Sequence[float], life_s: Sequence[float] = ()) -> list[float]:
        """Returns when each function is invoked, in seconds from the first call on.

        Args:
            start_s: of each function, from its invocation until it can invoke others.
            life_s: of each function, from its invocation until it dies; empty: none does. Those
                that it has not invoked by then the coordinator invokes, as it hears of the death.
        """
        found: list[float] = []
        for function in range(len(start_s)):
            invoker = self.invoker(function)
            before = function if invoker is None else function % (self.fan_out or 1)
            after_s = self.calling_s(before + 1)
            if invoker is not None:
                if life_s and life_s[invoker] < start_s[invoker] + after_s:
                    after_s = life_s[invoker] + self.call_s
                else:
                    after_s += start_s[invoker]
                after_s += found[invoker]
            found.append(after_s)
        return found

    def words(self) -> str:
        """Returns it in words, for people."""
        whose = "the coordinator" if self.fan_out is None else f"a tree of fan-out {self.fan_out}"
        at_once = f", {self.at_once} at once" if self.at_once > 1 else ""
        return f"calls of {1000 * self.call_s:g} ms by {whose}{at_once}"
