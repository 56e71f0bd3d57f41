"""Forward and backward passes of micro-batches, and the bubble that they leave in a step.

lane        0 ms                                      step
compute     |f0|f1|        |b0 |b1 |       |apply|
idle              |--------|       |-------|     |----|     the bubble
up, down          |===|                |===|                transfers that nothing hides
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dayfly.runs.report.spans import caught_up_s, joined
from dayfly.runs.spans import without
from dayfly.specs.events import StepTold, Told

Pairs = Sequence[Sequence[float]]
Passes = Sequence[tuple[str, int, float, float]]

#: Kinds of spans, by what passes of a step call them.
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


def passes_of(told: StepTold) -> Iterator[Pass]:
    """The passes of a step, in Unix seconds; none of what is told as catching up."""
    if caught_up_s(told):
        return
    start_s = told.began_s
    for what, micro_batch, from_ms, to_ms in told.passes or ():
        if what in KINDS:
            yield Pass(what, micro_batch, start_s + from_ms / 1000, start_s + to_ms / 1000)


def works(workers: Mapping[int, Iterable[Told]]) -> list[Work]:
    """From workers' events: all steps whose passes are told, and that came from no log.

    A successor computes steps again that its predecessor has told: their inputs are all there, so
    what it tells of them says nothing of the pipeline, and the first one counts.
    """
    found: dict[tuple[int, tuple[int, int]], Work] = {}
    for worker, records in workers.items():
        for told in records:
            if isinstance(told, StepTold) and told.computed and told.passes is not None:
                work = _work(worker, told, told.passes)
                found.setdefault((worker, work.key), work)
    return list(found.values())


def _work(worker: int, told: StepTold, passes: Passes) -> Work:
    return Work(
        worker=worker,
        key=(told.generation, told.step),
        began_s=told.began_s,
        length_ms=told.step_s * 1000,
        passes=tuple(sorted((one for one in passes if one[0] in KINDS), key=lambda one: one[2])),
        apply=joined(told.spans.get("apply", ()), 0.0),
        up=joined(told.spans.get("upload", ()), 0.0),
        down=joined(told.spans.get("download", ()), 0.0),
    )
