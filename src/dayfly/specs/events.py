"""Lines of a run's event files: a dataclass for each kind of record, checked when they are read.

    {"at": 1732000000.25, "kind": "step", "step": 7, "loss": 0.5, "computed": true, ...}

Fields that a class does not have are passed over, as are kinds that are not known here: records may
say more than readers want. A field that is added needs a default, as runs of earlier versions stay
readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from dayfly.catalogue.metering import FunctionName, MeteredInvocation
from dayfly.dataclass_json import Range, Real, UnixSeconds, read
from dayfly.wire.outages import COUNTERS

#: Milliseconds since the beginning of what a record tells of.
Ms = Annotated[float, Range(-1e12, 1e12)]
Seconds = Annotated[float, Range(0, 1e10)]
StepNumber = Annotated[int, Range(0, 10**12)]
RequestNumber = Annotated[int, Range(0, 10**6)]
#: By kind: from and to, in order.
Spans = Mapping[str, tuple[tuple[Ms, Ms], ...]]
#: Results of an epoch by name; None: not measured.
Measured = Mapping[str, int | Real | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A record of the Unix time `at`; `kind` is its name in files, or "" for an unknown record."""

    ignores_unknown: ClassVar[bool] = True
    kind: ClassVar[str] = ""

    at: UnixSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(Event):
    """A coordinator began; `asked_at` is when it was asked for, before anything was checked."""

    kind: ClassVar[str] = "begun"

    asked_at: UnixSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Over(Event):
    """A coordinator ended: its seconds until the bill, and its peak memory; None: not measured."""

    kind: ClassVar[str] = "over"

    run_s: Seconds | None = None
    peak_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBegun(Event):
    """A generation of workers began; `changes` says in words what a `request` made of its plan."""

    kind: ClassVar[str] = "generation"

    number: Annotated[int, Range(0)]
    first_step: StepNumber
    workers: Annotated[int, Range(1)]
    request: RequestNumber | None = None
    changes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAnswered(Event):
    """The answer to a request for another plan: what changes at the next boundary, or why not."""

    kind: ClassVar[str] = "change"

    request: RequestNumber
    changes: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoked(Event):
    """The coordinator invoked a function."""

    kind: ClassVar[str] = "invoked"

    function: FunctionName
    attempt: int
    memory_mib: int | None = None
    gpu_share: float | None = None
    price_list: str | None = None
    vcpus: float | None = None

    @property
    def rank(self) -> int:
        """The worker that the function is."""
        return rank_of(self.function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What a function returned."""

    ignores_unknown: ClassVar[bool] = True

    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """A function ended.

    Attributes:
        death: whether it ended without being meant to.
        error: the exception that it raised.
        detail: how it ended otherwise, in words.
        peak_mib: its peak memory; None: not measured.
    """

    kind: ClassVar[str] = "ended"

    used: MeteredInvocation
    death: bool
    error: str | None = None
    detail: str | None = None
    result: Returned | None = None
    peak_mib: float | None = None

    @property
    def rank(self) -> int:
        """The worker that the function was."""
        return rank_of(self.used.function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """A checkpoint counts; the channel held `stored_bytes` just before its log was trimmed."""

    kind: ClassVar[str] = "checkpoint"

    step: StepNumber
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Event):
    """The workers are to stop at a checkpoint, as a person asked for it or the coordinator ends."""

    kind: ClassVar[str] = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Event):
    """A decider ends the run after `step` steps, at the end of an epoch, for a `reason`."""

    kind: ClassVar[str] = "decided"

    step: StepNumber
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack(Event):
    """All workers went back to the checkpoint before `to_step`."""

    kind: ClassVar[str] = "rolled back"

    from_step: StepNumber
    to_step: StepNumber
    redone_steps: StepNumber
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedAgain(Event):
    """All workers of a script start again; `died`: because one of them died."""

    kind: ClassVar[str] = "started again"

    cause: str
    died: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Event):
    """A worker's record of something that lasted from `began` (None: unknown) until `at`."""

    generation: int = 0
    attempt: int = 0
    began: UnixSeconds | None = None

    @property
    def began_s(self) -> float:
        """When what it tells of began, in Unix seconds."""
        return self.at if self.began is None else self.began

    @property
    def parts(self) -> Spans:
        """What the worker did meanwhile."""
        return {}


class _Counted:
    """Has a field for each of `COUNTERS`."""

    __slots__ = ()

    @property
    def counters(self) -> Counter[str]:
        """By name; those of an attempt count from its start."""
        return Counter({name: getattr(self, name) for name in COUNTERS})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficTold(_Counted, Told):
    """What an attempt moved so far."""

    kind: ClassVar[str] = "traffic"

    bytes_up: int
    bytes_down: int
    requests: int
    puts: int = 0
    gets: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersTraffic(_Counted, Event):
    """What a function moved that has no event file of its own, in a simulation."""

    kind: ClassVar[str] = "traffic"

    function: FunctionName
    bytes_up: int
    bytes_down: int
    requests: int
    puts: int
    gets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTold(Told):
    """A step.

    Attributes:
        computed: False if its sum was taken from the message log.
        loss: None: not a number.
        passes: of a stage: kind (f, b), micro-batch, begin and end of each pass.
        logged: values that the job's step logs, by name.
    """

    kind: ClassVar[str] = "step"

    step: StepNumber
    loss: Real | None
    computed: bool
    step_s: Seconds
    spans: Spans
    passes: tuple[tuple[str, int, Ms, Ms], ...] | None = None
    logged: Measured | None = None

    @property
    def parts(self) -> Spans:
        return self.spans


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTold(Told):
    """A round of local SGD: `steps` steps from `step` on, with the `losses` of whole batches, and
    what the job's step logs of them; empty: it logs nothing."""

    kind: ClassVar[str] = "round"

    step: StepNumber
    steps: Annotated[int, Range(1, 10**9)]
    losses: tuple[Real | None, ...]
    computed: bool
    round_s: Seconds
    spans: Spans
    logged: tuple[Measured, ...] = ()

    @property
    def parts(self) -> Spans:
        return self.spans

    def check_read(self) -> None:
        """Raises ValueError unless there is a loss for each step."""
        if len(self.losses) != self.steps:
            raise ValueError(f"losses has {len(self.losses)} entries for {self.steps} steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTold(Told):
    """An epoch: results by name, CPU seconds of the attempt so far, and its GPU's utilisation since
    the epoch before, 0 to 1; None: not known."""

    kind: ClassVar[str] = "epoch"

    record: Measured
    spans: Spans
    cpu_s: Seconds | None = None
    gpu: Annotated[float, Range(0, 1)] | None = None

    @property
    def epoch(self) -> int:
        """Its number."""
        return int(self.record["epoch"] or 0)

    @property
    def parts(self) -> Spans:
        return self.spans

    def check_read(self) -> None:
        """Raises ValueError for a record without its number."""
        check_epoch(self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTold(Told):
    """A worker wrote its part of a checkpoint."""

    kind: ClassVar[str] = "part"

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite(Told):
    """A loss or weights became NaN or infinite; `text` says which and where."""

    kind: ClassVar[str] = "not finite"

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCpu(Told):
    """A worker has another CPU or torch than the run began with; `text` says in which way."""

    kind: ClassVar[str] = "other cpu"

    text: str


#: Who tells the events that are no worker's: the name of its event file, without its suffix.
COORDINATOR = "coordinator"
_COORDINATOR: Mapping[str, type[Event]] = {
    one.kind: one
    for one in (
        *(Begun, Over, GenerationBegun, Invoked, Ended, Committed),
        *(ChangeAnswered, Stopping, Decided, RolledBack, StartedAgain),
    )
}
_WORKER: Mapping[str, type[Told]] = {
    one.kind: one
    for one in (TrafficTold, StepTold, RoundTold, EpochTold, PartTold, NotFinite, OtherCpu)
}


def event_of(tree: Mapping[str, Any], origin: str, remedy: str | None = None) -> Event:
    """A coordinator's record. Raises RequestError, naming the origin, for what is none."""
    return read(_COORDINATOR.get(str(tree.get("kind")), Event), tree, origin, remedy=remedy)


def told_of(tree: Mapping[str, Any], origin: str, remedy: str | None = None) -> Told:
    """A worker's record. Raises RequestError, naming the origin, for what is none."""
    return read(_WORKER.get(str(tree.get("kind")), Told), tree, origin, remedy=remedy)


def others_of(tree: Mapping[str, Any], origin: str, remedy: str | None = None) -> OthersTraffic:
    """A record of `others.jsonl`. Raises RequestError, naming the origin, for what is none."""
    return read(OthersTraffic, tree, origin, remedy=remedy)


def event_from(source: str, tree: Mapping[str, Any], origin: str) -> Event:
    """Returns a record of the event file named `source`, as `event_of` or `told_of` does."""
    return (event_of if source == COORDINATOR else told_of)(tree, origin)


def rank_of(function: str) -> int:
    """The worker that a function is: functions are named `worker-<rank>`, `successor-<rank>`."""
    return int(function.rpartition("-")[2])


def epochs_from_1(records: Sequence[Measured]) -> list[Measured]:
    """One record an epoch, in order, counted from 1: earlier versions wrote them from 0."""
    first = records[0]["epoch"] if records else 1
    return [{**one, "epoch": (one["epoch"] or 0) + (first == 0)} for one in records]


def check_epoch(record: Measured) -> None:
    """Raise ValueError for results of an epoch without its number."""
    number = record.get("epoch")
    if number is None or number < 0 or number != int(number):
        raise ValueError("epoch is no whole number from 0")
