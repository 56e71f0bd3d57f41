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
wait         down      for a message that is not there yet
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
#: What is told as catching up, of a step that was taken from the log.
_OWN_WORK = ("compute", "forward", "backward", "apply")


@dataclass(frozen=True, slots=True)
class Span:
    """Something a worker did, from `start_s` to `end_s`. kind: a key of `ROWS`, or a new one."""

    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """A step of one worker. computed: False if it was taken from the message log."""

    number: int
    start_s: float
    end_s: float
    computed: bool


def step_of(told: StepTold) -> Step:
    """In Unix seconds."""
    start_s = told.began_s
    return Step(told.step, start_s, start_s + told.step_s, told.computed)


def spans_of(told: Told) -> Iterator[Span]:
    """What a record tells, in Unix seconds: of a step, a round, an epoch, a checkpoint."""
    start_s = told.began_s
    if isinstance(told, PartTold):
        yield Span("checkpoint", start_s, start_s + told.seconds)
    log_s = caught_up_s(told)
    if log_s:
        yield Span("catch up", start_s, start_s + log_s)
    for kind, pairs in told.parts.items():
        if not (log_s and kind in _OWN_WORK):
            for from_ms, to_ms in joined(pairs, APART_S * 1000):
                yield Span(kind, start_s + from_ms / 1000, start_s + to_ms / 1000)


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
