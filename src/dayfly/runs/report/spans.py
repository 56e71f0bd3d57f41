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
exchange     down      all of the wire's, in runs that did not measure it apart
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

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
    "exchange": "down",
}
#: Spans of a kind this close to each other are drawn as one, in seconds.
APART_S = 1e-4
_RENAMED = {"start": "load"}
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


def step_of(record: Json) -> Step:
    """From a "step" record; unix seconds."""
    start_s = began(record)
    return Step(record["step"], start_s, start_s + record["step_s"], record["computed"])


def began(record: Json) -> float:
    """When what the record tells of began, unix seconds; records are written at the end of it."""
    start_s: float = record.get("began", record["at"] - record.get("step_s", 0.0))
    return start_s


def spans_of(record: Json) -> Iterator[Span]:
    """What a record tells, in unix seconds: of a step, a round, an epoch, a checkpoint, a span."""
    start_s = began(record)
    match record["kind"]:
        case "span":
            yield _span(record["lane"], start_s, 0.0, record["ms"])
        case "part" if "seconds" in record:
            yield Span("checkpoint", start_s, start_s + record["seconds"])
        case _ if log_s := caught_up_s(record):
            yield Span("catch up", start_s, start_s + log_s)
            for span in _parts(record, start_s):
                if span.kind not in _OWN_WORK:
                    yield span
        case _:
            yield from _parts(record, start_s)


def caught_up_s(record: Json) -> float:
    """How long a step or a round took that came from the message log; 0 for all else.

    A round that a predecessor began is not computed whole, but adds to what the others wait for.
    """
    if record.get("computed", True) or "upload" in record.get("spans", ()):
        return 0.0
    return float(record["round_s"] if record["kind"] == "round" else record["step_s"])


def _parts(record: Json, start_s: float) -> Iterator[Span]:
    """What it consists of; older runs know computation and exchange only."""
    for kind, pairs in record.get("spans", {}).items():
        for from_ms, to_ms in joined(pairs, APART_S * 1000):
            yield _span(kind, start_s, from_ms, to_ms)
    if "wire_s" in record and "spans" not in record:
        computed_s = start_s + record["compute_s"]
        exchanged_s = computed_s + record["wire_s"]
        yield Span("compute", start_s, computed_s)
        yield Span("exchange", computed_s, exchanged_s)
        yield Span("apply", exchanged_s, start_s + record["step_s"])


def _span(kind: str, start_s: float, from_ms: float, to_ms: float) -> Span:
    return Span(_RENAMED.get(kind, kind), start_s + from_ms / 1000, start_s + to_ms / 1000)


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
