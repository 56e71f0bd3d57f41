"""Functions that compute beside the one that is watched, so that it can tell what that costs it.

    watched      | rounds, parts          | passes | rounds, parts          | passes | ...
    neighbours   |                        | passes |                        | passes |
                  quiet slot               busy slot

Slots follow from the clock of the machine, so that nobody has to be told when. What each of them
takes the watched one finds out first; until it has said so, and once it takes that back, neighbours
wait and end.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from enum import Enum

from dayfly.life.platforms.base import Context, Json
from dayfly.runs.profiling.passes import pass_of
from dayfly.runs.task import Task
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store

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
class Slots:
    """Turns of quiet and busy time.

    begin: of the first quiet one, `time.time()`. settle_s: of each quiet one, while neighbours may
    be at the last pass that they began.
    """

    begin: float
    quiet_s: float
    busy_s: float
    settle_s: float

    @classmethod
    def of(cls, begin: float, pass_s: float, longest_s: float) -> Slots:
        """Slots in which enough fits. pass_s: of a pass; longest_s: of the longest that is timed in
        quiet ones."""
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

    cpu_cores: of each function; None: not limited, so one, as they compute by one thread.
    """
    each = 1.0 if cpu_cores is None else cpu_cores
    return max(0, min(_MOST, int((machine_cores - _SPARE_CORES) / each + 1e-9) - 1))


def tell(store: Store, name: str, slots: Slots) -> None:
    """Tell neighbours their slots. name: of the measurements in the store."""
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
    turns = Slots(**json.loads(store.get(slots)))
    while True:
        wait_s = turns.until_busy_s(time.time())
        if wait_s > 0:
            time.sleep(wait_s)
            if store.stat(slots) is None:
                return {}
        run()
