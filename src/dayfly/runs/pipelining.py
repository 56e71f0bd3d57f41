"""How a run's model is cut into stages, and what passes between them: what its workers are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.batches import MicroBatch, micro_batches
from dayfly.training.stages.forms import BoundaryForm
from dayfly.wire.pipelines.orders import MakeOrder
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, StageRank


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """A cut model.

    Attributes:
        cut: numbers of the layers that begin a stage, but for the first.
        replicas: of each stage.
        micro_batches: in which a replica computes its share of a batch, at most.
        virtual_workers: leaves of a batch, each a micro-batch of one of the replicas; None: each
            replica cuts its share.
        schedule: their order, by name.
        forms: of what passes each boundary.
        chunk_bytes: least that is worth a message, on this run's way to the store, if that is more
            than the channel says.
    """

    cut: tuple[int, ...]
    replicas: int
    micro_batches: int
    schedule: str
    forms: tuple[BoundaryForm, ...]
    chunk_bytes: int = 0
    virtual_workers: int | None = None

    @property
    def layout(self) -> Layout:
        """Who computes what."""
        return Layout(len(self.cut) + 1, self.replicas)

    def passing(self, samples: int, replica: int) -> tuple[MicroBatch, ...]:
        """The micro-batches of a replica, of a batch of so many samples."""
        parts, leaves = self.micro_batches, self.virtual_workers
        return micro_batches(samples, replica, self.replicas, parts, leaves)

    def received(self, stage: int) -> BoundaryForm | None:
        """The form of what a stage gets from the one before it; None for the first."""
        return self.forms[stage - 1] if stage else None

    def sent(self, stage: int) -> BoundaryForm | None:
        """The form of what a stage sends to the one behind it; None for the last."""
        return self.forms[stage] if stage < len(self.forms) else None

    def step(
        self,
        stage_rank: StageRank,
        order: MakeOrder,
        micros: Sequence[MicroBatch],
        chunk_bytes: int,
        *,
        learns: bool = True,
    ) -> PipelineStep:
        """What a rank does with these micro-batches.

        Args:
            learns: whether gradients come back.
        """
        numbers = [micro.number for micro in micros]
        return PipelineStep(
            layout=self.layout,
            stage_rank=stage_rank,
            order=order(stage_rank.stage, self.layout.stages, numbers),
            before=_boundaries(self.received(stage_rank.stage), micros, learns=learns),
            behind=_boundaries(self.sent(stage_rank.stage), micros, learns=learns),
            chunk_bytes=chunk_bytes,
        )


def _boundaries(
    form: BoundaryForm | None, micros: Sequence[MicroBatch], *, learns: bool
) -> dict[int, StageBoundary]:
    if form is None:
        return {}
    return {
        micro.number: StageBoundary(
            activation_bytes=form.nbytes(micro.samples),
            gradient_bytes=form.gradient_nbytes(micro.samples) if learns else 0,
        )
        for micro in micros
    }
