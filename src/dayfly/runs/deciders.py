"""What decides about a run: asked at the boundary after each epoch, while the workers wait.

    worker 0     epoch 3 | record --.                        .-> goes on, or ends here
    worker 1     epoch 3 | wait     |                        |-> goes on, or ends here
    coordinator                     '-> ask -> store -> tell -'

What was decided is stored with its step before any worker hears of it. So whoever dies, workers or
coordinator, before or after: the boundary has one answer, and a resumed run does not ask again.
Without a decider nobody waits. After the last epoch nobody waits either: deciders are asked then
for what is to be kept alone.

A decision to keep the weights of a boundary is carried out by a run checkpoint there:

    worker 0     epoch 3 | wait | checkpoint, beside the steps that follow
    worker 1     epoch 3 | wait | checkpoint, beside the steps that follow
    coordinator          decide            commit | best.safetensors | trim the log

A decision to change the plan ends the generation there, by a run checkpoint, too. The change is
carried out between two generations, and the record says of which step it was.

    worker 0     epoch 3 | wait | checkpoint, ends                  | step 120
    worker 1     epoch 3 | wait | checkpoint, ends                  | step 120
    coordinator          decide             commit | run.json -> starts
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dayfly.callbacks.monitor import Monitor
from dayfly.dataclass_json import Matches, Range, dump, read
from dayfly.json_files import parse
from dayfly.life.faults import Faults
from dayfly.runs.changes import Changes
from dayfly.runs.home import BEST
from dayfly.runs.settings import Settings
from dayfly.wire.stores.base import Store

#: The folder of what was decided, in the run's store.
FOLDER = "decisions"
#: A file of the run's directory that has weights.
Kept = Annotated[
    str,
    Matches(
        r"best\.safetensors|kept/[A-Za-z0-9_][\w.-]{0,99}\.safetensors", "a file of kept weights"
    ),
]
_REMEDY = "remove it: the run asks again then"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a run is when its deciders are asked.

    Attributes:
        step: completed steps.
        history: one record an epoch, as of `Run.history`; the last is of the epoch that ended.
        last: whether it is the run's last epoch.
    """

    step: int
    history: Sequence[Mapping[str, Any]]
    last: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens at a boundary.

    Attributes:
        reason: the run ends there, done; in a word, as `stop_reason` has it. None: it goes on.
        keep: files of the run's directory that get the weights of the boundary.
        changes: of the plan, from the boundary on, if the run goes on; None: there are none.
    """

    reason: str | None = None
    keep: tuple[str, ...] = ()
    changes: Changes | None = None

    @classmethod
    def of_all(cls, several: Sequence[Decision]) -> Decision:
        """Several decisions as one: of reasons, and of values of a setting, the first counts."""
        reasons = [one.reason for one in several if one.reason is not None]
        given: dict[str, Any] = {}
        for one in several:
            given = {**({} if one.changes is None else one.changes.given), **given}
        return cls(
            next(iter(reasons), None),
            tuple(dict.fromkeys(name for one in several for name in one.keep)),
            Changes(**given) if given else None,
        )


class Decider(ABC):
    """One that may decide about a run. It is asked by one thread, at one boundary after another.

    All are asked at each boundary; of several reasons to end, the first counts.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """All that its answers depend on besides the boundary.

        A decision that was stored counts for the decider of this name alone.
        """

    @abstractmethod
    def decide(self, boundary: Boundary) -> Decision | None:
        """Returns what is to happen at a boundary; None: the run goes on."""


@dataclass(frozen=True, slots=True)
class TargetAccuracy(Decider):
    """Ends a run once its validation accuracy is at least `accuracy`."""

    accuracy: float

    @property
    def name(self) -> str:
        return f"target-accuracy {self.accuracy!r}"

    def decide(self, boundary: Boundary) -> Decision | None:
        measured = boundary.history[-1].get("val_accuracy")
        return Decision("target-accuracy") if (measured or 0.0) >= self.accuracy else None


@dataclass(frozen=True, slots=True)
class TargetLoss(Decider):
    """Ends a run once its validation loss is at most `loss`."""

    loss: float

    @property
    def name(self) -> str:
        return f"target-loss {self.loss!r}"

    def decide(self, boundary: Boundary) -> Decision | None:
        measured = boundary.history[-1].get("val_loss")
        reached = measured is not None and measured <= self.loss
        return Decision("target-loss") if reached else None


@dataclass(frozen=True, slots=True)
class KeepBest(Decider):
    """Keeps the weights of the best epoch so far."""

    monitor: Monitor

    @property
    def name(self) -> str:
        return f"keep-best {self.monitor.name} {self.monitor.mode}"

    def decide(self, boundary: Boundary) -> Decision | None:
        best, _ = self.monitor.best(boundary.history)
        return Decision(keep=(BEST,)) if best == boundary.history[-1]["epoch"] else None


def own_deciders(settings: Settings) -> Iterator[Decider]:
    """Those that the settings of a run ask for."""
    if settings.target_accuracy is not None:
        yield TargetAccuracy(settings.target_accuracy)
    if settings.target_loss is not None:
        yield TargetLoss(settings.target_loss)
    if settings.keep is not None:
        yield KeepBest(Monitor.of(settings.monitor, settings.mode))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A stored answer. reason: why the run ends; None: it goes on. Others: see `Decision`."""

    step: Annotated[int, Range(0)]
    deciders: tuple[str, ...]
    reason: str | None
    keep: tuple[Kept, ...] = ()
    changes: Changes | None = None


class Decisions:
    """The deciders of a run, and what they have decided.

    Args:
        store: of the run.
        deciders: asked in order.
        about: digest of what else the history depends on: the job.
        faults: of the coordinator.
    """

    def __init__(
        self, store: Store, deciders: Sequence[Decider], about: str, faults: Faults
    ) -> None:
        self._store = store
        self._deciders = tuple(deciders)
        self._names = tuple(one.name for one in deciders)
        self._digest = hashlib.sha256("\n".join((about, *self._names)).encode()).hexdigest()
        self._faults = faults

    def __bool__(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self._deciders)

    def at(self, boundary: Boundary) -> Decision:
        """Returns what is decided at a boundary: as it was stored, or else asked now, and stored.

        After the last epoch a run ends anyway, without a reason; with more epochs it is another
        question.

        Raises:
            RequestError: the stored decision is damaged.
            StoreError: the decision cannot be stored.
        """
        last = "-last" * boundary.last
        name = f"{FOLDER}/{boundary.step:09d}-{self._digest[:12]}{last}.json"
        self._faults.at(boundary.step, "ask")
        if self._store.stat(name) is None:
            found = [one for decider in self._deciders if (one := decider.decide(boundary))]
            self._faults.at(boundary.step, "decide")
            whole = Decision.of_all(found)
            reason = None if boundary.last else whole.reason
            goes_on = reason is None and not boundary.last
            asked = _Decided(
                step=boundary.step,
                deciders=self._names,
                reason=reason,
                keep=whole.keep,
                changes=whole.changes if goes_on else None,
            )
            # What another coordinator stored meanwhile counts: it is read below.
            self._store.put_new(name, json.dumps(dump(asked)).encode())
        place = f"{name} in {self._store}"
        stored = read(_Decided, parse(self._store.get(name), place, _REMEDY), place, remedy=_REMEDY)
        self._faults.at(boundary.step, "decided")
        return Decision(stored.reason, stored.keep, stored.changes)
