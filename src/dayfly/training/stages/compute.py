"""What one stage of a cut model computes: the forward and backward passes of micro-batches.

    received (bytes) -> values -> layer 4 -> layer 5 -> ... -> packed (bytes)      forward
    packed (bytes)   <- gradients of what came in  <-  gradients of what went out  backward

The first stage begins with samples, the last one ends with the loss. The weights' gradients add up
in a flat buffer (see `training.stages.gradients`), in the order of the micro-batches, so their bits
depend neither on the schedule nor on the cut: dropout is seeded for each layer by its number in the
whole model. (FuncPipe section 3.2; GPipe section 2.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dayfly.job import Job
from dayfly.training.devices import device_of, to_device
from dayfly.training.flat import FlatBuffer
from dayfly.training.forward import SAMPLES, Passed, Weighting, Weights
from dayfly.training.precision import autocast
from dayfly.training.precisions import FP32
from dayfly.training.randomness import DROPOUT, EVALUATE, seed_generators
from dayfly.training.stages.forms import BoundaryForm
from dayfly.training.stages.layers import StageModel


class Norms:
    """Norms of a stage's gradients.

    Args:
        trained: their names.

    Attributes:
        summed: what all ranks sum, (2 P,) float64, P parameters of the whole model.
    """

    def __init__(self, model: nn.Module, trained: Sequence[str]) -> None:
        numbers = {name: number for number, name in enumerate(trained)}
        named = dict(model.named_parameters())
        self._own = [(numbers[n], p) for n, p in named.items() if n in numbers]
        self.summed = torch.zeros(2 * len(trained), dtype=torch.float64)

    def measure(self, *, speaks: bool) -> None:
        """Fill `summed` with the own part.

        Args:
            speaks: for its stage, whose replicas have the same.
        """
        self.summed.zero_()
        norms, there = self.summed.chunk(2)
        with_gradient = [(number, p.grad) for number, p in self._own if p.grad is not None]
        if speaks and with_gradient:
            found = torch._foreach_norm([gradient for _, gradient in with_gradient], 2.0)
            for (number, _), norm in zip(with_gradient, found, strict=True):
                norms[number] = norm.double()
                there[number] = 1.0

    @property
    def finite(self) -> bool:
        """Whether all gradients are, of all stages, which are summed up."""
        return bool(self.summed.isfinite().all())

    def clip(self, most: float) -> None:
        """Clip the own gradients by the norm of all, which are summed up."""
        norms, there = self.summed.chunk(2)
        parameters = [parameter for _, parameter in self._own]
        dtype = reduce(torch.promote_types, (p.dtype for p in parameters), torch.float32)
        whole = torch.linalg.vector_norm(norms[there > 0].to(dtype), 2.0)
        if parameters:
            nn.utils.clip_grads_with_norm_(parameters, most, whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """A micro-batch.

    Args:
        number: within the replica's share of the batch; within the whole batch where stages have
            different numbers of replicas.
        weight: its samples' share of the global batch.
        batch: x for the first stage, y for the last; None elsewhere.
    """

    number: int
    samples: int
    weight: float
    x: Any = None
    y: Any = None


@dataclass(slots=True)
class _UnderWay:
    """Between its passes: what came in, as leaves of the graph, and what came out."""

    leaves: list[torch.Tensor]
    out: Any


class Stage:
    """The passes of one step at a time.

    Args:
        receives, sends: the forms of what comes in and of what goes out; None at the ends of the
            model.
        flat: takes the gradients, begun and ended by the caller; None: one of its own.
        precision: see `training.precision`.

    Attributes:
        scale: by which the loss is multiplied before the backward pass; the last stage's.
        loss: of the step so far, or since `part`, weighted; the last stage's.
    """

    def __init__(
        self,
        job: Job,
        built: StageModel,
        receives: BoundaryForm | None,
        sends: BoundaryForm | None,
        flat: FlatBuffer | None = None,
        weighting: Weighting = SAMPLES,
        precision: str = FP32,
    ) -> None:
        self._job = job
        self._built = built
        self._precision = precision
        self.scale = 1.0
        self.model = built.model
        self._receives = receives
        self._sends = sends
        self._device = device_of(built.model)
        self.flat = FlatBuffer(built.model, tail=0) if flat is None else flat
        self._weighting = weighting
        self.loss = 0.0
        self._weights = Weights(weighting)
        self._under_way: dict[int, _UnderWay] = {}

    @property
    def learns(self) -> bool:
        """Whether a backward pass is of any use here: to the stage's weights, or those before."""
        before = self._receives is not None and self._receives.gradient_nbytes(1) > 0
        return bool(self.flat.parameters) or before

    def begin(self) -> None:
        """Begin a step in training mode."""
        self.model.train()
        self._under_way.clear()
        self.part()

    def part(self) -> list[float]:
        """Returns the loss of the micro-batches since the step's begin or the last such call, and
        what it is divided by (see `training.forward`)."""
        found = [self.loss, *self._weights.tail]
        self.loss, self._weights = 0.0, Weights(self._weighting)
        return found

    def forward(
        self, micro: Micro, step: int, drawn: tuple[int, int], received: torch.Tensor | None
    ) -> torch.Tensor | None:
        """The forward pass of a micro-batch; bytes in, bytes out.

        Returns what the next stage gets; None at the last.

        Args:
            drawn: by which numbers, beside step and layer, dropout is drawn.
            received: of a stage but the first.
        """
        leaves, values = self._enter(micro, received)
        with autocast(self._precision, self._device):
            for number, layer in self._built.layers:
                seed_generators(DROPOUT, self._job.seed, step, *drawn, number)
                values = layer(values)
        if self._sends is None:
            passed = self.passed(values, micro.y)
            weight = self._weights.part(micro.weight, passed.weight, micro.samples)
            if weight:
                values = passed.loss * (weight * self.scale)
                self.loss += values.item() / self.scale
            else:  # all its targets are ignored: torch's loss is NaN, and the gradient none
                values = sum((leaf * 0).sum() for leaf in tree_leaves(values) if leaf.requires_grad)
            self._under_way[micro.number] = _UnderWay(leaves, values)
            return None
        self._under_way[micro.number] = _UnderWay(leaves, values)
        return self._sends.pack(values)

    def backward(self, micro: Micro, received: torch.Tensor | None) -> torch.Tensor | None:
        """The backward pass of a micro-batch whose forward pass is done.

        Returns the gradients of what was received; None at the first stage, or if nothing before
        needs them.

        Args:
            received: the gradients of what was sent, of a stage but the last.
        """
        here = self._under_way.pop(micro.number)
        if self._sends is None:
            here.out.backward()
        elif received is not None:
            gradients = self.here(self._sends.unpack_gradients(received, micro.samples))
            torch.autograd.backward(self._sends.graded(here.out), gradients)
        if self._receives is None or not self._receives.gradient_nbytes(micro.samples):
            return None
        return self._receives.pack_gradients([leaf.grad for leaf in here.leaves], micro.samples)

    @torch.no_grad()
    def evaluate(self, micro: Micro, first: int, received: torch.Tensor | None) -> Any:
        """The pass of a validation's micro-batch, in evaluation mode.

        Returns what the next stage gets, as bytes; at the last stage, the outputs.

        Args:
            first: number of its first sample.
        """
        self.model.eval()
        _, values = self._enter(micro, received)
        with autocast(self._precision, self._device):
            for number, layer in self._built.layers:
                # A layer may draw numbers here, too; a worker that starts again draws the same.
                seed_generators(EVALUATE, self._job.seed, first, number)
                values = layer(values)
        return values if self._sends is None else self._sends.pack(values)

    def _enter(self, micro: Micro, received: torch.Tensor | None) -> tuple[list[torch.Tensor], Any]:
        if self._receives is None:
            return [], self.here(micro.x)
        assert received is not None, f"micro-batch {micro.number} came without its activations"
        return self._receives.enter(self.here(self._receives.unpack(received, micro.samples)))

    def passed(self, outputs: Any, targets: Any) -> Passed:
        """Computes the job's loss of the outputs; only the last stage does."""
        here = self.here(targets)
        with autocast(self._precision, self._device):
            loss, weight = self._weighting.watched(
                lambda: cast("Any", self._job.loss)(outputs, here)
            )
        loss = loss if self._precision == FP32 else loss.float()
        return Passed(loss, outputs, here, weight)

    def here(self, values: Any) -> Any:
        """Tensors on the stage's device."""
        return to_device(values, self._device)
