"""One worker's copy of the training: model, optimizer, scheduler, and the step between them.

Synchronous data parallel: every replica computes the gradient of its slice, the flat buffers are
summed over all workers, and every replica applies the same sum; so replicas are equal, bit for
bit, after every step, the moving statistics of BatchNorm included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.train.flat import FlatBuffer
from dayfly.train.randomness import DROPOUT, WEIGHTS, seed_generators
from dayfly.train.slices import Piece
from dayfly.train.state import Tensors, decode, encode, load_model_tensors, model_tensors


@dataclass(slots=True)
class Wishes:
    """What workers want done after the step; each is granted if any worker wants it."""

    checkpoint: bool = False
    stop: bool = False


class Replica:
    """A job's model and optimizer in one worker; `flat.data` is what the all-reduce sums."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.model = build_model(job)
        self.optimizer = build_optimizer(job, self.model)
        self.scheduler = job.scheduler(self.optimizer) if job.scheduler is not None else None
        self.flat = FlatBuffer(self.model, tail=3)

    def compute(
        self, pieces: Iterable[Piece], batch_samples: int, step: int, rank: int, wishes: Wishes
    ) -> None:
        """Forward and backward of this worker's slice of a batch of `batch_samples`."""
        self.model.train()
        self.flat.begin()
        total = samples = 0.0
        for piece in pieces:
            seed_generators(DROPOUT, self._job.seed, step, rank, piece.number)
            loss, _ = forward(self._job, self.model, piece.batch)
            weight = piece.samples / batch_samples
            (loss * weight).backward()  # type: ignore[no-untyped-call]
            total += loss.item() * weight
            samples += piece.samples
        self.flat.end(samples / batch_samples)
        self.flat.tail.copy_(torch.tensor([total, wishes.checkpoint, wishes.stop]))

    def apply(self) -> tuple[float, Wishes]:
        """Take the summed step; returns the batch's mean loss and what is to be done after it."""
        self.flat.spread()
        if self._job.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.flat.parameters, self._job.clip_norm)
        self.optimizer.step()
        if self.scheduler is not None and self._job.scheduler_every == "step":
            self.scheduler.step()
        loss, checkpoint, stop = self.flat.tail.tolist()
        return loss, Wishes(checkpoint > 0, stop > 0)

    def end_epoch(self, val_loss: float | None) -> None:
        """Step a scheduler that goes by epochs."""
        if self.scheduler is None or self._job.scheduler_every != "epoch":
            return
        if isinstance(self.scheduler, ReduceLROnPlateau):
            if val_loss is not None:
                self.scheduler.step(val_loss)
        else:
            self.scheduler.step()

    def state(self) -> tuple[Any, Tensors]:
        """The state as JSON and tensors (not copied): equal on every replica."""
        tensors = {f"model.{name}": tensor for name, tensor in model_tensors(self.model).items()}
        tree = {"optimizer": encode(self.optimizer.state_dict(), "optimizer", tensors)}
        if self.scheduler is not None:
            tree["scheduler"] = encode(self.scheduler.state_dict(), "scheduler", tensors)
        return tree, tensors

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        """Become the replica whose `state` this is."""
        load_model_tensors(self.model, model_part(tensors))
        self.optimizer.load_state_dict(decode(tree["optimizer"], tensors))
        if self.scheduler is not None:
            self.scheduler.load_state_dict(decode(tree["scheduler"], tensors))


def model_part(tensors: Tensors) -> Tensors:
    """A state's tensors that are the model's, by the model's names."""
    prefix = "model."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def build_model(job: Job) -> nn.Module:
    """The job's model with its first weights, which the seed decides."""
    seed_generators(WEIGHTS, job.seed)
    model = cast("Any", job.model)()
    if not isinstance(model, nn.Module):
        raise RequestError(f"the job's model function returned {type(model).__name__}, no module")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RequestError("the job's model has no parameters to train")
    return model


def build_optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    """The job's optimizer over the model's trainable parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = cast("Any", job.optimizer)(parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise RequestError(
            f"the job's optimizer function returned {type(optimizer).__name__}, no torch optimizer"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise RequestError(
            "LBFGS evaluates the loss several times a step, which workers cannot share: "
            "use a first-order optimizer such as SGD or AdamW"
        )
    return optimizer


def forward(job: Job, model: nn.Module, batch: Any) -> tuple[torch.Tensor, Any]:
    """The loss of a batch, and the outputs (None if a custom step gives none)."""
    if job.step is not None:
        result = job.step(model, batch)
        return result if isinstance(result, tuple) else (result, None)
    x, y = batch
    outputs = model(x)
    return cast("Any", job.loss)(outputs, y), outputs
