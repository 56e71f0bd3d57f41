"""`run.json` of every kind of run, for those who only read what a run says of itself: no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dayfly.catalogue.metering import FunctionUse
from dayfly.dataclass_json import Real
from dayfly.errors import RequestError
from dayfly.runs.directory import RECORD
from dayfly.runs.log_budget import RoundBytes
from dayfly.runs.plans import JobSpec
from dayfly.runs.record import JOB, REMEDY, SIMULATION, RunRecord, read_as, read_record
from dayfly.runs.run_plan import Planned
from dayfly.runs.scripts.record import ScriptRecord
from dayfly.runs.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunRecord(RunRecord):
    """A job's, without what only workers need: see `job_record.Record`.

    Args:
        samples: that it trains on.
        round_bytes: of the messages of a round.
        rollbacks: generations that began as all workers went back.
        changes: generations that began with another plan; the others began with a life.
        planned: of a run by a plan, which is beside it.
        profiling: what measured the job for this run; empty: its profile was at hand; None: it did
            not choose its plan itself.
    """

    kind: ClassVar[str] = JOB
    ignores_unknown: ClassVar[bool] = True

    settings: Settings
    samples: int | None = None
    round_bytes: RoundBytes | None = None
    rollbacks: int = 0
    changes: int = 0
    planned: Planned | None = None
    profiling: tuple[FunctionUse, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowest:
    """The worker that computed longest, and how long, beside the median."""

    rank: int
    computed_s: float
    median_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRecord(RunRecord):
    """A simulation's: no function ran.

    Attributes:
        rollbacks, deaths, hand_overs: how many.
        scenario: as it was asked for; what may be asked for by now does not count.
        store: of the catalogue, whose prices the bill has.
        shown: the ranks whose events are there; None: all.
        worst: None if nobody computed anything.
    """

    kind: ClassVar[str] = SIMULATION

    settings: Settings
    samples: int
    job: JobSpec
    scenario: Mapping[str, bool | int | Real | tuple[tuple[Real, Real], ...] | None]
    scenario_words: str
    rollbacks: int = 0
    changes: ClassVar[int] = 0
    deaths: int = 0
    hand_overs: int = 0
    store: str | None = None
    shown: tuple[int, ...] | None = None
    worst: Slowest | None = None


_KINDS: Mapping[str, type[RunRecord]] = {
    one.kind: one for one in (JobRunRecord, ScriptRecord, SimulationRecord)
}


def read_any(directory: Path) -> RunRecord:
    """Returns the record of the run in a directory, of any kind.

    Raises RequestError if the directory holds no run, or its `run.json` is damaged.
    """
    return as_any(read_record(directory), str(directory / RECORD))


def as_any(tree: Mapping[str, Any], place: str) -> RunRecord:
    """Returns the record of a run of any kind, from JSON.

    Args:
        tree: as of `record_of`.
        place: of the `run.json`, for errors.

    Raises:
        RequestError: it is damaged.
    """
    content = dict(tree)
    kind = _KINDS.get(str(content.pop("kind", JOB)))
    if kind is None:
        raise RequestError(f"{place}: kind is none of {', '.join(_KINDS)}: {REMEDY}")
    return read_as(kind, content, place)
