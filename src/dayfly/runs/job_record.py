"""`run.json` of a job's run: enough, with the checkpoint, to continue it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from dayfly.errors import RequestError
from dayfly.runs.log_budget import RoundBytes
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.planned import Planned
from dayfly.runs.record import JOB, RunRecord
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import Shipped
from dayfly.train.arrays import Part
from dayfly.train.weighting import SAMPLES, Weighting


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(RunRecord):
    """A job's. Generations are of other lives, and of rollbacks, of which there were so many.

    round_bytes: of the messages of a round. pipelining: of a model that is cut. planned: of a run
    by a plan, which is beside it. epochs: to which the run goes, if not to the job's. weighting:
    how losses of parts of a batch are combined.
    """

    kind: ClassVar[str] = JOB

    settings: Settings
    shipped: Shipped
    parts: tuple[Part, ...]
    samples: int
    round_bytes: RoundBytes
    pipelining: Pipelining | None = None
    rollbacks: int = 0
    planned: Planned | None = None
    epochs: int | None = None
    weighting: Weighting = SAMPLES

    @classmethod
    def parsed(cls, tree: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "settings": Settings.load(tree["settings"]),
            "shipped": Shipped(**tree["shipped"]),
            "parts": tuple(Part.load(part) for part in tree["parts"]),
            "round_bytes": RoundBytes(**tree["round_bytes"]),
            "pipelining": Pipelining.load(line) if (line := tree["pipelining"]) else None,
            "weighting": Weighting(**tree.get("weighting", {})),
            "planned": Planned.load(of) if (of := tree.get("planned")) else None,
        }

    def dump(self) -> dict[str, Any]:
        tree = asdict(replace(self, pipelining=None))
        if self.pipelining is not None:
            tree["pipelining"] = self.pipelining.dump()
        return tree

    def rolled_back(self) -> Self:
        """The record of the next generation of the same life."""
        return replace(self, generation=self.generation + 1, rollbacks=self.rollbacks + 1)

    def changed_settings(self, changes: Mapping[str, Any]) -> Settings:
        """The settings of the next life. Raises RequestError for what the checkpoint depends on."""
        for name in ("sync", "k", "compress"):
            if name in changes and changes[name] != (now := getattr(self.settings, name)):
                raise RequestError(
                    f"--{name} {changes[name]}: the run in the directory goes on as it began, with "
                    f"{now}: leave it out"
                )
        return self.settings.changed(**changes)
