"""Why this store: what a plan's functions would take and cost over the others, and by what.

    seconds   of the run: compute, transfer, sync, overhead, start-up (`Option.run_breakdown`)
    dollars   of the bill, by kind

CE-scaling explains its choice by the terms of equations 2 and 4 (`planning.choose.stores_beside`).
These are of a run as it is predicted, whatever it is: pipelines and all collectives, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dayfly.errors import RequestError
from dayfly.planning.choose.in_words import dollars, seconds
from dayfly.planning.choose.stores_beside import difference
from dayfly.runs.choosing.candidates import over
from dayfly.runs.choosing.place import Place
from dayfly.runs.choosing.ranking import Option, fits, predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A plan's functions over another store. option: None: they cannot; why says so."""

    store: str
    option: Option | None = None
    why: str = ""


def beside(option: Option, places: Sequence[Place], most_messages: float) -> tuple[Beside, ...]:
    """The same functions over each other store of the platform, in the order of the places."""
    mine = option.candidate.place
    found = []
    for place in places:
        if place.platform != mine.platform or place.profile.channel == mine.profile.channel:
            continue
        store = place.profile.channel
        try:
            other = predicted(over(option.candidate, place), most_messages)
        except RequestError as refusal:
            found.append(Beside(store=store, why=str(refusal)))
            continue
        why = "" if fits(other) else "it does not fit into their memory"
        found.append(Beside(store=store, option=None if why else other, why=why))
    return tuple(found)


def words(option: Option, others: Sequence[Beside]) -> str:
    """The choice of a plan's store: it beside the others, with the parts that decide."""
    candidate, run = option.candidate, option.prediction
    if candidate.settings.workers == 1:
        return "A lone function needs no store."
    said = [
        f"Over {candidate.place.profile.channel} it takes {seconds(run.run_s)} and "
        f"{dollars(run.cost_usd)}"
    ]
    for one in others:
        if one.option is None:
            said.append(f"over {one.store} it cannot be: {one.why}")
            continue
        its = one.option.prediction
        longer = difference(option.run_breakdown, one.option.run_breakdown)
        dearer = difference(_in_words(run.by_kind), _in_words(its.by_kind))
        said.append(
            f"over {one.store} it would take {seconds(its.run_s)} ({longer}) and "
            f"{dollars(its.cost_usd)} ({dearer})"
        )
    return "; ".join(said) + "."


def _in_words(by_kind: Mapping[str, float]) -> dict[str, float]:
    return {kind.replace("_", " "): usd for kind, usd in by_kind.items()}
