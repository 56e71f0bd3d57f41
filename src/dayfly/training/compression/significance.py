"""Significance filter: an update travels once it changes its parameter noticeably.

MLLess (Gimenez Sarroca and Sanchez-Artigas, 2022, arXiv 2206.05786), after Gaia (2017). Each worker
accumulates its updates of each parameter x; in step t = 1, 2, ... one travels if

    |accumulated| / |x|  >  V / sqrt(t)

and is kept otherwise, until it is. The bound falls, so that less and less is held back. Of a
parameter that is 0, such as a feature's that was never seen, everything travels.

What workers sum here is gradients. A worker's update is taken to be its learning rate times its
share of the batch's gradient, which it is for SGD without momentum; so V means the same with any
learning rate, whatever the optimizer makes of the sum. It is meant for sparse models, such as
logistic regression and linear SVMs over LIBSVM files: most of a step's gradients are 0 there, and
those take no bytes at any V; see `wire.sparse`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dayfly.training.compression.exchange import Selected
from dayfly.training.flat import FlatBuffer
from dayfly.training.state import Tensors

_STEPS = "compress.steps"


class Significance(Selected):
    """Buckets of which significant updates travel.

    Args:
        threshold: V, 0 or more; of 0 all that is not 0 travels, exactly.
        optimizer: of the parameters; its learning rates are read in each step.
    """

    def __init__(
        self, flat: FlatBuffer, threshold: float, optimizer: torch.optim.Optimizer
    ) -> None:
        super().__init__(flat)
        self._threshold = threshold
        self._optimizer = optimizer
        self._steps = torch.zeros(1, dtype=torch.int64)

    def begin(self) -> None:
        self._steps += 1

    def select(self, number: int, values_B: torch.Tensor) -> torch.Tensor:
        bound = self._threshold / math.sqrt(max(1, int(self._steps)))
        rates = {
            id(parameter): float(group["lr"])
            for group in self._optimizer.param_groups
            for parameter in group["params"]
        }
        sent_B = torch.zeros_like(values_B)
        for member in self.flat.members(number):
            parameter, gradient = self.flat.parameters[member], self.flat.gradients[member]
            start = int(gradient.storage_offset()) - self.flat.buckets[number].start
            part = slice(start, start + len(gradient))
            rate = rates.get(id(parameter), 0.0)
            sent_B[part] = significant(values_B[part], parameter, rate, bound)
        return sent_B

    def state(self) -> tuple[Tensors, Tensors]:
        return {_STEPS: self._steps}, super().state()[1]

    def load_state(self, shared: Tensors, own: Sequence[Tensors]) -> None:
        super().load_state(shared, own)
        if _STEPS in shared:
            self._steps.copy_(shared[_STEPS])


def significant(
    values_P: torch.Tensor, parameter: torch.Tensor, rate: float, bound: float
) -> torch.Tensor:
    """Returns accumulated gradients of a parameter where they are significant, and 0 elsewhere.

    Args:
        values_P: accumulated gradients, on the CPU; an infinity or a NaN is significant.
        parameter: of P elements, of any form and device.
        rate: its learning rate; at 0 no step changes the parameter, and all travels that is not 0.
        bound: of the relative change, from which on it is not significant.
    """
    sizes = parameter.detach().reshape(-1).to(values_P.device, values_P.dtype).abs()
    if not rate or not bound:
        return values_P.clone()
    small = (rate * values_P).abs() <= bound * sizes
    return torch.where(small, 0, values_P)
