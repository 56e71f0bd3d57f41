"""Functions that compute beside the measured one, so that it can measure contention.

    measured     | rounds, parts          | passes | rounds, parts          | passes | ...
    neighbours   |                        | passes |                        | passes |
                  quiet slot               busy slot

Slots follow from the machine's clock, so nobody has to announce them. The measured function finds
out first how long each takes. Neighbours wait until it has told the slots, and end once it takes
them back.

`Functions` is the coordinator's side: it invokes functions that measure, and neighbours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from dayfly.errors import RunFailed
from dayfly.life.platforms.base import Context, Ended, Invocation, Json, Outcome, Platform
from dayfly.life.reports import read_reports
from dayfly.planning.function_kinds import memory_label
from dayfly.runs.profiling.passes import pass_of
from dayfly.runs.task import Task
from dayfly.specs.functions import FunctionSpec
from dayfly.wire.channels.base import Channel
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store

if TYPE_CHECKING:
    from dayfly.runs.profiling.life import TimingRequest

#: Of the machine's cores, what is left to everything else.
_SPARE_CORES = 0.5
_MOST = 6
#: How often neighbours look whether slots are known.
_LOOK_S = 0.02
#: Least of a slot; and so many of what is to fit into it.
_LEAST_QUIET_S, _FITTING_QUIET = 1.0, 5
_LEAST_BUSY_S, _FITTING_BUSY = 0.3, 6
#: After a busy slot, how many passes neighbours may still take, about.
_LAST_PASSES = 1.5
_SLOTS = "slots"


class Slot(Enum):
    """What neighbours do meanwhile."""

    QUIET = "quiet"
    BUSY = "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietTurns:
    """Turns of quiet and busy time.

    Args:
        begin: of the first quiet one, `time.time()`.
        settle_s: of each quiet one, while neighbours may be at the last pass that they began.
    """

    begin: float
    quiet_s: float
    busy_s: float
    settle_s: float

    @classmethod
    def of(cls, begin: float, pass_s: float, longest_s: float) -> QuietTurns:
        """Slots in which enough fits.

        Args:
            pass_s: of a pass.
            longest_s: of the longest that is timed in quiet ones.
        """
        settle_s = _LAST_PASSES * pass_s
        return cls(
            begin=begin,
            quiet_s=settle_s + max(_LEAST_QUIET_S, _FITTING_QUIET * longest_s),
            busy_s=max(_LEAST_BUSY_S, _FITTING_BUSY * pass_s),
            settle_s=settle_s,
        )

    @property
    def period_s(self) -> float:
        """Of a quiet slot and a busy one."""
        return self.quiet_s + self.busy_s

    @property
    def room_s(self) -> float:
        """What fits into a quiet slot."""
        return self.quiet_s - self.settle_s

    def kind(self, began: float, ended: float) -> Slot | None:
        """In which kind of slot all of this time lies; None: in both, or neighbours may be about to
        end."""
        since = (began - self.begin) % self.period_s
        until = since + ended - began
        if since >= self.settle_s and until <= self.quiet_s:
            return Slot.QUIET
        if since >= self.quiet_s and until <= self.period_s:
            return Slot.BUSY
        return None

    def until_busy_s(self, now: float) -> float:
        """Until neighbours compute; 0: they do."""
        return max(0.0, self.quiet_s - (now - self.begin) % self.period_s)


def count_beside(cpu_cores: float | None, machine_cores: int) -> int:
    """How many neighbours a function gets: as many as the machine has room for beside it.

    Args:
        cpu_cores: of each function; None: not limited, so one, as they compute by one thread.
    """
    each = 1.0 if cpu_cores is None else cpu_cores
    return max(0, min(_MOST, int((machine_cores - _SPARE_CORES) / each + 1e-9) - 1))


def tell(store: Store, name: str, slots: QuietTurns) -> None:
    """Tell neighbours their slots.

    Args:
        name: of the measurements in the store.
    """
    store.put(f"{name}-{_SLOTS}", json.dumps(asdict(slots)).encode())


def end(store: Store, name: str) -> None:
    """Have neighbours end before they would compute the next time. May be called twice."""
    store.delete([f"{name}-{_SLOTS}"])


def ready(name: str, number: int) -> str:
    """What a neighbour puts into the store when it could begin."""
    return f"{name}-ready-{number}"


def main(payload: Json, context: Context) -> Json:
    """The handler of a neighbour: passes of the job, in busy slots."""
    task, name = Task.load(payload["task"]), payload["name"]
    store, slots = open_store(task.store), f"{name}-{_SLOTS}"
    run = pass_of(task, payload["samples"])
    run()
    store.put(ready(name, payload["number"]), b"")
    while store.stat(slots) is None:
        time.sleep(_LOOK_S)
    turns = QuietTurns(**json.loads(store.get(slots)))
    while True:
        wait_s = turns.until_busy_s(time.time())
        if wait_s > 0:
            time.sleep(wait_s)
            if store.stat(slots) is None:
                return {}
        run()


_NEIGHBOUR = "dayfly.runs.profiling.neighbours:main"
#: Longest wait between two looks at what functions report, in seconds.
_WAIT_S = 0.2


class TooSmall(RunFailed):
    """A function ran out of memory."""


def invocation(
    function: str, handler: str, payload: Mapping[str, Any], spec: FunctionSpec
) -> Invocation:
    """The only attempt of a function."""
    return Invocation(function=function, attempt=0, handler=handler, payload=payload, spec=spec)


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions that measure, on a platform. No function outlives its use.

    Args:
        platform: where they run.
        heard: told of every function that ends, however it does: each is billed.
    """

    platform: Platform
    heard: Callable[[Ended], None]

    def call(self, calls: Sequence[Invocation], channel: Channel) -> list[Ended]:
        """Invoke functions, wait for all of these, and throw away what they report.

        Raises TooSmall or RunFailed if a function, also another one, ends in another way than it is
        to.
        """
        ended: dict[str, Ended] = {}
        try:
            for one in calls:
                self.platform.invoke(one)
            while not all(one.function in ended for one in calls):
                for over in self._over():
                    _check(over)
                    ended[over.invocation.function] = over
                for _ in read_reports(channel):
                    pass
        finally:
            self._end(calls)
        return [ended[one.function] for one in calls]

    @contextmanager
    def beside(
        self, store: Store, task: Task, request: TimingRequest, spec: FunctionSpec
    ) -> Iterator[None]:
        """While it is open, neighbours are there, and compute when the watched function says so.

        Raises TooSmall if one of them has not enough memory.
        """
        name = request.name
        payload = {"task": task.dump(), "samples": request.each, "name": name}
        calls = [
            invocation(f"neighbour-{n}", _NEIGHBOUR, {**payload, "number": n}, spec)
            for n in range(request.neighbours)
        ]
        marks = [ready(name, n) for n in range(request.neighbours)]
        try:
            for one in calls:
                self.platform.invoke(one)
            while any(store.stat(mark) is None for mark in marks):
                for over in self._over():
                    _check(over)
            yield
        finally:
            self._end(calls)
            end(store, name)
            store.delete(marks)

    def _over(self) -> Sequence[Ended]:
        """Those that have ended since, after a short wait at most."""
        ended = self.platform.wait(_WAIT_S)
        for one in ended:
            self.heard(one)
        return ended

    def _end(self, calls: Sequence[Invocation]) -> None:
        """Kill those functions that have not ended, and wait for that."""
        names = {one.function for one in calls}
        for name in names:
            self.platform.cancel(name)
        while names & set(self.platform.running()):
            self._over()


def _check(ended: Ended) -> None:
    """Raise what became of a function, unless it returned."""
    size = memory_label(ended.invocation.spec.memory_mib)
    if ended.outcome is Outcome.RETURNED:
        return
    if ended.outcome is Outcome.OUT_OF_MEMORY:
        raise TooSmall(f"functions of {size} are too small for the job, and run out of memory")
    what = ended.error or ended.detail or ended.outcome.value
    raise RunFailed(f"a function of {size} that measured failed: {what}")
