"""What a worker's records say that it did, as spans of time by kind.

kind         row       from
script       compute   a script, which tells nothing of what it does
cold start   compute   the platform's metering: from the request until the handler began
load         compute   job, checkpoint and data, until the first step
data         compute   waits for its slice of the data
compute      compute   forward, backward, and sums of the wire
forward      compute   a stage's passes of micro-batches, in runs whose model is cut
backward     compute
apply        compute   the sum of all gradients applied
catch up     compute   steps that a successor takes from the message log
validate     compute
checkpoint   compute   writing its share
upload       up
download     down
wait         down      for a message that has not arrived

Of a pipeline, passes of micro-batches, and the bubble that they leave in a step:

lane        0 ms                                      step
compute     |f0|f1|        |b0 |b1 |       |apply|
idle              |--------|       |-------|     |----|     the bubble
up, down          |===|                |===|                transfers that nothing hides

"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dayfly.runs.spans import without
from dayfly.specs.events import PartTold, RoundTold, StepTold, Told

#: Kinds of spans, each with the row of a worker's band in which it is drawn.
ROWS: Mapping[str, str] = {
    "cold start": "compute",
    "load": "compute",
    "script": "compute",
    "data": "compute",
    "compute": "compute",
    "forward": "compute",
    "backward": "compute",
    "apply": "compute",
    "catch up": "compute",
    "validate": "compute",
    "checkpoint": "compute",
    "upload": "up",
    "download": "down",
    "wait": "down",
}
#: Spans of a kind this close to each other are drawn as one, in seconds.
APART_S = 1e-4
#: What is not drawn of a step that was taken from the log, as "catch up" covers it.
_OWN_WORK = ("compute", "forward", "backward", "apply")


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Something a worker did, from `start_s` to `end_s`.

    Attributes:
        kind: a key of `ROWS`, or a new one.
    """

    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """A step of one worker.

    Attributes:
        computed: False if it was taken from the message log.
    """

    number: int
    start_s: float
    end_s: float
    computed: bool


def step_of(told: StepTold) -> Step:
    """In Unix seconds."""
    start_s = told.began_s
    return Step(told.step, start_s, start_s + told.step_s, told.computed)


def spans_of(told: Told) -> Iterator[TimeSpan]:
    """What a record tells, in Unix seconds: of a step, a round, an epoch, a checkpoint."""
    start_s = told.began_s
    if isinstance(told, PartTold):
        yield TimeSpan("checkpoint", start_s, start_s + told.seconds)
    log_s = caught_up_s(told)
    if log_s:
        yield TimeSpan("catch up", start_s, start_s + log_s)
    for kind, pairs in told.parts.items():
        if not (log_s and kind in _OWN_WORK):
            for from_ms, to_ms in joined(pairs, APART_S * 1000):
                yield TimeSpan(kind, start_s + from_ms / 1000, start_s + to_ms / 1000)


def caught_up_s(told: Told) -> float:
    """How long a step or a round took that came from the message log; 0 for all else.

    A round that a predecessor began is not computed whole, but adds to what the others wait for.
    """
    if not isinstance(told, StepTold | RoundTold) or told.computed or "upload" in told.spans:
        return 0.0
    return told.round_s if isinstance(told, RoundTold) else told.step_s


def joined(pairs: Iterable[Sequence[float]], apart: float) -> list[tuple[float, float]]:
    """(from, to) in order, those that overlap or lie at most `apart` apart as one.

    Plain numbers, as 64 workers make hundreds of thousands of them in a minute.
    """
    whole: list[tuple[float, float]] = []
    last_start = last_end = float("-inf")
    for start, end in sorted((pair[0], pair[1]) for pair in pairs):
        if start - last_end <= apart:
            last_end = max(last_end, end)
            whole[-1] = last_start, last_end
        else:
            last_start, last_end = start, end
            whole.append((start, end))
    return whole


Pairs = Sequence[Sequence[float]]
Passes = Sequence[tuple[str, int, float, float]]

#: Kinds of spans, by what passes of a step call them.
KINDS: Mapping[str, str] = {"f": "forward", "b": "backward"}


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one micro-batch.

    In seconds of whoever made it.

    Attributes:
        what: a key of `KINDS`.
    """

    what: str
    micro_batch: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a worker did in a step, in milliseconds since its beginning.

    Attributes:
        key: (generation, step).
        began_s: unix seconds.
        passes: (what, micro-batch, from, to), in order.
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


def works(workers: Mapping[int, Iterable[Told]]) -> list[StepWork]:
    """From workers' events: all steps whose passes are told, and that came from no log.

    A successor computes steps again that its predecessor has told: their inputs are all there, so
    what it tells of them says nothing of the pipeline, and the first one counts.
    """
    found: dict[tuple[int, tuple[int, int]], StepWork] = {}
    for worker, records in workers.items():
        for told in records:
            if isinstance(told, StepTold) and told.computed and told.passes is not None:
                work = _work(worker, told, told.passes)
                found.setdefault((worker, work.key), work)
    return list(found.values())


def _work(worker: int, told: StepTold, passes: Passes) -> StepWork:
    return StepWork(
        worker=worker,
        key=(told.generation, told.step),
        began_s=told.began_s,
        length_ms=told.step_s * 1000,
        passes=tuple(sorted((one for one in passes if one[0] in KINDS), key=lambda one: one[2])),
        apply=joined(told.spans.get("apply", ()), 0.0),
        up=joined(told.spans.get("upload", ()), 0.0),
        down=joined(told.spans.get("download", ()), 0.0),
    )


PARTS = ("compute", "overhead", "transfer", "sync")
_COMPUTE = ("compute", "forward", "backward")
_TRANSFER = ("upload", "download")


def step_parts(records: Sequence[Told]) -> dict[str, float]:
    """Medians over the steps that a worker computed, in seconds; empty before the first.

    Of local SGD, a step is an equal share of its round.

    Args:
        records: a worker's.
    """
    rounds = [one for one in records if isinstance(one, RoundTold) and one.computed]
    steps = [one for one in records if isinstance(one, StepTold) and one.computed]
    found: list[dict[str, float]] = []
    if rounds:
        by_number = {one.step: one for one in steps}
        for one in rounds:
            numbers = range(one.step, one.step + one.steps)
            told = [by_number[number] for number in numbers if number in by_number]
            found.append(_parts([one, *told], one.round_s, len(numbers)))
    else:
        found = [_parts([one], one.step_s, 1) for one in steps]
    return {name: median(one[name] for one in found) for name in PARTS} if found else {}


def _parts(records: Sequence[Told], seconds: float, steps: int) -> dict[str, float]:
    taken = dict.fromkeys(PARTS, 0.0)
    for record in records:
        own = _joined(record, _COMPUTE)
        busy = _joined(record, (*_COMPUTE, "apply"))
        moved = _joined(record, _TRANSFER)
        waited = without(_joined(record, ("wait",)), _joined(record, ("apply", *_COMPUTE)))
        taken["compute"] += _length(own) / 1000
        taken["transfer"] += _length(without(moved, busy)) / 1000
        taken["sync"] += _length(without(waited, moved)) / 1000
    taken["overhead"] = max(0.0, seconds - sum(taken.values()))
    return {name: part / steps for name, part in taken.items()}


def _joined(told: Told, kinds: Sequence[str]) -> list[tuple[float, float]]:
    return joined((pair for kind in kinds for pair in told.parts.get(kind, ())), 0.0)


def _length(spans: Sequence[Sequence[float]]) -> float:
    """In ms."""
    return sum(span[1] - span[0] for span in spans)
