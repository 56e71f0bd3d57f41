"""Which price list a run has, and its bill under that one or any other, from its directory."""

from __future__ import annotations

from pathlib import Path

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import Bill, bill
from dayfly.runs import events
from dayfly.runs.functions import FunctionSettings
from dayfly.runs.record import read_record, recorded_settings


def price_list(settings: FunctionSettings) -> str:
    """Name of the platform under whose prices a run is billed."""
    return settings.imitate or "aws-lambda"


def catalogue(settings: FunctionSettings) -> Catalogue:
    """The catalogue with the rows of the user's own that the run was asked to use."""
    return Catalogue(Path(settings.catalogue) if settings.catalogue is not None else None)


def rebill(
    directory: Path,
    prices: str | None = None,
    store: str | None = None,
    own: Path | None = None,
) -> Bill:
    """Bill a run anew, from the events in its directory, however it ended.

    prices: name of a platform; None: the run's own list. store: whose prices the store's part has;
    None: it costs nothing, but in a simulation of a store that was named. own: a catalogue of the
    user's; None: the run's, if it had one.

    Raises RequestError if the directory holds no run, or the catalogue lacks what is asked for.
    """
    settings = recorded_settings(directory)
    known = Catalogue(own.expanduser()) if own is not None else catalogue(settings)
    metered = directory / "events"
    store = store or read_record(directory).get("store")
    return bill(
        events.read_used(metered),
        known.platform(prices or price_list(settings)),
        known.store(store) if store is not None else None,
        events.read_moved(metered),
        events.read_stored_bytes(metered),
    )
