"""What the first batch of a loop shows, before a step is taken with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from dayfly.job import Job
from dayfly.runs.log_budget import RoundBytes
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.scripts.batches import few_of, samples_of
from dayfly.runs.settings import Settings
from dayfly.runs.staging import step_bytes
from dayfly.training.combining import weighting_of
from dayfly.training.forward import Weighting
from dayfly.training.probe import try_validation
from dayfly.training.randomness import EVALUATE, seeded
from dayfly.training.stages.layers import StageModel, keep_stage, layers_of, stages, tensors_of
from dayfly.training.stages.probe import as_it_was, check_stages
from dayfly.wire.pipelines.step import StageRank

#: Samples by which a loss and a cut are tried.
_TRIED = 4


@dataclass(frozen=True, slots=True)
class Shown:
    """What a loop's first batch showed: all processes of a run go by the same.

    Attributes:
        weighting: how losses of parts of a batch are combined.
        samples: of the batch.
        row_bytes: of a sample's outputs and targets, as metrics need them; 0 without metrics.
    """

    weighting: Weighting
    samples: int
    row_bytes: int

    @classmethod
    def by(cls, job: Job, model: nn.Module, batch: Any, precision: str) -> Shown:
        """Tries a few samples.

        Args:
            job: with the script's loss and metrics.
            model: all of it; stays as it was.
            batch: the first.
            precision: of forward passes.

        Raises:
            RequestError: the loss or a metric cannot be.
        """
        few = few_of(batch, _TRIED)
        with as_it_was(model), seeded(EVALUATE, job.seed):
            weighting = weighting_of(job, model, few)
            rows = 0
            if job.metrics:
                tried = default_collate(few)
                rows = try_validation(job, model, tried, len(few), weighting, precision)
        return cls(weighting, samples_of(batch), rows)


def whole_bytes(model: nn.Module, workers: int) -> RoundBytes:
    """Bytes of a step of a model that is not cut."""
    trained = [p for p in model.parameters() if p.requires_grad]
    nbytes = sum(p.numel() * max(4, p.itemsize) for p in (*trained, *model.buffers()))
    return RoundBytes.of_sums(nbytes, workers)


def cut_model(
    job: Job, settings: Settings, model: nn.Module, batch: Any, shown: Shown, stage_rank: StageRank
) -> tuple[RoundBytes, Pipelining, StageModel]:
    """Cuts a model: what a step's messages take, how it is cut, and this rank's stage of it.

    Raises:
        RequestError: it cannot be cut so.
    """
    few = few_of(batch, _TRIED)
    with as_it_was(model), seeded(EVALUATE, job.seed):
        forms = check_stages(job, model, settings.cut, few, settings.precision, alone=False)
    line = Pipelining(
        cut=settings.cut,
        replicas=settings.members,
        micro_batches=job.accumulate,
        schedule=settings.schedule,
        forms=forms,
    )
    layers = layers_of(model)
    flat_bytes = [
        sum(t.numel() * 4 for number in numbers for _, t in tensors_of(layers[number]))
        for numbers in stages(settings.cut, len(layers))
    ]
    round_bytes = step_bytes(line, max(shown.samples, samples_of(batch)), flat_bytes)
    return round_bytes, line, keep_stage(model, settings.cut, stage_rank.stage)


def prune(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Leave of an optimizer the parameters of a stage."""
    own = {id(parameter) for parameter in model.parameters()}
    for group in optimizer.param_groups:
        kept = [number for number, p in enumerate(group["params"]) if id(p) in own]
        for name in ("params", "param_names"):
            if name in group:
                group[name] = [group[name][number] for number in kept]
    for parameter in [p for p in optimizer.state if id(p) not in own]:
        del optimizer.state[parameter]
