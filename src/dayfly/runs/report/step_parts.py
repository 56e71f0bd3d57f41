"""Where the time of a measured step went, told apart as a prediction tells it.

compute    it computes, whatever else goes on
transfer   something of its own goes up or down, and it computes nothing
sync       it waits for a message, and nothing else goes on
overhead   the rest: data, the wire's own work, notes
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from dayfly.runs.report.spans import joined
from dayfly.runs.spans import without
from dayfly.specs.events import RoundTold, StepTold, Told

PARTS = ("compute", "overhead", "transfer", "sync")
_COMPUTE = ("compute", "forward", "backward")
_TRANSFER = ("upload", "download")


def step_parts(records: Sequence[Told]) -> dict[str, float]:
    """Medians over the steps that a worker computed, in seconds; empty before the first.

    records: a worker's. Of local SGD, a step is an equal share of its round.
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
