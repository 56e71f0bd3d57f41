"""Steps of synchronous replicas, each of all the model, in a simulated run; see `rounds`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dayfly.planning.simulation.passes import Passes
from dayfly.planning.simulation.rounds import Rounds, Spans, Taken, Window, of_windows, summed
from dayfly.planning.simulation.scenario import Floats
from dayfly.wire.collectives.cost import Phase


class Synchronous(Rounds):
    """A step of synchronous replicas.

    Args:
        passes: of each worker.
        phases: of the sum of each bucket.
        over_s: what a step takes longer than that says, or less.
    """

    steps = 1

    def __init__(
        self, passes: Passes, phases: Sequence[Sequence[Phase]], over_s: float = 0.0
    ) -> None:
        self._passes = passes
        self._phases = phases
        self._over_s = over_s

    def take(self, began_N: Floats, slow_NK: Floats, credit_N: Floats) -> Taken:
        slow_N, passes = slow_NK[:, 0], self._passes
        busy_N = slow_N * passes.whole_N
        computed_N = began_N + busy_N
        end_N = computed_N + passes.beside_N
        windows: list[Window] = []
        if any(self._phases):
            ready = [ready_N - credit_N for ready_N in passes.ready(computed_N, slow_N)]
            done_s, windows = summed(ready, self._phases)
            end_N = np.maximum(end_N, done_s)
        ended_N = end_N + passes.apply_N + self._over_s
        return Taken(began_N, computed_N, busy_N, ended_N, slow_NK, (windows,))

    def spans(self, taken: Taken, rank: int) -> tuple[Spans, list[list[Any]]]:
        began_s, computed_s = float(taken.began_N[rank]), float(taken.computed_N[rank])
        data_s = float(taken.slow_NK[rank, 0] * self._passes.data_N[rank])
        told: Spans = {"data": [(began_s, began_s + data_s)]} if data_s else {}
        told["compute"] = [(began_s + data_s, computed_s)]
        apply_s = float(self._passes.apply_N[rank])
        summed_s = float(taken.ended_N[rank]) - apply_s
        if taken.windows[0]:
            told |= of_windows(taken.windows[0], computed_s, summed_s)
        told["apply"] = [(summed_s, summed_s + apply_s)]
        return told, []
