"""How large a model's layers are: parameters, what they hand on, what backward passes need.

Found by one forward pass on the meta device: shapes without values, so it takes neither memory nor
much time, whatever the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as trees


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSize:
    """Bytes of one layer, for the batch that was asked for.

    Args:
        parameter_bytes: parameters, without buffers.
        output_bytes: what it hands to the next layer: what travels if the model is cut behind it,
            and as much again on the way back.
        kept_bytes: what autograd holds for the backward pass, beside parameters and the model's
            input. What an earlier layer holds already is not counted again.
        alone_bytes: by how much a process grows that runs this layer alone: what it puts out and
            what autograd holds, beside parameters and the layer's input. FuncPipe's profiler
            measures this, one layer after another, so the sum over layers is what its table 1 calls
            activations.
    """

    parameter_bytes: int
    output_bytes: int
    kept_bytes: int
    alone_bytes: int


class _Storages:
    """Storages that were met, by identity; they are held so that no identity is used twice."""

    def __init__(self, met: Iterable[torch.Tensor]) -> None:
        self._met: dict[int, torch.UntypedStorage] = {}
        self.new_bytes(met)

    def new_bytes(self, tensors: Iterable[torch.Tensor]) -> int:
        """Bytes of those among them that were not met before; from now on they are."""
        size = 0
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if id(storage) not in self._met:
                self._met[id(storage)] = storage
                size += storage.nbytes()
        return size


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in trees.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def layer_sizes(model: nn.Sequential, sample: torch.Tensor) -> tuple[LayerSize, ...]:
    """Returns the sizes that each layer has in training, for a batch of the form of `sample`.

    On another device than meta the model would be computed, and its batch statistics changed.

    Args:
        model: on the meta device (`on_meta`).
        sample: a batch on the meta device (`Entry.sample`).

    Raises:
        ValueError: one of them is on another device.
    """
    given = [*model.parameters(), *model.buffers(), sample]
    if any(tensor.device.type != "meta" for tensor in given):
        raise ValueError(
            "sizes are found without computing: make the model and its sample under "
            'torch.device("meta")'
        )
    kept = _Storages(given)
    sizes: list[LayerSize] = []
    passed: Any = sample
    for layer in model.train():
        held: list[torch.Tensor] = []
        alone = _Storages([*layer.parameters(), *layer.buffers(), *_tensors(passed)])

        def hold(tensor: torch.Tensor, held: list[torch.Tensor] = held) -> torch.Tensor:
            held.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
            passed = layer(passed)
        out = _tensors(passed)
        sizes.append(
            LayerSize(
                parameter_bytes=sum(p.numel() * p.element_size() for p in layer.parameters()),
                output_bytes=sum(tensor.numel() * tensor.element_size() for tensor in out),
                kept_bytes=kept.new_bytes(held),
                alone_bytes=alone.new_bytes([*out, *held]),
            )
        )
    return tuple(sizes)
