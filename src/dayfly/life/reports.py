"""What workers tell the coordinator: records in JSON, through the channel like everything else.

Records are collected and put together, at most one message each `EVERY_S`, as a store may bill by
the request; those that the coordinator acts on go at once.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, Key

#: Least time between two messages of records that are not urgent, in seconds.
EVERY_S = 0.3
#: How long the coordinator waits for a message that is there already.
_READ_S = 5.0


class Reporter:
    """One attempt's way to the coordinator, for all of its threads."""

    def __init__(self, channel: Channel, rank: int, attempt: int) -> None:
        self._channel = channel
        self._rank = rank
        self._operation = f"report-{attempt}"
        self._records: list[Mapping[str, Any]] = []
        self._messages = 0
        self._lock = threading.RLock()
        self._last = time.monotonic()

    def add(self, kind: str, *, urgent: bool = False, **fields: Any) -> None:
        """Note a record; with its kind and the time it has whatever JSON can hold."""
        with self._lock:
            self._records.append({"kind": kind, "at": time.time(), **fields})
            if urgent or time.monotonic() - self._last > EVERY_S:
                self._flush()

    def flush(self) -> None:
        """Send what is noted."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._records:
            return
        counters = self._channel.traffic.counters()
        text = json.dumps({"traffic": counters, "records": plain(self._records)}, allow_nan=False)
        key = Key(self._messages, self._operation, self._rank, COORDINATOR)
        self._channel.put_bytes(key, text.encode())
        self._messages += 1
        self._records.clear()
        self._last = time.monotonic()


@dataclass(frozen=True, slots=True)
class Report:
    """Records of one worker's attempt, with its traffic so far."""

    rank: int
    attempt: int
    traffic: Mapping[str, int]
    records: tuple[Mapping[str, Any], ...]


def read_reports(channel: Channel) -> Iterator[Report]:
    """The reports that are there now, each worker's in order; each is removed once it is used."""
    for key in channel.waiting(COORDINATOR):
        content = json.loads(channel.get_bytes(key, _READ_S))
        attempt = int(key.operation.removeprefix("report-"))
        yield Report(key.source, attempt, content["traffic"], tuple(content["records"]))
        channel.drop([key])


def plain(value: Any) -> Any:
    """JSON has no NaN: a number that is none becomes null, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
