"""What a run left in its directory, or has written so far: files and bill."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import Bill, bill, with_vcpus
from dayfly.dataclass_json import Real, read
from dayfly.json_files import parse, read_bytes
from dayfly.runs.events import Events, Json
from dayfly.runs.function_resources import vcpus_sold
from dayfly.runs.functions import catalogue, price_list
from dayfly.runs.record import RunRecord
from dayfly.runs.record_kinds import JobRunRecord, SimulationRecord, read_any
from dayfly.runs.scripts.record import ScriptRecord
from dayfly.specs.events import Measured, check_epoch

T = TypeVar("T")
#: What to do about damage.
_REMEDY = "put back a copy of the file, or take it away and report without it"
#: No history is larger: one of 50 million steps.
_LARGEST_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`history.json`: what was measured by epoch, and the loss of each step (None: none)."""

    epochs: tuple[Measured, ...] = ()
    step_loss: tuple[Real | None, ...] = ()
    redone_steps: int | None = None
    rollbacks: int = 0

    def check_read(self) -> None:
        """Raises ValueError for an epoch without its number."""
        for epoch in self.epochs:
            check_epoch(epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FunctionRow:
    """A function's part of a bill, as far as a page computes with it."""

    ignores_unknown: ClassVar[bool] = True

    function: str
    cost_usd: float
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _InvocationRow(_FunctionRow):
    billed_ms: float
    gb_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bill:
    """`bill.json`, as far as a page computes with it."""

    ignores_unknown: ClassVar[bool] = True

    cost_usd: float
    price_list: str
    by_kind: Mapping[str, float] | None = None
    functions: tuple[_FunctionRow, ...] = ()
    invocations: tuple[_InvocationRow, ...] = ()
    overridden: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


#: What a page shows of a bill as it is.
_Cell = str | bool | Real | None
_Rows = tuple[Mapping[str, _Cell], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A bill, all of it."""

    bill: Mapping[str, _Cell | Mapping[str, Real] | _Rows | tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """A run's files, as parsed.

    Attributes:
        record: `run.json`.
        running: whether a coordinator runs it right now.
        history, bill: None until the run has ended once; a bill is shown as it is, so it stays
            JSON.
    """

    directory: Path
    record: RunRecord
    running: bool
    history: History | None
    bill: Json | None
    events: Events

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Raises RequestError if the directory holds no run, or one that cannot be read."""
        record = read_any(directory)
        return cls(
            directory=directory,
            record=record,
            running=record.status == "running" and _is_locked(directory / "lock"),
            history=read_history(directory),
            bill=read_bill(directory),
            events=Events.read(directory / "events"),
        )

    @property
    def status(self) -> str:
        """`run.json`'s, but "interrupted" for a run whose coordinator died without a word."""
        status = self.record.status
        return "interrupted" if status == "running" and not self.running else status

    @property
    def of_script(self) -> bool:
        """Whether a script was run: it has lives of all workers, and no steps that are known."""
        return isinstance(self.record, ScriptRecord)


def read_history(directory: Path) -> History | None:
    """A run's `history.json`; None if there is none. Raises RequestError for a damaged one."""
    tree = _tree(directory / "history.json")
    return None if tree is None else _checked(History, tree, directory / "history.json")


def read_bill(directory: Path) -> Json | None:
    """A run's `bill.json`, as it is; None without one. Raises RequestError for a damaged one."""
    tree = _tree(directory / "bill.json")
    if tree is not None:
        _checked(_Bill, tree, directory / "bill.json")
        _checked(_Shown, {"bill": tree}, directory / "bill.json")
    return tree


def _tree(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    return parse(read_bytes(file, _LARGEST_BYTES), str(file), _REMEDY)


def _checked(kind: type[T], tree: Json, file: Path) -> T:
    return read(kind, tree, str(file), remedy=_REMEDY)


def _is_locked(file: Path) -> bool:
    """Whether a process runs the run: it holds this lock until its end, however that comes."""
    try:
        with file.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def rebill(
    directory: Path,
    prices: str | None = None,
    store: str | None = None,
    own: Path | None = None,
    events: Events | None = None,
) -> Bill:
    """Bill a run anew, from the events in its directory, however it ended.

    Args:
        prices: name of a platform; None: the run's own lists.
        store: whose prices the store's part has; None: it costs nothing, but in a simulation of a
            store that was named.
        own: a catalogue of the user's; None: the run's, if it had one.
        events: of the directory, if they were read already.

    Raises:
        RequestError: if the directory holds no run, or the catalogue lacks what is asked for.
    """
    record = read_any(directory)
    known = Catalogue(own.expanduser()) if own is not None else catalogue(record.settings)
    events = events or Events.read(directory / "events")
    if store is None and isinstance(record, SimulationRecord):
        store = record.store
    return bill(
        with_vcpus(events.used, vcpus_sold(record.settings)),
        known.platform(prices or price_list(record.settings)),
        known.store(store) if store is not None else None,
        events.moved,
        events.stored_bytes,
        events.coordinator_used,
        lists=known.platform if prices is None else None,
        profiling=record.profiling if isinstance(record, JobRunRecord) else None,
    )
