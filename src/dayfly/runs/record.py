"""`run.json`: what is being run and how far it came, as all kinds of runs write it."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from dayfly.errors import RequestError
from dayfly.runs.directory import RECORD, no_run
from dayfly.runs.functions import FunctionSettings
from dayfly.runs.result import Result
from dayfly.wire.store import FileStore

FORMAT = 3
#: Kinds of runs.
JOB, SCRIPT = "job", "script"
#: What no function ran: a directory as of a run, in which only the record says so.
SIMULATION = "simulation"
#: The command that runs a kind.
_COMMANDS = {JOB: "dayfly train", SCRIPT: "dayfly run"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(ABC):
    """Enough to go on with a run, of any kind.

    generation: how often all workers started anew before. began_at: of this life of the run, in
    Unix seconds. wall_s: of the lives before. made_with: what bits depend on, see
    `runs.made_with`.
    """

    kind: ClassVar[str]

    run_id: str
    settings: FunctionSettings
    generation: int = 0
    status: str = "running"
    error: str | None = None
    began_at: float = field(default_factory=time.time)
    wall_s: float = 0.0
    result: Mapping[str, Any] | None = None
    made_with: Mapping[str, str] | None = None

    def save(self, store: FileStore) -> None:
        """Write it, whole or not at all."""
        whole = {"format": FORMAT, "kind": self.kind, **self.dump()}
        store.put(RECORD, json.dumps(whole, indent=1).encode())

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read it back. Raises RequestError if the directory holds no run of this kind."""
        tree = read_record(directory)
        kind = tree.pop("kind", JOB)
        if kind == SIMULATION:
            raise RequestError(
                f"{str(directory)!r} holds a simulated run, which there is no going on with: "
                "simulate its plan again by dayfly simulate, or run it by dayfly train --plan"
            )
        if kind != cls.kind and kind in _COMMANDS:
            raise RequestError(
                f"{str(directory)!r} holds the run of a {kind}: go on with it by "
                f"{_COMMANDS[kind]} --resume {directory}"
            )
        try:
            return cls(**{**tree, **cls.parsed(tree)})
        except (KeyError, TypeError) as error:
            raise _another_version(directory) from error

    @classmethod
    @abstractmethod
    def parsed(cls, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Those fields that JSON has in another form. Raises KeyError or TypeError for others'."""

    def ended(self, result: Result) -> Self:
        """The record of the run when this life is over."""
        return replace(
            self,
            status=result.status,
            error=result.error,
            wall_s=result.wall_s,
            result=asdict(result),
        )

    def allows_other_cpu(self, changes: Mapping[str, Any]) -> bool:
        """Whether the next life may be on another CPU type. changes: as of `next_life`."""
        asked: bool | None = changes.get("allow_other_cpu")
        return self.settings.allow_other_cpu if asked is None else asked

    def next_life(
        self, heard_at: float | None, made_with: Mapping[str, str] | None = None, **changes: Any
    ) -> Self:
        """The record of the life that goes on with this run.

        heard_at: when the last was heard of this one, for one whose coordinator was killed.
        made_with: of that life; None: as before. changes: of the settings; None: as before. Raises
        RequestError for those that cannot be.
        """
        known = {name: value for name, value in changes.items() if value is not None}
        killed_s = 0.0
        if self.status == "running" and heard_at is not None:
            killed_s = max(0.0, heard_at - self.began_at)
        return replace(
            self,
            generation=self.generation + 1,
            settings=self.changed_settings(known),
            made_with=self.made_with if made_with is None else made_with,
            status="running",
            error=None,
            began_at=time.time(),
            wall_s=self.wall_s + killed_s,
        )

    def changed_settings(self, changes: Mapping[str, Any]) -> FunctionSettings:
        """The settings of the next life. Raises RequestError for what has to stay as it is."""
        return replace(self.settings, **changes)


def read_record(directory: Path) -> dict[str, Any]:
    """What `RunRecord.save` wrote. Raises RequestError if the directory holds no run."""
    file = directory / RECORD
    try:
        tree: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise no_run(directory) from None
    except (OSError, json.JSONDecodeError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error
    if tree.pop("format", None) != FORMAT:
        raise _another_version(directory)
    return tree


def recorded_settings(directory: Path) -> FunctionSettings:
    """What a run of any kind says of its functions. Raises RequestError as `read_record` does."""
    settings = read_record(directory).get("settings") or {}
    names = FunctionSettings.__dataclass_fields__
    return FunctionSettings.load({name: settings[name] for name in names if name in settings})


def _another_version(directory: Path) -> RequestError:
    """What to raise for a run that this version cannot read."""
    return RequestError(f"{directory / RECORD} was written by another version of dayfly")
