"""Where in a step a worker is, by name: where failure tests let it die."""

from __future__ import annotations

from dayfly.life.faults import Faults
from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Op


class Places:
    """Places of a worker. step, operation: what it is at, set by whoever takes the step."""

    def __init__(self, faults: Faults, step: int) -> None:
        self._faults = faults
        self.step = step
        self.operation = "grad"

    def after(self, op: Op) -> None:
        """An operation of the wire is done: `grad-put-sum`, `val-reduce`, `pipe-get`."""
        place = f"{self.operation}-{op.kind.value}"
        if op.kind is Kind.PUT and op.name is not None:
            place += "-sum" if op.name.destination == EVERYONE else "-part"
        self._faults.at(self.step, place)
