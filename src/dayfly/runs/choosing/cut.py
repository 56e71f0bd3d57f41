"""The cut of a plan over the model's layers, for drawings of it."""

from __future__ import annotations

from dataclasses import dataclass

from dayfly.planning.stages import stage_memory_mib, stage_range, stage_size
from dayfly.runs.choosing.ranking import Option
from dayfly.runs.planning import configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLayer:
    """name: the layer's. compute_s: of a micro-batch, forward and backward, in its stage's
    functions. output_bytes: of a sample."""

    name: str
    compute_s: float
    parameter_bytes: float
    output_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStage:
    """layers: numbers of its layers. peak_mib: of one of its functions."""

    layers: range
    replicas: int
    memory_mib: int | None
    peak_mib: float


def cut_of(option: Option) -> tuple[tuple[CutLayer, ...], tuple[CutStage, ...]]:
    """All layers, and the stages that they make; one if the model is not cut."""
    one = option.candidate
    profile, c = one.place.profile, configuration(one.settings, one.wanted)
    members = c.replicas if c.cut else c.workers
    samples = max(1, -(-c.batch_size // (members * c.micro_batches)))
    layers: list[CutLayer] = []
    stages = []
    for stage in range(c.stages):
        mine, size = stage_range(profile, c, stage), stage_size(profile, c, stage)
        stages.append(
            CutStage(
                layers=mine,
                replicas=members,
                memory_mib=stage_memory_mib(c, stage),
                peak_mib=option.prediction.memory_mib[stage],
            )
        )
        layers += [
            CutLayer(
                name=profile.layers[at].name,
                compute_s=size.forward[at](samples) + size.backward[at](samples),
                parameter_bytes=float(profile.layers[at].parameters),
                output_bytes=profile.layers[at].output,
            )
            for at in mine
        ]
    return tuple(layers), tuple(stages)
