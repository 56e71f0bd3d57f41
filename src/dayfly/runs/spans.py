"""Where in a step a worker is, for failure tests, and where the time of the step goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dayfly.life.faults import Faults
from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Op


class FaultPoints:
    """FaultPoints of a worker. step, operation: what it is at, set by whoever takes the step."""

    def __init__(self, faults: Faults, step: int) -> None:
        self._faults = faults
        self.step = step
        self.operation = "grad"

    def after(self, op: Op) -> None:
        """An operation of the wire is done: `grad-put-sum`, `val-reduce`, `pipe-get`."""
        self.of(self.step, self.operation, op)

    def of(self, step: int, operation: str, op: Op) -> None:
        """The same of an operation that runs beside the steps, and belongs to another one."""
        point = f"{operation}-{op.kind.value}"
        if op.kind is Kind.PUT and op.name is not None:
            point += "-sum" if op.name.destination == EVERYONE else "-part"
        self._faults.at(step, point)


#: Spans of one kind closer together than this are told as one, in milliseconds.
_CLOSE_MS = 0.05

Told = dict[str, list[list[float]]]


class Spans:
    """Collects spans by kind: compute, data, upload, download, wait, apply. For several threads.

    Appending to a list is atomic, so no lock is needed.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[str, float, float]] = []

    def add(self, kind: str, began: float, ended: float) -> None:
        """Note a span; moments by `time.monotonic()`."""
        self._spans.append((kind, began, ended))

    @contextmanager
    def during(self, kind: str) -> Iterator[None]:
        """Note what happens within."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(kind, began, time.monotonic())

    def take(self, origin: float) -> Told:
        """What was noted since the last call, by kind: [from, to] in ms since `origin`."""
        spans, self._spans = self._spans, []
        told: Told = {}
        for kind, began, ended in sorted(spans, key=lambda span: span[1]):
            start, stop = 1000 * (began - origin), 1000 * (ended - origin)
            row = told.setdefault(kind, [])
            if row and start - row[-1][1] < _CLOSE_MS:
                row[-1][1] = max(row[-1][1], round(stop, 2))
            else:
                row.append([round(start, 2), round(stop, 2)])
        # Several messages are asked for at once: while any comes, the link is not idle.
        told["wait"] = without(told.get("wait", []), told.get("download", []))
        return {
            kind: kept
            for kind, row in told.items()
            if (kept := [span for span in row if span[1] - span[0] >= _CLOSE_MS])
        }


def without(
    spans: Sequence[Sequence[float]], others: Sequence[Sequence[float]]
) -> list[list[float]]:
    """What of the spans is in none of the others; both in order, and apart from each other."""
    left: list[list[float]] = []
    first = 0
    for begin, end in spans:
        while first < len(others) and others[first][1] <= begin:
            first += 1
        at = begin
        for start, stop in others[first:]:
            if start >= end:
                break
            if start > at:
                left.append([at, start])
            at = stop
        if at < end:
            left.append([at, end])
    return left
