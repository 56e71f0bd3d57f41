"""What a run left in its directory of events, for benches that look behind its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def steps(directory: Path, rank: int) -> list[Json]:
    """The records of a worker's steps, in order."""
    return [one for one in events(directory, f"worker-{rank}") if one["kind"] == "step"]


def ended(directory: Path) -> list[Json]:
    """The records of functions that ended, by their numbers."""
    found = [one for one in events(directory, "coordinator") if one["kind"] == "ended"]
    return sorted(found, key=lambda one: int(one["used"]["function"].removeprefix("worker-")))


def events(directory: Path, name: str) -> list[Json]:
    """All records of a file."""
    lines = (directory / "events" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
