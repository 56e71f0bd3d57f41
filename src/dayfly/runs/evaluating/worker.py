"""The function of `run.test` and `run.predict`: a worker that validates once, and does not train.

    read the weights | its blocks | sums over the workers | rank 0: the figures into the store

A worker that starts again finds the sums in the message log, as in a validation of training.
"""

from __future__ import annotations

import json
from typing import Any

from dayfly.life.platforms.base import Context, Json
from dayfly.life.reports import DONE, KEPT_BY_RUN
from dayfly.runs.evaluating.outputs import Outputs
from dayfly.runs.task import Task
from dayfly.runs.worker import Worker, work
from dayfly.wire.stores import open_store

#: Where rank 0 puts what was measured.
MEASURED = "measured.json"


def main(payload: Json, context: Context) -> Json:
    """The handler; returns what a training function returns."""
    return work(Task.load(payload), context, Evaluator)


class Evaluator(Worker):
    """One attempt."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for metric in self._job.metrics.values():
            if isinstance(metric, Outputs):
                metric.store = open_store(self._task.store)

    def run(self) -> str:
        """Validates; returns `DONE`."""
        measured = self._protocol.validate(self.step)
        if self._task.rank == 0:
            open_store(self._task.store).put(MEASURED, json.dumps(measured).encode())
        self._faults.at(self.step, "epoch")
        self.kept = KEPT_BY_RUN
        return DONE
