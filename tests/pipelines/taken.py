"""What training steps give: of the uncut model by hand, and of a cut one; to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

#: What sums in float64 may differ by.
NEAR = 1e-9

#: By the whole model's names.
Named = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Taken:
    """One step: its batch's mean loss, the gradients that the optimizer took (those that are
    there), and the parameters and buffers after it."""

    loss: float
    gradients: Named
    tensors: Named

    @classmethod
    def of(cls, loss: float, model: nn.Module) -> Taken:
        """Copies of what a model holds after a step."""
        named = dict(model.named_parameters())
        gradients = {n: p.grad.clone() for n, p in named.items() if p.grad is not None}
        tensors = {n: t.detach().clone() for n, t in (*named.items(), *model.named_buffers())}
        return cls(loss, gradients, tensors)


def check_equal(ranks: Iterable[Sequence[Taken]], whole: Sequence[Taken], replicas: int) -> float:
    """Every rank's steps are those of the whole model, and each part of it is on `replicas` ranks.

    Returns the largest difference.
    """
    largest = 0.0
    holders: dict[str, int] = {}
    learned: set[str] = set()
    for rank in ranks:
        for mine, right in zip(rank, whole, strict=True):
            largest = max(largest, abs(mine.loss - right.loss))
            learned |= mine.gradients.keys()
            for name, gradient in mine.gradients.items():
                largest = max(largest, distance(gradient, right.gradients[name]))
            for name, tensor in mine.tensors.items():
                largest = max(largest, distance(tensor, right.tensors[name]))
        for name in rank[0].tensors:
            holders[name] = holders.get(name, 0) + 1
    assert largest <= NEAR, f"{largest} apart"
    assert holders == dict.fromkeys(whole[0].tensors, replicas)
    assert learned == whole[0].gradients.keys()
    return largest


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two tensors' elements; the tensors are of one kind."""
    assert one.dtype is other.dtype
    assert one.shape == other.shape
    return float((one - other).abs().max()) if one.numel() else 0.0
