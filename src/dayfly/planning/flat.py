"""The flat buffer that workers sum: how many elements, in which buckets, whole after which layer.

As `training.flat` and `training.averaging` make it, from what a profile says of the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.planning.profile import LayerBytes
from dayfly.wire.schedule import BUCKET_BYTES, FIRST_BUCKET_BYTES, bucket_ends, bucket_spans

#: Bytes of an element; the flat buffer is float32 at least, and wider types are rare.
ITEM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """buckets: elements of each, in the order in which they go out. whole_after: of each but the
    last, how much of the backward pass is over when it is whole: so many layers, and a part of the
    next. trained: elements that the optimizer trains.
    """

    buckets: tuple[int, ...]
    whole_after: tuple[float, ...]
    trained: int

    @property
    def length(self) -> int:
        """Elements of all buckets."""
        return sum(self.buckets)


def flat(
    layers: Sequence[LayerBytes], *, tail: int, apart: bool = False, listed: bool = True
) -> Flat:
    """Of these layers: a model, or a stage. tail: elements at the end. apart: as for `FlatBuffer`.

    listed: layers are single ones, whose gradients come together; those of a whole model come as
    its backward pass goes through it.
    """
    tensors = [(size, at) for at, layer in enumerate(layers) for size in elements(layer)][::-1]
    sizes = [size for size, _ in tensors]
    whole = sum(sizes) + sum(map(moving, layers)) + len(sizes) + tail
    ends = bucket_ends([ITEM_BYTES * size for size in sizes], FIRST_BUCKET_BYTES, BUCKET_BYTES)
    _, spans = bucket_spans(sizes, ends, whole, apart=apart)
    after = []
    of_layer = [sum(elements(layer)) for layer in layers]
    for end in ends[: len(spans) - 1]:
        layer = tensors[end - 1][1] if end else len(layers) - 1
        passed = len(layers) - 1 - layer
        done = sum(size for size, at in tensors[:end] if at == layer)
        part = 1.0 if listed or not of_layer[layer] else done / of_layer[layer]
        after.append(passed + part)
    return Flat(buckets=tuple(map(len, spans)), whole_after=tuple(after), trained=sum(sizes))


def averaged(layers: Sequence[LayerBytes], state_per_trained_byte: float, losses: int) -> int:
    """Elements that local SGD averages. losses: steps of the longest round."""
    tensors = [size for layer in layers for size in elements(layer)]
    state = round(sum(tensors) * state_per_trained_byte)
    return sum(tensors) + sum(map(moving, layers)) + state + len(tensors) + losses + 2


def elements(layer: LayerBytes) -> tuple[int, ...]:
    """Of each trained parameter of a layer."""
    if layer.tensors or not layer.trained:
        return layer.tensors
    return (-(-layer.trained // ITEM_BYTES),)


def moving(layer: LayerBytes) -> int:
    """Elements of a layer's buffers."""
    return -(-layer.buffers // ITEM_BYTES) if layer.moving is None else layer.moving
