"""The events of a run in its store: numbered objects, each with the records of a while.

    events/000000    ["coordinator", {"kind": "begun", …}]
                     ["worker-0", {"kind": "step", "step": 0, …}]
    events/000001    …

A position is a number and a line of it; who follows a run reads on from one without a listing. The
first put of a number wins, so that there is one history, whoever leads the run. Requests are paid
for: what can wait does so for `EVERY_S`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from dayfly.errors import RequestError
from dayfly.life.control import is_numbered, next_number
from dayfly.life.leadership import Deposed
from dayfly.wire.stores.base import Store

Json = Mapping[str, Any]

FOLDER = "events"
#: Seconds between two puts: with looks for requests every `FAR_LOOK_S`, 1% of the price of a
#: function of 512 MiB on AWS Lambda, over S3.
EVERY_S = 120.0
#: Records that are put at once, with all before them: what a person or the next life needs to know.
URGENT = frozenset({"begun", "checkpoint", "rolled back", "started again", "stopping", "over"})
#: What an event file may be called, without its suffix.
_NAME = re.compile(r"coordinator|worker-[0-9]{1,9}")
_REMEDY = "put back the object from a copy, or begin the run anew"


class EventSegments:
    """Writes the events of one life into a run's store, after those of the lives before.

    Args:
        store: the run's.
        now: a clock in seconds that never goes back.
    """

    def __init__(self, store: Store, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now = now
        self._next = next_number(store, FOLDER)
        self._lines: list[str] = []
        self._due_s = now() + EVERY_S

    def add(self, name: str, records: Sequence[Json]) -> None:
        """Adds records of an event file.

        Raises:
            StoreError: they cannot be put.
            Deposed: another coordinator has written meanwhile.
        """
        self._lines += [json.dumps([name, record]) for record in records]
        if self._now() >= self._due_s or any(one.get("kind") in URGENT for one in records):
            self._put()

    def _put(self) -> None:
        while self._lines:
            data = "".join(f"{line}\n" for line in self._lines).encode()
            name = f"{FOLDER}/{self._next:06d}"
            put = self._lines
            if self._store.put_new(name, data) is None:
                there = self._store.get(name)
                if not there or not data.startswith(there):
                    raise Deposed(
                        f"another coordinator leads the run in {self._store} by now: it wrote "
                        f"{name}"
                    )
                # An earlier put of these lines had won, and its answer was lost.
                put = put[: there.count(b"\n")]
            self._next += 1
            self._lines = self._lines[len(put) :]
        self._due_s = self._now() + EVERY_S


def read_segments(
    store: Store, after: str = "", *, last_first: bool = False
) -> Iterator[tuple[str, list[tuple[str, Json]]]]:
    """Yields the segments of a run's store in order: the name, and for each record its event file.

    Args:
        store: the run's.
        after: the name of the last segment that is known already.
        last_first: yield the last one first; each is read only when it is asked for.

    Raises:
        RequestError: names the object and line of what is no record.
    """
    listed = store.list(FOLDER, after=after)
    for info in reversed(list(listed)) if last_first else listed:
        if is_numbered(info.name.rpartition("/")[2]):
            yield info.name, _records(store.get(info.name), f"{store}/{info.name}")


def as_files(store: Store, directory: Path) -> None:
    """Writes the events of a run's store as event files, in place of what is there.

    Args:
        store: the run's.
        directory: `events/` of a run's directory; it is made.
    """
    directory.mkdir(exist_ok=True)
    for file in directory.glob("*.jsonl"):
        file.unlink()
    files: dict[str, TextIO] = {}
    try:
        for _, records in read_segments(store):
            for name, record in records:
                if name not in files:
                    files[name] = (directory / f"{name}.jsonl").open("a")
                files[name].write(f"{json.dumps(record)}\n")
    finally:
        for opened in files.values():
            opened.close()


def _records(data: bytes, place: str) -> list[tuple[str, Json]]:
    found: list[tuple[str, Json]] = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            name, record = json.loads(line)
            if not (_NAME.fullmatch(name) and isinstance(record, dict)):
                raise ValueError(name)
        except (ValueError, TypeError) as error:
            raise RequestError(f"{place}, line {number}, is no record: {_REMEDY}") from error
        found.append((name, record))
    return found
