"""What a function that runs a script is told: the payload of its invocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from dayfly import dataclass_json
from dayfly.life.faults import Fault
from dayfly.runs.scripts.environment import Member
from dayfly.wire.shaping import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTask:
    """One rank of one generation.

    restarts: how often all workers started anew before; max_restarts: how often they may after
    deaths. token: by which its messages are known to be the run's.

    store, channel: URLs. script: the file, absolute; module: its name if it was asked for
    as a module, as in `-m package.module`. args: the script's own. cwd: where the user typed the
    command. digest: SHA-256 of the script's file, in hex. files: a directory for what the script
    keeps, which later generations find again. rates: of its way to the channel; None: not limited.
    wait_timeout_s: longest wait for a message of another worker. made_with, allow_other_cpu: as of
    `runs.task.Task`.
    """

    run: str
    token: str = field(repr=False)
    generation: int
    rank: int
    world_size: int
    restarts: int
    max_restarts: int
    store: str
    channel: str
    script: str
    module: str | None
    args: tuple[str, ...]
    cwd: str
    digest: str
    files: str
    wait_timeout_s: float
    faults: tuple[Fault, ...] = ()
    rates: Rates | None = None
    made_with: Mapping[str, str] = field(default_factory=dict)
    allow_other_cpu: bool = False

    @property
    def member(self) -> Member:
        """Who the script's process is, as the script finds it."""
        return Member(
            run=self.run,
            rank=self.rank,
            world_size=self.world_size,
            restarts=self.restarts,
            max_restarts=self.max_restarts,
            files=self.files,
        )

    def dump(self) -> Any:
        """For JSON."""
        return dataclass_json.dump(self)

    @classmethod
    def load(cls, tree: Mapping[str, Any]) -> Self:
        """From what `dump` gave, by way of JSON. Raises RequestError for anything else."""
        return dataclass_json.read(cls, tree, "the task")
