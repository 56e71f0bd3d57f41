"""What workers and supervisor tell each other, through the channel like everything else.

A worker tells records in JSON, and ends with a status; the supervisor leaves messages for all.

Records are collected and put together, at most one message each so many seconds, as a store may
bill by the request (see `specs.pace`); those that the coordinator acts on go at once. Over a link
the others go by a thread of their own, so that no step waits for them. A message is deflated: of
many steps a record takes a quarter of its bytes, which over a slow link are a share of a round's.
Digits do not deflate, so times are told to 10 microseconds, and losses as float32 has them.
"""

from __future__ import annotations

import json
import math
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.specs.pace import REPORT_EVERY_S
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, Key

if TYPE_CHECKING:
    from dayfly.wire.channels.base import Channel

#: How a worker ends: its work is done; as asked to; with a successor to go on; or as it found out
#: why the run cannot go on, which all find out in the same step.
DONE, STOPPED, HANDED_OVER, FAILED = "done", "stopped", "handed over", "failed"

#: What a worker that hands over says is kept of what it did: all, in a run checkpoint that counts
#: once every worker's part is there; or its own state, from which its successor goes on.
KEPT_BY_RUN, KEPT_BY_WORKER = "run", "worker"

#: All workers are asked to stop after their step, by the presence of this message.
STOP = Key(FOREVER, "stop", COORDINATOR, EVERYONE)

#: Workers that warmed up go on, from the checkpoint that this message names.
GO = Key(FOREVER, "go", COORDINATOR, EVERYONE)

#: How long the supervisor waits for a message that is there already: longer than a channel bears
#: with a store that is away.
_READ_S = 120.0
_REPORT = "report-"
#: Bytes of a report's JSON at most, so that no message fills the coordinator's memory.
_MOST_BYTES = 2**25

#: Times in a record, beside those that end in `_s`; digits after the point that are told of them.
_TIMES, _TIME_DIGITS = ("at", "began"), 5
#: Losses in a record; with so many significant digits a float32 is the same again.
_LOSSES, _LOSS_DIGITS = ("loss", "losses"), 9

#: Kind of a record: the worker lives, and waits for the ranks that are its `waits`.
BEAT = "beat"


def trimmed(step: int) -> Key:
    """The message that says: the log before `step` is gone, so there is room again."""
    return Key(step, "trimmed", COORDINATOR, EVERYONE)


def decided(step: int) -> Key:
    """The message that says what follows at the boundary after `step` steps."""
    return Key(step, "decided", COORDINATOR, EVERYONE)


def asked(rank: int, attempt: int) -> Key:
    """The message that asks a worker's attempt for heartbeats, as long as it is there."""
    return Key(FOREVER, f"asked-{rank}-{attempt}", COORDINATOR, EVERYONE)


def fenced(rank: int, attempt: int) -> Key:
    """The message that says: this attempt is taken for dead, and another one follows it."""
    return Key(FOREVER, f"fenced-{rank}-{attempt}", COORDINATOR, EVERYONE)


class Reporter(Closing):
    """One attempt's way to the coordinator, for all of its threads. Close it to send the rest.

    Args:
        every_s: least time between two messages of records that are not urgent.
    """

    def __init__(
        self, channel: Channel, rank: int, attempt: int, every_s: float = REPORT_EVERY_S
    ) -> None:
        self._channel = channel
        self._rank = rank
        self._operation = f"{_REPORT}{attempt}"
        self._records: list[Mapping[str, Any]] = []
        self._messages = 0
        self._noting = threading.Lock()
        self._telling = threading.Lock()
        self._last = time.monotonic()
        self._every_s = every_s
        self._sender = (
            None if channel.immediate else ThreadPoolExecutor(1, thread_name_prefix="dayfly-report")
        )
        self._sending: Future[None] | None = None

    def add(self, kind: str, *, urgent: bool = False, **fields: Any) -> None:
        """Note a record; with its kind and the time it has whatever JSON can hold.

        One that is urgent is sent when this returns. Raises WireError if records cannot be sent.
        """
        with self._noting:
            record = {"kind": kind, "at": time.time(), **fields}
            self._records.append({name: _told(name, one) for name, one in record.items()})
            due = time.monotonic() - self._last > self._every_s
            if due:
                self._last = time.monotonic()
        if urgent or (due and self._sender is None):
            self.flush()
        elif due and self._sender is not None:
            if self._sending is not None and self._sending.done():
                self._check_sent()
            self._sending = self._sending or self._sender.submit(self.flush)

    def flush(self) -> None:
        """Send what is noted."""
        with self._telling:
            with self._noting:
                records, self._records = self._records, []
                self._last = time.monotonic()
            if not records:
                return
            counters = self._channel.traffic.counters()
            told = {"traffic": counters, "records": plain(records)}
            key = Key(self._messages, self._operation, self._rank, COORDINATOR)
            self._channel.put_bytes(key, packed(told))
            self._messages += 1

    def close(self) -> None:
        """Send what is noted, and end the thread."""
        if self._sender is not None:
            self._sender.shutdown(wait=True)
        self._check_sent()
        self.flush()

    def _check_sent(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()


@dataclass(frozen=True, slots=True)
class Report:
    """Records of one worker's attempt, with its traffic so far."""

    rank: int
    attempt: int
    traffic: Mapping[str, int]
    records: tuple[Mapping[str, Any], ...]


def read_reports(channel: Channel, keys: Iterable[Key] | None = None) -> Iterator[Report]:
    """The reports that are there now, each worker's in order; each is removed once it is used.

    Args:
        keys: of the messages that wait for the coordinator, if they were listed already. Those that
            are no reports are another's to read.

    Raises:
        WireError: a message is no report.
    """
    for key in channel.waiting(COORDINATOR) if keys is None else keys:
        if not key.operation.startswith(_REPORT):
            continue
        yield _report(key, unpacked(channel.get_bytes(key, _READ_S)))
        channel.drop([key])


def _report(key: Key, content: Any) -> Report:
    """The report of a message, checked as far as all records are alike."""
    match content:
        case {"traffic": dict(traffic), "records": list(records)}:
            counted = all(type(one) is int for one in traffic.values())
            attempt = key.operation.removeprefix(_REPORT)
            if counted and attempt.isdecimal() and all(map(_is_record, records)):
                return Report(key.source, int(attempt), traffic, tuple(records))
    raise WireError(f"a report of worker {key.source} is none: its traffic or records are not such")


def _is_record(content: Any) -> bool:
    match content:
        case {"kind": str(), "at": int() | float()}:
            return True
    return False


def packed(told: Mapping[str, Any]) -> bytes:
    """Returns a report's bytes: deflated JSON.

    Args:
        told: whatever JSON can hold; no number in it is a NaN or infinite.
    """
    return zlib.compress(json.dumps(told, allow_nan=False, separators=(",", ":")).encode())


def unpacked(data: bytes, most_bytes: int = _MOST_BYTES) -> Any:
    """Returns what `packed` was given.

    Args:
        data: of the message.
        most_bytes: of the JSON.

    Raises:
        WireError: it is nothing that `packed` returns, or longer.
    """
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(data, most_bytes)
        if not inflating.eof:
            raise ValueError(f"more than {most_bytes} bytes, or an end that is missing")
        return json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise WireError(f"a report of {len(data)} bytes is none: {error}") from None


def _told(name: str, value: Any) -> Any:
    """A field of a record, with as many digits as are told of it."""
    if isinstance(value, float) and (name in _TIMES or name.endswith("_s")):
        return round(value, _TIME_DIGITS)
    if isinstance(value, float) and name in _LOSSES:
        return float(f"{value:.{_LOSS_DIGITS}g}")
    if isinstance(value, (list, tuple)) and name in _LOSSES:
        return [_told(name, one) for one in value]
    return value


def plain(value: Any) -> Any:
    """JSON has no NaN: a number that is none becomes null, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
