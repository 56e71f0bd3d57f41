"""How a run's model is cut into stages, and what passes between them: what its workers are told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dayfly.train.order import share
from dayfly.train.stages.forms import Form
from dayfly.wire.pipelines.layout import Layout, Place
from dayfly.wire.pipelines.orders import MakeOrder
from dayfly.wire.pipelines.step import Boundary, PipelineStep
from dayfly.wire.shaping import Rates


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a replica: its number, and its samples, one at least."""

    number: int
    samples: int


def micro_batches(samples: int, replica: int, replicas: int, parts: int) -> tuple[MicroBatch, ...]:
    """A replica's share of a batch of so many samples, in `parts`; without those that are empty.

    The same as the pieces of `train.slices.Slices`.
    """
    whole = share(samples, replica, replicas)
    sizes = (len(share(len(whole), number, parts)) for number in range(parts))
    return tuple(MicroBatch(number, size) for number, size in enumerate(sizes) if size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """A cut model.

    cut: numbers of the layers that begin a stage, but for the first. replicas: of each stage.
    micro_batches: in which a replica computes its share of a batch. schedule: their order, by name.
    forms: of what passes each boundary. chunk_bytes: least that is worth a message, on this run's
    way to the store, if that is more than the channel says.
    """

    cut: tuple[int, ...]
    replicas: int
    micro_batches: int
    schedule: str
    forms: tuple[Form, ...]
    chunk_bytes: int = 0

    @property
    def layout(self) -> Layout:
        """Who computes what."""
        return Layout(len(self.cut) + 1, self.replicas)

    def received(self, stage: int) -> Form | None:
        """The form of what a stage gets from the one before it; None for the first."""
        return self.forms[stage - 1] if stage else None

    def sent(self, stage: int) -> Form | None:
        """The form of what a stage sends to the one behind it; None for the last."""
        return self.forms[stage] if stage < len(self.forms) else None

    def step(
        self,
        place: Place,
        order: MakeOrder,
        micros: Sequence[MicroBatch],
        chunk_bytes: int,
        *,
        learns: bool = True,
    ) -> PipelineStep:
        """What a rank does with these micro-batches. learns: whether gradients come back."""
        numbers = [micro.number for micro in micros]
        return PipelineStep(
            layout=self.layout,
            place=place,
            order=order(place.stage, self.layout.stages, numbers),
            before=_boundaries(self.received(place.stage), micros, learns=learns),
            behind=_boundaries(self.sent(place.stage), micros, learns=learns),
            chunk_bytes=chunk_bytes,
        )

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cut": list(self.cut),
            "replicas": self.replicas,
            "micro_batches": self.micro_batches,
            "schedule": self.schedule,
            "forms": [form.dump() for form in self.forms],
            "chunk_bytes": self.chunk_bytes,
        }

    @classmethod
    def load(cls, tree: Mapping[str, Any]) -> Self:
        """From what `dump` gave, by way of JSON."""
        made = {
            "cut": tuple(tree["cut"]),
            "forms": tuple(Form.load(form) for form in tree["forms"]),
        }
        return cls(**{**tree, **made})


def worthwhile_bytes(ways: Iterable[Rates | None], in_flight: int) -> int:
    """Bytes of a message that keep all of these ways busy with so many requests under way.

    A way of w bytes a second carries w times its latency until the first request is through: so
    much must be under way at least, and twice that lets requests follow each other.
    """
    carried = [
        max(way.up_bytes_per_s or 0.0, way.down_bytes_per_s or 0.0) * way.latency_s
        for way in ways
        if way is not None
    ]
    return math.ceil(2 * max(carried, default=0.0) / in_flight)


def _boundaries(
    form: Form | None, micros: Sequence[MicroBatch], *, learns: bool
) -> dict[int, Boundary]:
    if form is None:
        return {}
    return {
        micro.number: Boundary(
            activation_bytes=form.nbytes(micro.samples),
            gradient_bytes=form.gradient_nbytes(micro.samples) if learns else 0,
        )
        for micro in micros
    }
