"""`dayfly follow`: shows a run that was begun in another terminal, until it ends."""

from __future__ import annotations

import time

from rich.console import Console

from dayfly.runs.display import Lines
from dayfly.runs.following import Teller
from dayfly.runs.record import SCRIPT
from dayfly.runs.steering import KeptRun
from dayfly.specs.events import Ended


def follow(run: str) -> str:
    """Shows what happens in a run until nobody runs it any more; returns its status.

    Raises:
        RequestError: there is no such run.
    """
    kept = KeptRun.named(run)
    untold = (Ended,) if kept.record().get("kind") == SCRIPT else ()
    events = kept.events()
    teller = Teller(Lines(Console()), untold)
    while True:
        goes_on = kept.goes_on()  # asked first: what is written until then is shown
        for source, event in events.look():
            teller.tell(source, event)
        if not goes_on:
            return "lost" if kept.under_way else kept.status
        time.sleep(kept.look_s)
