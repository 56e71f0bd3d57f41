"""A run's bill under its own price list or any other, from its directory."""

from __future__ import annotations

from pathlib import Path

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import Bill, bill
from dayfly.runs.billing import catalogue, price_list
from dayfly.runs.events import Events
from dayfly.runs.records import SimulationRecord, read_any


def rebill(
    directory: Path,
    prices: str | None = None,
    store: str | None = None,
    own: Path | None = None,
    events: Events | None = None,
) -> Bill:
    """Bill a run anew, from the events in its directory, however it ended.

    prices: name of a platform; None: the run's own list. store: whose prices the store's part has;
    None: it costs nothing, but in a simulation of a store that was named. own: a catalogue of the
    user's; None: the run's, if it had one. events: of the directory, if they were read already.

    Raises RequestError if the directory holds no run, or the catalogue lacks what is asked for.
    """
    record = read_any(directory)
    known = Catalogue(own.expanduser()) if own is not None else catalogue(record.settings)
    events = events or Events.read(directory / "events")
    if store is None and isinstance(record, SimulationRecord):
        store = record.store
    return bill(
        events.used,
        known.platform(prices or price_list(record.settings)),
        known.store(store) if store is not None else None,
        events.moved,
        events.stored_bytes,
        events.coordinator_used,
    )
