"""The papers' models as planners see them: layers with their FLOPs, parameters and activations.

FLOPs are counted by torch on the meta device, two a multiplication and addition, of the forward
pass; a backward pass takes twice as many (`BACKWARD`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from torch.utils.flop_counter import FlopCounterMode

from dayfly.models import MODELS, layer_sizes, on_meta

#: FLOPs of a backward pass by those of a forward pass.
BACKWARD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer, or several together. All but parameter_bytes: of a sample.

    activation_bytes: what running it alone takes, as FuncPipe counts. kept_bytes: what the backward
    pass needs.
    """

    flops: float
    parameter_bytes: int
    output_bytes: float
    activation_bytes: float
    kept_bytes: float


@cache
def layers_of(name: str, *, first: int = 0, last: int = 0) -> tuple[Layer, ...]:
    """Of a model of `dayfly.models.MODELS`, without its first and last few layers."""
    entry = MODELS[name]
    model, sample = on_meta(entry.build), entry.sample(1)
    sizes = layer_sizes(model, sample)
    flops: list[float] = []
    passed = sample
    with torch.no_grad():
        for layer in model:
            with FlopCounterMode(display=False) as counter:
                passed = layer(passed)
            flops.append(counter.get_total_flops())
    layers = [
        Layer(
            flops=count,
            parameter_bytes=size.parameter_bytes,
            output_bytes=size.output_bytes,
            activation_bytes=size.alone_bytes,
            kept_bytes=size.kept_bytes,
        )
        for count, size in zip(flops, sizes, strict=True)
    ]
    return tuple(layers[first : len(layers) - last])


def together(layers: Sequence[Layer]) -> Layer:
    """As one layer: what the last puts out, and the sum of all else."""
    return Layer(
        flops=sum(one.flops for one in layers),
        parameter_bytes=sum(one.parameter_bytes for one in layers),
        output_bytes=layers[-1].output_bytes,
        activation_bytes=sum(one.activation_bytes for one in layers),
        kept_bytes=sum(one.kept_bytes for one in layers),
    )


def merged(layers: Sequence[Layer], groups: int) -> tuple[Layer, ...]:
    """At most so many layers, of about equal computation (FuncPipe section 4)."""
    bounds = equal_parts(layers, groups)
    return tuple(together(layers[a:b]) for a, b in pairwise(bounds))


def equal_parts(layers: Sequence[Layer], groups: int) -> tuple[int, ...]:
    """Where each of those begins, and the number of layers."""
    whole, so_far = sum(one.flops for one in layers), 0.0
    begins: dict[int, int] = {}
    for number, layer in enumerate(layers):
        middle = so_far + layer.flops / 2
        begins.setdefault(min(groups - 1, int(groups * middle / whole)), number)
        so_far += layer.flops
    return *begins.values(), len(layers)
