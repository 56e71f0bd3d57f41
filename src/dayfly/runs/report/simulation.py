"""What a page says of a run that was simulated: that it was, under which scenario, and of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dayfly.runs.record import RunRecord
from dayfly.runs.records import SimulationRecord
from dayfly.runs.report.markup import shown
from dayfly.specs.events import Ended, Event, Invoked


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


def facts(record: SimulationRecord) -> Mapping[str, Any]:
    """The scenario, value by value."""
    return {**record.scenario, "store": record.store}


def tiles(record: SimulationRecord) -> list[tuple[str, str, str]]:
    """Deaths of all workers, shown or not, and the worker that computed longest."""
    back = record.rollbacks
    also = f", {back} rollback{'s' * (back > 1)}" if back else ""
    found = [("deaths", shown(record.deaths), f"{shown(record.hand_overs)} hand-overs{also}")]
    if (worst := record.worst) is not None:
        more = f"computed {shown(worst.computed_s)} s; the median {shown(worst.median_s)} s"
        found.append(("slowest worker", str(worst.rank), more))
    return found
