"""What a page says of runs that are no training: the lives of a script, and simulations.

All workers of a script begin together, and end together:

events/coordinator.jsonl    invoked 0 ... ended   started again   invoked 1 ... (resumed) invoked 2
life                        1                     cause           2                       3

"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dayfly.runs.record import RunRecord
from dayfly.runs.record_kinds import SimulationRecord
from dayfly.runs.report import tables
from dayfly.runs.report.markup import shown
from dayfly.runs.report.timeline import Timeline
from dayfly.runs.scripts.record import ScriptRecord
from dayfly.specs.events import Ended, Event, Invoked, StartedAgain

_LAST = {
    "done": "done",
    "failed": "failed: no restart was left, or none would have helped",
    "stopped": "stopped",
    "handing over": "handed over",
    "interrupted": "lost with the coordinator",
    "running": "running",
}


@dataclass(frozen=True, slots=True)
class ScriptGeneration:
    """One generation of a script's workers; times are seconds on the report's timeline.

    Attributes:
        number: from 1.
        died: whether a death ended it, and all started again.
        end: how, in words.
    """

    number: int
    start_s: float
    end_s: float
    died: bool
    end: str


def lives(
    coordinator: Sequence[Event], times: Timeline, status: str
) -> tuple[ScriptGeneration, ...]:
    """In order.

    Args:
        status: of the run, which is how its last life ended.
    """
    again: dict[int, StartedAgain] = {}
    number = 0
    for record in coordinator:
        if isinstance(record, Invoked):
            number = record.attempt
        elif isinstance(record, StartedAgain):
            again[number] = record
    spent: dict[int, tuple[float, float]] = {}
    for one in (one for band in times.bands for one in band.attempts):
        start_s, end_s = spent.get(one.number, (one.start_s, one.end_s))
        spent[one.number] = min(start_s, one.start_s), max(end_s, one.end_s)
    last = max(spent, default=0)
    return tuple(
        ScriptGeneration(
            number + 1,
            *spent[number],
            died=number in again and again[number].died,
            end=_end(again.get(number), status if number == last else None),
        )
        for number in sorted(spent)
    )


def table(found: Sequence[ScriptGeneration]) -> str:
    """A row each."""
    heads = ("life", "from (s)", "lasted (s)", "end")
    rows = [
        (str(one.number), f"{one.start_s:.2f}", f"{one.end_s - one.start_s:.2f}", one.end)
        for one in found
    ]
    return tables.long_table("Lives: all workers start together", heads, rows)


def tiles(found: Sequence[ScriptGeneration]) -> list[tuple[str, str, str]]:
    """How often all lived, and how often because one died."""
    died = sum(one.died for one in found)
    others = max(0, len(found) - 1 - died)
    after = f"{others} after a lifetime or by --resume" if others else "after deaths"
    return [
        ("lives", str(len(found)), "of all workers together"),
        ("restarts", str(died), f"after deaths; {after}" if others else after),
    ]


def facts(record: ScriptRecord, found: Sequence[ScriptGeneration]) -> dict[str, Any]:
    """What the run was asked for, and how often it lived."""
    return {
        "script": record.script.module or record.script.file,
        "arguments": " ".join(record.args) or None,
        "directory": record.cwd,
        "lives": len(found),
        "restarts": sum(one.died for one in found),
    }


def _end(again: StartedAgain | None, status: str | None) -> str:
    if again is not None:
        return again.cause
    if status is None:
        return "ended; --resume went on"
    return _LAST.get(status, status)


def lead(record: SimulationRecord) -> str:
    """One sentence under the title."""
    failed = " It would fail." if record.error else ""
    return (
        "Simulated, in virtual time, from a plan: nothing of it ran. "
        f"Scenario, {record.scenario_words}.{failed}"
    )


def on_page(record: RunRecord, coordinator: Sequence[Event]) -> Sequence[Event]:
    """The coordinator's events of those workers that the page shows: of all but a simulation's."""
    if not isinstance(record, SimulationRecord) or record.shown is None:
        return coordinator
    ranks = set(record.shown)
    of_all = (
        one for one in coordinator if not isinstance(one, Invoked | Ended) or one.rank in ranks
    )
    return list(of_all)


def note(record: RunRecord) -> str | None:
    """Of whom steps, seconds and bytes are shown, if not of all."""
    if not isinstance(record, SimulationRecord) or record.shown is None:
        return None
    return (
        f"{len(record.shown)} of {shown(record.settings.workers)} workers are shown here and in "
        "the tables of steps, seconds, attempts and bytes: some of the stragglers, those that die "
        "first, and others evenly among the ranks. Figures at the top and the bill are of all."
    )


def scenario(record: SimulationRecord) -> Mapping[str, Any]:
    """The scenario, value by value."""
    return {**record.scenario, "store": record.store}


def simulation_tiles(record: SimulationRecord) -> list[tuple[str, str, str]]:
    """Deaths of all workers, shown or not, and the worker that computed longest."""
    back = record.rollbacks
    also = f", {back} rollback{'s' * (back > 1)}" if back else ""
    found = [("deaths", shown(record.deaths), f"{shown(record.hand_overs)} hand-overs{also}")]
    if (worst := record.worst) is not None:
        more = f"computed {shown(worst.computed_s)} s; the median {shown(worst.median_s)} s"
        found.append(("slowest worker", str(worst.rank), more))
    return found
