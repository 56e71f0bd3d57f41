"""Reads the event files of a run: what its functions used and moved.

events/coordinator.jsonl    functions invoked and ended, checkpoints
events/worker-0.jsonl       the records of rank 0, in order of arrival
...
events/others.jsonl         of a simulation: what functions moved that have no file of their own
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dayfly.catalogue.metering import Moved, Used
from dayfly.wire.channels.abilities import COUNTERS

Json = Mapping[str, Any]
#: In `events/`, of simulations of more workers than a page can show.
OTHERS = "others.jsonl"
#: Read of an event file's end to find its last record; more if there is none.
_TAIL_BYTES = 64 * 1024


def read(file: Path) -> tuple[tuple[Json, ...], int]:
    """The records of an event file, and how many lines are none: a kill may cut the last short."""
    if not file.exists():
        return (), 0
    return parsed(file.read_bytes().split(b"\n"))


def parsed(lines: Iterable[bytes]) -> tuple[tuple[Json, ...], int]:
    """The records of lines, and how many lines are none."""
    found, cut = [], 0
    for line in lines:
        if not line:
            continue
        try:
            record = json.loads(line.decode(errors="replace"))
        except json.JSONDecodeError:
            record = None
        if isinstance(record, dict) and "kind" in record and "at" in record:
            found.append(record)
        else:
            cut += 1
    return tuple(found), cut


def records(file: Path) -> tuple[Json, ...]:
    """The records of an event file, as far as they can be read."""
    return read(file)[0]


def worker_files(directory: Path) -> list[Path]:
    """The workers' event files; the stem is the function's name. directory: `events/`."""
    return sorted(directory.glob("worker-*.jsonl"))


def last_at(directory: Path) -> float | None:
    """When the last was heard of a run, in Unix seconds. directory: `events/`."""
    files = (directory / "coordinator.jsonl", *worker_files(directory))
    return max((at for file in files if (at := _last_at(file)) is not None), default=None)


def _last_at(file: Path) -> float | None:
    """Time of the last whole record of an event file, which is read from its end."""
    try:
        with file.open("rb") as raw:
            size = raw.seek(0, 2)
            block = _TAIL_BYTES
            while True:
                start = max(0, size - block)
                raw.seek(start)
                lines = raw.read(size - start).split(b"\n")
                # The first is cut short by the block, unless it is the file's.
                found, _ = parsed(lines if start == 0 else lines[1:])
                if found or start == 0:
                    return max((record["at"] for record in found), default=None)
                block *= 8
    except FileNotFoundError:
        return None


def read_used(directory: Path) -> list[Used]:
    """All invocations of a run, in order of their end. directory: `events/`.

    One whose end nobody recorded, as its coordinator was killed, is billed until the last that was
    heard of it before its function was invoked anew.
    """
    heard: dict[str, list[float]] = defaultdict(list)
    for file in worker_files(directory):
        heard[file.stem] = [record["at"] for record in records(file)]
    used: list[Used] = []
    running: dict[str, Json] = {}

    def end(function: str, before: float) -> None:
        invoked = running.pop(function)
        began = invoked["at"]
        last = max((at for at in heard[function] if began <= at < before), default=began)
        used.append(
            Used(
                function=function,
                attempt=invoked["attempt"],
                memory_mib=invoked.get("memory_mib"),
                init_s=0.0,
                run_s=last - began,
                outcome="coordinator killed",
                gpu_share=invoked.get("gpu_share"),
            )
        )

    for record in records(directory / "coordinator.jsonl"):
        if record["kind"] == "invoked":
            function = record["function"]
            if function in running:
                end(function, record["at"])
            running[function] = record
        elif record["kind"] == "ended":
            used.append(Used(**record["used"]))
            running.pop(record["used"]["function"], None)
    for function in sorted(running):
        end(function, float("inf"))
    return used


def traffic(record: Json) -> Counter[str]:
    """The counters of a record of traffic, which count from the start of an attempt."""
    return Counter({name: record.get(name, 0) for name in COUNTERS})


def read_moved(directory: Path) -> dict[str, Moved]:
    """What each function moved, as far as it was reported. directory: `events/`."""
    moved = {}
    for file in worker_files(directory):
        lives: dict[tuple[int, int], Counter[str]] = {}
        for record in records(file):
            if record["kind"] == "traffic":
                lives[record["generation"], record["attempt"]] = traffic(record)
        moved[file.stem] = Moved(**sum(lives.values(), Counter[str]()))
    for record in records(directory / OTHERS):
        moved[record["function"]] = Moved(**{name: record[name] for name in COUNTERS})
    return moved


def read_stored_bytes(directory: Path) -> int:
    """The most that the store held at a checkpoint, just before its log was trimmed."""
    found = records(directory / "coordinator.jsonl")
    return max((record.get("stored_bytes") or 0 for record in found), default=0)


def epochs_from_1(records: Sequence[Json]) -> list[Json]:
    """One record an epoch, in order, counted from 1: earlier versions wrote them from 0."""
    first = records[0]["epoch"] if records else 1
    return [{**record, "epoch": record["epoch"] + (first == 0)} for record in records]
