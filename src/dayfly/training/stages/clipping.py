"""The norm of a cut model's gradient: each stage has those of its parameters, in the whole's order.

    norms   | 0.3 | 1.2 |  0  |  0  |  0  |    of stage 0; the others' are summed in
    there   |  1  |  1  |  0  |  0  |  0  |    whether a parameter has a gradient at all

The whole norm is that of the norms, as `torch.nn.utils.clip_grad_norm_` computes it, in the same
order: so the cut does not change its bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import nn


class Norms:
    """Norms of a stage's gradients. summed: what all ranks sum, (2 P,) float64, P parameters of the
    whole model. trained: their names."""

    def __init__(self, model: nn.Module, trained: Sequence[str]) -> None:
        numbers = {name: number for number, name in enumerate(trained)}
        named = dict(model.named_parameters())
        self._own = [(numbers[n], p) for n, p in named.items() if n in numbers]
        self.summed = torch.zeros(2 * len(trained), dtype=torch.float64)

    def measure(self, *, speaks: bool) -> None:
        """Fill `summed` with the own part. speaks: for its stage, whose replicas have the same."""
        self.summed.zero_()
        norms, there = self.summed.chunk(2)
        with_gradient = [(number, p.grad) for number, p in self._own if p.grad is not None]
        if speaks and with_gradient:
            found = torch._foreach_norm([gradient for _, gradient in with_gradient], 2.0)
            for (number, _), norm in zip(with_gradient, found, strict=True):
                norms[number] = norm.double()
                there[number] = 1.0

    def clip(self, most: float) -> None:
        """Clip the own gradients by the norm of all, which are summed up."""
        norms, there = self.summed.chunk(2)
        parameters = [parameter for _, parameter in self._own]
        dtype = reduce(torch.promote_types, (p.dtype for p in parameters), torch.float32)
        whole = torch.linalg.vector_norm(norms[there > 0].to(dtype), 2.0)
        if parameters:
            nn.utils.clip_grads_with_norm_(parameters, most, whole)
