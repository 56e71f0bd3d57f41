"""`run.json` of a job's run: enough, with the checkpoint, to continue it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dayfly.dataclass_json import Count
from dayfly.errors import RequestError
from dayfly.runs.log_budget import RoundBytes
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.record_kinds import JobRunRecord
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import Shipped
from dayfly.specs.generations import Change
from dayfly.training.arrays import ArraySplit
from dayfly.training.forward import SAMPLES, Weighting


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(JobRunRecord):
    """A job's, whole.

    Attributes:
        pipelining: of a cut model.
        epochs: to which it goes, if not to the job's.
        weighting: how losses of parts of a batch, and what the step logs, are combined.
        change: the last one that was carried out.
        batches: steps from which on batches have another size, as the number of workers changed,
            each with that size in samples; of a job with `batch_per_worker`.
        scaled_at: completed steps at the boundary where a callback changed the plan last.
    """

    ignores_unknown: ClassVar[bool] = False

    samples: int
    round_bytes: RoundBytes
    shipped: Shipped
    parts: tuple[ArraySplit, ...]
    pipelining: Pipelining | None = None
    epochs: Count | None = None
    weighting: Weighting = SAMPLES
    change: Change | None = None
    batches: tuple[tuple[int, int], ...] = ()
    scaled_at: Count | None = None

    def rolled_back(self) -> Self:
        """The record of the next generation of the same life."""
        return replace(self, generation=self.generation + 1, rollbacks=self.rollbacks + 1)

    def renewed(self) -> Self:
        """The record of the next generation of the same life, by the same plan."""
        return replace(self, generation=self.generation + 1, changes=self.changes + 1)

    def changed_to(self, other: Self, change: Change) -> Self:
        """Another plan's record, as that of the next generation of the same life.

        Its request is answered with that: no coordinator after this one looks for it.
        """
        return replace(
            other,
            generation=self.generation + 1,
            rollbacks=self.rollbacks,
            changes=self.changes + 1,
            change=change,
            next_request=other.next_request if change.request is None else change.request + 1,
        )

    def changed_settings(self, changes: Mapping[str, Any]) -> Settings:
        """The settings of the next life. Raises RequestError for what the checkpoint depends on."""
        fixed = ["compress", "virtual_workers"]
        if self.settings.virtual_workers is not None:
            fixed.append("micro_batches")  # in which a leaf is computed
        for name in fixed:
            if name in changes and changes[name] != (now := getattr(self.settings, name)):
                raise RequestError(
                    f"--{name.replace('_', '-')} {changes[name]}: the run in the directory goes on "
                    f"as it began, with {now}: leave it out"
                )
        return self.settings.changed(**changes)
