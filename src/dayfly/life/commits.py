"""The commit of a checkpoint, `latest.json`: which objects it consists of, and how to know them.

{"step": 120, "parts": [{"object": "checkpoint/000000120/tree.json", ...}, ...], "whole": "..."}
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

import xxhash

from dayfly.dataclass_json import Matches, dump

#: XXH3 of 128 bits, in hexadecimal.
Digest = Annotated[str, Matches(r"[0-9a-f]{32}", "a digest of 32 hexadecimal digits")]


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """An object of a checkpoint, with its size and digest."""

    object: Annotated[str, Matches(r"checkpoint/\d{9,}/[\w-][\w.-]{0,199}", "a checkpoint's part")]
    size_bytes: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint: the state before step `step`."""

    step: int
    parts: tuple[CheckpointPart, ...]

    @property
    def digest(self) -> str:
        """Of all that it says."""
        return digest_of(json.dumps(dump(self), sort_keys=True).encode())


@dataclass(frozen=True, slots=True)
class Commit(Checkpoint):
    """`latest.json`.

    Args:
        whole: digest of the rest; empty: of an earlier version, which had none.
    """

    whole: Digest = ""

    def check_read(self) -> None:
        """Raises ValueError for a commit that is not what was written."""
        if not self.parts:
            raise ValueError("parts is empty")
        if self.whole not in ("", self.checkpoint.digest):
            raise ValueError("it was changed after it was written, as its digest tells")
        folder = folder_of(self.step)
        for part in self.parts:
            if part.object.rpartition("/")[0] != folder:
                raise ValueError(f"step is {self.step}, but {part.object} is a part of it")

    @property
    def checkpoint(self) -> Checkpoint:
        """What it commits."""
        return Checkpoint(self.step, self.parts)


@dataclass(slots=True)
class Uncommitted:
    """The checkpoints whose parts are arriving. Pure.

        rank 0    part of 4   part of 8
        rank 1                            part of 8   part of 4
                                          ^ 8 is whole: it is committed, and never 4 after it

    Args:
        world_size: number of ranks, each of which writes a part.
        committed_step: of the checkpoint that counts.
    """

    world_size: int
    committed_step: int
    _arrived: dict[int, dict[int, tuple[CheckpointPart, ...]]] = field(default_factory=dict)

    def add(
        self, step: int, rank: int, parts: tuple[CheckpointPart, ...]
    ) -> list[CheckpointPart] | None:
        """Notes a rank's part; returns all ranks' parts, in order, once they are to be committed.

        None: other parts are missing, or a checkpoint at least as late counts.
        """
        if step <= self.committed_step:
            return None
        arrived = self._arrived.setdefault(step, {})
        arrived[rank] = parts
        if len(arrived) < self.world_size:
            return None
        return [part for rank in sorted(arrived) for part in arrived[rank]]

    def committed(self, step: int) -> None:
        """From now on this checkpoint counts; nobody waits for those before it any more."""
        self.committed_step = step
        self._arrived = {later: some for later, some in self._arrived.items() if later > step}

    def may_come(self, step: int, living: Collection[int]) -> bool:
        """Whether a checkpoint can still be committed: all whose parts are missing live."""
        missing = set(range(self.world_size)) - self._arrived.get(step, {}).keys()
        return step > self.committed_step and missing <= set(living)


def folder_of(step: int) -> str:
    """Where the parts of a checkpoint are."""
    return f"checkpoint/{step:09d}"


def digest_of(data: bytes) -> str:
    """Of the bytes of an object."""
    return xxhash.xxh3_128_hexdigest(data)
