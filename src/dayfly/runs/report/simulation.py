"""What a page says of a run that was simulated: that it was, under which scenario, and of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dayfly.runs.record import SIMULATION
from dayfly.runs.report.markup import shown

Json = Mapping[str, Any]


def is_simulation(record: Json) -> bool:
    """Whether nothing of this ever ran."""
    return record.get("kind") == SIMULATION


def lead(record: Json) -> str:
    """One sentence under the title."""
    failed = " It would fail." if record.get("error") else ""
    return (
        "Simulated, in virtual time, from a plan: nothing of it ran. "
        f"Scenario, {record.get('scenario_words')}.{failed}"
    )


def shown_workers(record: Json) -> frozenset[str] | None:
    """The functions that the page shows; None: all."""
    ranks = record.get("shown")
    return None if ranks is None else frozenset(f"worker-{rank}" for rank in ranks)


def on_page(record: Json, coordinator: Sequence[Json]) -> Sequence[Json]:
    """The coordinator's events of those workers that the page shows."""
    functions = shown_workers(record)
    if functions is None:
        return coordinator
    return [one for one in coordinator if _function(one) in functions or _function(one) is None]


def _function(event: Json) -> str | None:
    used = event.get("used")
    if isinstance(used, Mapping):
        return str(used["function"])
    name = event.get("function")
    return None if name is None else str(name)


def note(record: Json) -> str | None:
    """Of whom steps, seconds and bytes are shown, if not of all."""
    ranks = record.get("shown")
    if ranks is None:
        return None
    workers = (record.get("settings") or {}).get("workers")
    return (
        f"{len(ranks)} of {shown(workers)} workers are shown here and in the tables of steps, "
        "seconds, attempts and bytes: some of the stragglers, those that die first, and others "
        "evenly among the ranks. Figures at the top and the bill are of all."
    )


def facts(record: Json) -> Json:
    """The scenario, value by value."""
    return {**(record.get("scenario") or {}), "store": record.get("store")}


def worst(record: Json) -> tuple[str, str, str] | None:
    """A tile: the worker that computed longest."""
    found = record.get("worst")
    if not found:
        return None
    more = f"computed {shown(found['computed_s'])} s; the median {shown(found['median_s'])} s"
    return "slowest worker", str(found["rank"]), more


def deaths(record: Json) -> tuple[str, str, str]:
    """A tile: of all workers, also those that are not shown."""
    back = record.get("rollbacks") or 0
    also = f", {back} rollback{'s' * (back > 1)}" if back else ""
    return (
        "deaths",
        shown(record.get("deaths")),
        f"{shown(record.get('hand_overs'))} hand-overs{also}",
    )
