"""What a supervisor is to do, as data: what a generation's decisions consist of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dayfly.life.commits import CheckpointPart
from dayfly.life.platforms.base import Ended


@dataclass(frozen=True, slots=True)
class Start:
    """A rank's next attempt, which reads the message log from `trimmed_step` on."""

    rank: int
    attempt: int
    trimmed_step: int


@dataclass(frozen=True, slots=True)
class Tell:
    """A function ended."""

    ended: Ended
    death: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """The checkpoint before a step: all ranks' parts, in order."""

    step: int
    parts: tuple[CheckpointPart, ...]


@dataclass(frozen=True, slots=True)
class Trim:
    """The message log before the checkpoint of a step is read by nobody."""

    step: int


@dataclass(frozen=True, slots=True)
class Decide:
    """What follows at the boundary after `step` steps, and tell the workers, which may wait for it.

    Args:
        record: of the epoch that ended there.
    """

    step: int
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskToStop:
    """The workers, at a checkpoint.

    Args:
        changes: the run goes on from there by another plan; else it ends.
    """

    changes: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A worker's attempt, for heartbeats.

    Args:
        asked: False: for none any more.
    """

    rank: int
    attempt: int
    asked: bool


@dataclass(frozen=True, slots=True)
class EndSilent:
    """Fence a worker's attempt that has fallen silent, and end it."""

    rank: int
    attempt: int


@dataclass(frozen=True, slots=True)
class EndAll:
    """Kill what runs; then the generation is to be told that all is `gone`."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A point at which tests kill the supervisor."""

    step: int
    point: str


Action = Start | Tell | Commit | Trim | Decide | AskToStop | Ask | EndSilent | EndAll | Pass
Actions = Iterator[Action]
