"""`run.json`: what is being run and how far it came, as all kinds of runs write it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from dayfly.dataclass_json import Name, UnixSeconds, dump, read
from dayfly.errors import RequestError
from dayfly.json_files import parse, read_bytes, versioned
from dayfly.life.commits import digest_of
from dayfly.runs.directory import RECORD, no_run
from dayfly.runs.functions import FunctionSettings
from dayfly.runs.result import HANDING_OVER, Result, Status
from dayfly.wire.stores.base import Store

FORMAT = 3
#: What to do about a damaged `run.json`.
REMEDY = "put back the file from a copy of the run's directory, or begin the run anew"
#: Where its digest stands, and of what kind the run is.
_WHOLE, _KIND = "whole", "kind"
#: Kinds of runs.
JOB, SCRIPT = "job", "script"
#: What no function ran: a directory as of a run, in which only the record says so.
SIMULATION = "simulation"
#: The command that runs a kind.
_COMMANDS = {JOB: "dayfly train", SCRIPT: "dayfly run"}

AnyRecord = TypeVar("AnyRecord", bound="RunRecord")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Enough to go on with a run, of any kind.

    The types of fields say what `run.json` may hold; see `dataclass_json`. A field that is added
    needs a default, so that files of earlier versions stay readable. Names that become paths have
    types of their own, such as `Name`.

    Attributes:
        generation: how often all workers started anew before.
        began_at: when this life of the run was asked for, in Unix seconds.
        wall_s: of the lives before.
        made_with: what bits depend on, see `runs.made_with`.
        store: the run's URL, if it is kept in a store, and its directory is a copy.
        next_request: number of the first request that a coordinator that goes on looks at.
    """

    kind: ClassVar[str]

    run_id: Name
    settings: FunctionSettings
    generation: int = 0
    status: Status = "running"
    error: str | None = None
    began_at: UnixSeconds = field(default_factory=time.time)
    wall_s: float = 0.0
    result: Result | None = None
    made_with: Mapping[str, str] | None = None
    store: str | None = None
    next_request: int | None = None

    def save(self, store: Store) -> None:
        """Write it, whole or not at all."""
        store.put(RECORD, _text(self.kind, dump(self)))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read it back. Raises RequestError if the directory holds no run of this kind."""
        tree = read_record(directory)
        kind = str(tree.pop(_KIND, JOB))
        if kind == SIMULATION:
            raise RequestError(
                f"{str(directory)!r} holds a simulated run, which cannot be resumed: "
                "simulate its plan again by dayfly simulate, or run it by dayfly train --plan"
            )
        if kind != cls.kind and kind in _COMMANDS:
            raise RequestError(
                f"{str(directory)!r} holds the run of a {kind}: go on with it by "
                f"{_COMMANDS[kind]} --resume {directory}"
            )
        if kind != cls.kind:
            raise RequestError(f"{directory / RECORD}: kind is {kind!r}, which is none: {REMEDY}")
        return read_as(cls, tree, str(directory / RECORD))

    def ended(self, result: Result) -> Self:
        """The record of the run when this life is over."""
        return replace(
            self,
            status=result.status,
            error=result.error,
            wall_s=result.total_s,
            result=result,
        )

    def allows_other_cpu(self, changes: Mapping[str, Any]) -> bool:
        """Whether the next life may be on another CPU type.

        Args:
            changes: as of `next_life`.
        """
        asked: bool | None = changes.get("allow_other_cpu")
        return self.settings.allow_other_cpu if asked is None else asked

    def next_life(
        self,
        heard_at: float | None,
        made_with: Mapping[str, str] | None = None,
        asked_at: float | None = None,
        **changes: Any,
    ) -> Self:
        """The record of the life that goes on with this run.

        Args:
            heard_at: when the last was heard of this one, for one whose coordinator was killed.
            made_with: of that life; None: as before.
            asked_at: when that was asked for, in Unix seconds; None: now.
            changes: of the settings; None: as before.

        Raises:
            RequestError: for those that cannot be.
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
            began_at=time.time() if asked_at is None else asked_at,
            wall_s=self.wall_s + killed_s,
            # Whoever asked a run that came to an end was told so.
            next_request=self.next_request if self.status in ("running", HANDING_OVER) else None,
        )

    def changed_settings(self, changes: Mapping[str, Any]) -> FunctionSettings:
        """The settings of the next life. Raises RequestError for what has to stay as it is."""
        return replace(self.settings, **changes)


def read_as(kind: type[AnyRecord], tree: Mapping[str, Any], place: str) -> AnyRecord:
    """Returns the record of what `record_of` gave, without its kind.

    Args:
        kind: of record.
        tree: from JSON.
        place: of the `run.json`, for errors.

    Raises:
        RequestError: names the field that is damaged; or the file, if what it says was changed
            after it was written. Earlier versions wrote no digest.
    """
    content = {name: value for name, value in tree.items() if name != _WHOLE}
    record = read(kind, content, place, remedy=REMEDY)
    if tree.get(_WHOLE, digest := _digest(content)) != digest:
        raise RequestError(
            f"{place} was changed after it was written, as its digest tells: {REMEDY}"
        )
    return record


def kept_in(data: bytes, url: str, place: str) -> bytes:
    """Returns a `run.json` as of a run that is kept at this URL, such as after a bucket was copied.

    Args:
        data: the file.
        url: of the store in which it was found.
        place: names it in errors.

    Raises:
        RequestError: it is no record.
    """
    tree = record_of(data, place)
    content = {name: value for name, value in tree.items() if name not in (_KIND, _WHOLE)}
    if content.get("store") == url or tree.get(_WHOLE) != _digest(content):
        return data  # a damaged one is found when it is loaded
    content["store"] = url
    return _text(tree[_KIND], content)


def _text(kind: str, content: Mapping[str, Any]) -> bytes:
    whole = {"format": FORMAT, _KIND: kind, **content, _WHOLE: _digest(content)}
    return json.dumps(whole, indent=1, allow_nan=False).encode()


def _digest(content: Mapping[str, Any]) -> str:
    """Returns the digest of a record's content, which is as JSON has it."""
    return digest_of(json.dumps(content, sort_keys=True).encode())


def read_record(directory: Path) -> dict[str, Any]:
    """Returns what `RunRecord.save` wrote.

    Raises:
        RequestError: the directory holds no run, or the record is damaged.
    """
    file = directory / RECORD
    if not file.exists():
        raise no_run(directory)
    return record_of(read_bytes(file), str(file))


def record_of(data: bytes, place: str) -> dict[str, Any]:
    """What `RunRecord.save` wrote, from its bytes. Raises RequestError, naming the place."""
    tree = parse(data, place, REMEDY)
    rest: dict[str, Any] = versioned(
        tree, "format", FORMAT, place, remedy="use the version of dayfly that wrote it"
    )
    return rest
