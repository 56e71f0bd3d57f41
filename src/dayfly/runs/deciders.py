"""What decides about a run: asked at the boundary after each epoch, while the workers wait.

    worker 0     epoch 3 | record --.                        .-> goes on, or ends here
    worker 1     epoch 3 | wait     |                        |-> goes on, or ends here
    coordinator                     '-> ask -> store -> tell -'

What was decided is stored with its step before any worker hears of it. So whoever dies, workers or
coordinator, before or after: the boundary has one answer, and a resumed run does not ask again.
Without a decider nobody waits. After the last epoch nobody is asked.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dayfly.dataclass_json import Range, dump, read
from dayfly.json_files import parse
from dayfly.life.faults import Faults
from dayfly.wire.stores.base import Store

#: The folder of what was decided, in the run's store.
FOLDER = "decisions"
_REMEDY = "remove it: the run asks again then"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a run is when its deciders are asked.

    Attributes:
        step: completed steps.
        history: one record an epoch, as of `Run.history`; the last is of the epoch that ended.
    """

    step: int
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Decision:
    """The run ends at this boundary, done. reason: in a word, as `stop_reason` has it."""

    reason: str


class Decider(ABC):
    """One that may end a run. It is asked by one thread, at one boundary after another."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A stored answer. reason: why the run ends; None: it goes on."""

    step: Annotated[int, Range(0)]
    deciders: tuple[str, ...]
    reason: str | None


class Decisions:
    """The deciders of a run, and what they have decided.

    Args:
        store: of the run.
        deciders: asked in order; the first that decides counts.
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

    def at(self, boundary: Boundary) -> Decision | None:
        """What is decided at a boundary: as it was stored, or else asked now, and stored.

        Raises RequestError for a stored decision that is damaged, StoreError if it cannot be kept.
        """
        name = f"{FOLDER}/{boundary.step:09d}-{self._digest[:12]}.json"
        self._faults.at(boundary.step, "ask")
        if self._store.stat(name) is None:
            found = next(filter(None, (one.decide(boundary) for one in self._deciders)), None)
            self._faults.at(boundary.step, "decide")
            asked = _Decided(
                step=boundary.step,
                deciders=self._names,
                reason=None if found is None else found.reason,
            )
            # What another coordinator stored meanwhile counts: it is read below.
            self._store.put_new(name, json.dumps(dump(asked)).encode())
        place = f"{name} in {self._store}"
        stored = read(_Decided, parse(self._store.get(name), place, _REMEDY), place, remedy=_REMEDY)
        self._faults.at(boundary.step, "decided")
        return None if stored.reason is None else Decision(stored.reason)
