"""Failures on purpose, by (worker, step, point of the step): how the tests kill.

Each happens once in a run, whoever gets there first; the store remembers. The product passes none.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from dayfly.dataclass_json import Range
from dayfly.wire.keys import SERVER
from dayfly.wire.stores.base import Store


@dataclass(frozen=True, slots=True)
class Fault:
    """Kill `what` when `worker` (a rank, or `wire.keys.COORDINATOR`) gets to `point` of `step`.

    Args:
        what: "self" (kill -9 of the process), "zygote" (the process from which the function was
            forked, and then itself), or "stop" (SIGSTOP of the process, which may come back).
    """

    worker: Annotated[int, Range(SERVER)]
    step: int
    point: str
    what: Literal["self", "zygote", "stop"] = "self"

    def dump(self) -> dict[str, Any]:
        """For JSON; `Fault(**tree)` is the way back."""
        return asdict(self)


class Faults:
    """The faults of one process."""

    def __init__(self, faults: Sequence[Fault], worker: int, store: Store) -> None:
        self._mine = {
            (fault.step, fault.point): (number, fault)
            for number, fault in enumerate(faults)
            if fault.worker == worker
        }
        self._store = store

    def at(self, step: int, point: str) -> None:
        """Die here, if that is planned and has not happened yet."""
        planned = self._mine.get((step, point))
        if planned is None:
            return
        number, fault = planned
        if self._store.put_new(f"faults/{number}", uuid.uuid4().bytes):
            if fault.what == "zygote":
                from dayfly.life.platforms.local_function import current_zygote_pid

                os.kill(current_zygote_pid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGSTOP if fault.what == "stop" else signal.SIGKILL)
