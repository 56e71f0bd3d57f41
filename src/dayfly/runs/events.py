"""Reads the event files of a run: what its functions used and moved.

events/coordinator.jsonl    functions invoked and ended, checkpoints
events/worker-0.jsonl       the records of rank 0, in order of arrival
...
events/others.jsonl         of a simulation: what functions moved that have no file of their own
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from dayfly.catalogue.metering import MeteredInvocation, StoreTraffic
from dayfly.errors import RequestError
from dayfly.json_files import parse
from dayfly.specs.events import (
    Begun,
    Committed,
    Ended,
    Event,
    Invoked,
    OthersTraffic,
    Over,
    Told,
    TrafficTold,
    event_of,
    others_of,
    told_of,
)

Json = Mapping[str, Any]
Record = TypeVar("Record", bound=Event)
#: From a line of JSON, where it stands, and what to do about damage.
Of = Callable[[Json, str, str], Record]

#: In `events/`, of the coordinator; of simulations of more workers than a page can show.
COORDINATOR, OTHERS = "coordinator.jsonl", "others.jsonl"
_WORKER = re.compile(r"worker-([0-9]{1,9})\.jsonl")
#: What to do about a line that is no record.
_REMEDY = "put back a copy of the file, or take the line out of it"
#: No line is longer, in bytes.
LONGEST_BYTES = 16 * 2**20


def read(file: Path, of: Of[Record]) -> tuple[tuple[Record, ...], bool]:
    """Returns the records of an event file, and whether a kill cut the last one short.

    Args:
        file: one that is not there has none.
        of: what its lines are, such as `told_of`.

    Raises:
        RequestError: names file and line of what is no record, but for a last one that was cut.
    """
    found: list[Record] = []
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(_lines(lines), 1):
                origin = f"{file}, line {number}"
                if is_cut(line):
                    return tuple(found), True
                if len(line) > LONGEST_BYTES:
                    raise RequestError(f"{origin} is longer than any record: {_REMEDY}")
                found.append(of(parse(line, origin, _REMEDY), origin, _REMEDY))
    except FileNotFoundError:
        return (), False
    except OSError as error:
        raise RequestError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    return tuple(found), False


def _lines(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.readline(LONGEST_BYTES + 1), b"")


def is_cut(line: bytes) -> bool:
    """Whether a line is the beginning of a record, as a kill leaves it at the end of a file."""
    if line.endswith(b"\n") or len(line) > LONGEST_BYTES:
        return False
    try:
        parse(line, "the line", _REMEDY)
    except RequestError:
        return True
    return False


def coordinator_events(directory: Path) -> tuple[Event, ...]:
    """The coordinator's records.

    Args:
        directory: `events/`.
    """
    return read(directory / COORDINATOR, event_of)[0]


def worker_events(directory: Path, rank: int) -> tuple[Told, ...]:
    """A worker's records.

    Args:
        directory: `events/`.
    """
    return read(directory / f"worker-{rank}.jsonl", told_of)[0]


def told_events(file: Path, kinds: Sequence[str]) -> Iterator[Told]:
    """Yields a worker's records of some kinds, as they are read; other lines are passed over."""
    wanted = re.compile(b'"kind": *"(' + "|".join(kinds).encode() + b')"')
    with file.open("rb") as lines:
        for number, line in enumerate(_lines(lines), 1):
            if wanted.search(line) and not is_cut(line):
                origin = f"{file}, line {number}"
                told = told_of(parse(line, origin, _REMEDY), origin, _REMEDY)
                if told.kind in kinds:
                    yield told


def worker_files(directory: Path) -> dict[int, Path]:
    """The workers' event files, by rank.

    Args:
        directory: `events/`.
    """
    named = {file: _WORKER.fullmatch(file.name) for file in directory.glob("worker-*.jsonl")}
    return dict(sorted((int(name.group(1)), file) for file, name in named.items() if name))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLife:
    """One invocation of a function.

    Attributes:
        began: when it was invoked, in Unix seconds.
        ended: when that was recorded; of one that has no record, when it was last heard of.
        used: what it is billed for.
    """

    began: float
    ended: float
    used: MeteredInvocation


def function_lives(
    coordinator: Iterable[Event], workers: Mapping[int, Sequence[Told]]
) -> Iterator[FunctionLife]:
    """Yields all invocations, in order of their end.

    One whose end nobody recorded, as its coordinator was killed or as it still runs, lived until
    the last that was heard of it before its function was invoked anew.

    Args:
        coordinator: its events.
        workers: what each rank told.
    """
    running: dict[str, Invoked] = {}

    def unfinished(invoked: Invoked, before: float) -> FunctionLife:
        heard = (one.at for one in workers.get(invoked.rank, ()))
        last = max((at for at in heard if invoked.at <= at < before), default=invoked.at)
        used = used_until(invoked, last, "coordinator killed")
        return FunctionLife(began=invoked.at, ended=last, used=used)

    for one in coordinator:
        if isinstance(one, Invoked):
            if (before := running.pop(one.function, None)) is not None:
                yield unfinished(before, one.at)
            running[one.function] = one
        elif isinstance(one, Ended):
            invoked = running.pop(one.used.function, None)
            began = one.at - one.used.init_s - one.used.run_s if invoked is None else invoked.at
            yield FunctionLife(began=began, ended=one.at, used=one.used)
    for function in sorted(running):
        yield unfinished(running[function], math.inf)


def used_until(invoked: Invoked, until: float, outcome: str) -> MeteredInvocation:
    """Returns what a function used if it ended at a time, in Unix seconds."""
    return MeteredInvocation(
        function=invoked.function,
        attempt=invoked.attempt,
        memory_mib=invoked.memory_mib,
        init_s=0.0,
        run_s=max(0.0, until - invoked.at),
        outcome=outcome,
        gpu_share=invoked.gpu_share,
        price_list=invoked.price_list,
        vcpus=invoked.vcpus,
    )


def coordinator_life(number: int, seconds: float, peak_mib: float | None) -> MeteredInvocation:
    """What one life of the coordinator took.

    Args:
        peak_mib: None: of nobody knows how much memory.
    """
    return MeteredInvocation(
        function="coordinator",
        attempt=number,
        memory_mib=None if peak_mib is None else math.ceil(peak_mib),
        init_s=0.0,
        run_s=seconds,
        outcome="returned",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """All records of a run.

    Attributes:
        workers: by rank.
        others: of functions without files of their own.
        cut_lines: last lines that a kill cut short.
    """

    coordinator: tuple[Event, ...] = ()
    workers: Mapping[int, tuple[Told, ...]]
    others: tuple[OthersTraffic, ...] = ()
    cut_lines: int = 0

    @classmethod
    def read(cls, directory: Path) -> Self:
        """From `events/`. Raises RequestError, naming file and line, for what is no record."""
        coordinator, cut = read(directory / COORDINATOR, event_of)
        told = {rank: read(file, told_of) for rank, file in worker_files(directory).items()}
        return cls(
            coordinator=coordinator,
            workers={rank: found for rank, (found, _) in told.items()},
            others=read(directory / OTHERS, others_of)[0],
            cut_lines=cut + sum(was_cut for _, was_cut in told.values()),
        )

    @property
    def heard_at(self) -> float | None:
        """When the last was heard of the run, in Unix seconds."""
        files = (self.coordinator, *self.workers.values())
        return max((one.at for records in files for one in records), default=None)

    @property
    def used(self) -> list[MeteredInvocation]:
        """All invocations, in order of their end.

        One whose end nobody recorded, as its coordinator was killed, is billed until the last that
        was heard of it before its function was invoked anew.
        """
        return [one.used for one in function_lives(self.coordinator, self.workers)]

    @property
    def coordinator_used(self) -> list[MeteredInvocation]:
        """What the coordinator took, life by life, as if it were a function.

        Of one that was killed, until the last that was heard of it, and without its memory.
        """
        lives: list[MeteredInvocation] = []
        began = 0.0
        for one in self.coordinator:
            if isinstance(one, Begun):
                began = one.asked_at
                lives.append(coordinator_life(len(lives), 0.0, None))
            elif lives:
                run_s, peak_mib = max(0.0, one.at - began), None
                if isinstance(one, Over):
                    run_s, peak_mib = one.run_s or run_s, one.peak_mib
                lives[-1] = coordinator_life(len(lives) - 1, run_s, peak_mib)
        return lives

    @property
    def traffic(self) -> dict[tuple[int, int, int], Counter[str]]:
        """What workers moved, as far as they reported it, by rank, generation and attempt."""
        return {
            (rank, one.generation, one.attempt): one.counters
            for rank, records in self.workers.items()
            for one in records
            if isinstance(one, TrafficTold)
        }

    @property
    def moved(self) -> dict[str, StoreTraffic]:
        """The same by function, and that of others."""
        sums: dict[int, Counter[str]] = {rank: Counter() for rank in self.workers}
        for (rank, _, _), counters in self.traffic.items():
            sums[rank] += counters
        moved = {f"worker-{rank}": StoreTraffic(**counters) for rank, counters in sums.items()}
        return moved | {one.function: StoreTraffic(**one.counters) for one in self.others}

    @property
    def stored_bytes(self) -> int:
        """The most that the store held at a checkpoint, just before its log was trimmed."""
        committed = (one for one in self.coordinator if isinstance(one, Committed))
        return max((one.stored_bytes or 0 for one in committed), default=0)
