"""Forward and backward passes of micro-batches, and the bubble that they leave in a step.

lane        0 ms                                      step
compute     |f0|f1|        |b0 |b1 |       |apply|
idle              |--------|       |-------|     |----|     the bubble
up, down          |===|                |===|                transfers that nothing hides
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dayfly.runs.report.spans import began, caught_up_s, joined
from dayfly.runs.spans import without

Json = Mapping[str, Any]
Pairs = Sequence[Sequence[float]]

#: Kinds of spans, by what a "step" record's passes call them.
KINDS: Mapping[str, str] = {"f": "forward", "b": "backward"}


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one micro-batch. what: a key of `KINDS`. In seconds of whoever made it."""

    what: str
    micro_batch: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a worker did in a step, in milliseconds since its beginning.

    key: (generation, step). began_s: unix seconds. passes: (what, micro-batch, from, to), in order.
    apply, up, down: (from, to), in order and apart from each other.
    """

    worker: int
    key: tuple[int, int]
    began_s: float
    length_ms: float
    passes: tuple[tuple[str, int, float, float], ...]
    apply: Pairs = ()
    up: Pairs = ()
    down: Pairs = ()

    def taken_ms(self, what: str) -> list[float]:
        """How long each pass of a kind took."""
        return [end - start for kind, _, start, end in self.passes if kind == what]

    def idle(self) -> list[list[float]]:
        """(from, to) in which nothing was computed: neither a pass nor what applies the sum."""
        busy = [(start, end) for _, _, start, end in self.passes]
        busy += [(pair[0], pair[1]) for pair in self.apply]
        return without([(0.0, self.length_ms)], joined(busy, 0.0))

    def bubble(self) -> float:
        """The idle share of the step, 0 to 1."""
        return length(self.idle()) / self.length_ms if self.length_ms > 0 else 0.0

    def bare_transfer_ms(self) -> float:
        """How long something went up or came down while nothing was computed."""
        idle = self.idle()
        transfers = joined([(pair[0], pair[1]) for pair in (*self.up, *self.down)], 0.0)
        return length(idle) - length(without(idle, transfers))


def length(pairs: Pairs) -> float:
    """The sum of stretches, in their unit."""
    return sum(end - start for start, end in pairs)


def passes_of(record: Json) -> Iterator[Pass]:
    """The passes of a "step" record, in unix seconds; none of what is told as catching up."""
    if caught_up_s(record):
        return
    start_s = began(record)
    for what, micro_batch, from_ms, to_ms in record.get("passes", ()):
        if what in KINDS:
            yield Pass(what, micro_batch, start_s + from_ms / 1000, start_s + to_ms / 1000)


def works(workers: Mapping[int, Iterable[Json]]) -> list[Work]:
    """From workers' events: all steps whose passes are told, and that came from no log.

    A successor computes steps again that its predecessor has told: their inputs are all there, so
    what it tells of them says nothing of the pipeline, and the first one counts.
    """
    found: dict[tuple[int, tuple[int, int]], Work] = {}
    for worker, records in workers.items():
        for record in records:
            if record["kind"] == "step" and record.get("computed", True) and "passes" in record:
                work = _work(worker, record)
                found.setdefault((worker, work.key), work)
    return list(found.values())


def _work(worker: int, record: Json) -> Work:
    spans = record.get("spans", {})
    told = sorted((one for one in record["passes"] if one[0] in KINDS), key=lambda one: one[2])
    return Work(
        worker=worker,
        key=(record.get("generation", 0), record["step"]),
        began_s=began(record),
        length_ms=record["step_s"] * 1000,
        passes=tuple((what, number, start, end) for what, number, start, end in told),
        apply=joined(spans.get("apply", ()), 0.0),
        up=joined(spans.get("upload", ()), 0.0),
        down=joined(spans.get("download", ()), 0.0),
    )
