"""How a run's model is cut into stages, and what passes between them: what its workers are told."""

from __future__ import annotations

from dataclasses import dataclass

from dayfly.training.stages.forms import BoundaryForm
from dayfly.wire.pipelines.flow import Flow, Passing
from dayfly.wire.pipelines.orders import MakeOrder, in_waves
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, StageRank


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """A cut model.

    Attributes:
        cut: numbers of the layers that begin a stage, but for the first.
        replicas: of each stage, or one number for all.
        micro_batches: in which a replica computes its share of a batch, at most; where stages have
            different numbers of replicas, one of the stage with the most.
        virtual_workers: leaves of a batch, each a micro-batch of one of the replicas; None: each
            replica cuts its share.
        schedule: their order, by name.
        forms: of what passes each boundary.
        chunk_bytes: least that is worth a message, on this run's way to the store, if that is more
            than the channel says.
    """

    cut: tuple[int, ...]
    replicas: int | tuple[int, ...]
    micro_batches: int
    schedule: str
    forms: tuple[BoundaryForm, ...]
    chunk_bytes: int = 0
    virtual_workers: int | None = None

    @property
    def layout(self) -> Layout:
        """Who computes what."""
        return Layout(len(self.cut) + 1, self.replicas)

    @property
    def flow(self) -> Flow:
        """How a batch is shared out."""
        return Flow(self.layout, self.micro_batches, self.virtual_workers)

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
        passing: Passing,
        chunk_bytes: int,
        *,
        learns: bool = True,
    ) -> PipelineStep:
        """What a rank does with these micro-batches.

        Args:
            learns: whether gradients come back.
        """
        stage = stage_rank.stage
        return PipelineStep(
            layout=self.layout,
            stage_rank=stage_rank,
            order=in_waves(order, stage, self.layout.stages, passing.waves),
            before=_boundaries(self.received(stage), passing, passing.before, learns=learns),
            behind=_boundaries(self.sent(stage), passing, passing.behind, learns=learns),
            chunk_bytes=chunk_bytes,
        )


def _boundaries(
    form: BoundaryForm | None, passing: Passing, replicas: tuple[int, ...], *, learns: bool
) -> dict[int, StageBoundary]:
    if form is None:
        return {}
    return {
        micro.number: StageBoundary(
            activation_bytes=form.nbytes(micro.samples),
            gradient_bytes=form.gradient_nbytes(micro.samples) if learns else 0,
            replica=replica,
        )
        for micro, replica in zip(
            passing.micros, replicas or (None,) * len(passing.micros), strict=True
        )
    }
