"""What the layers of a stage, or of a model, take together, whatever the run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dayfly.planning.configuration import ITEM_BYTES, flat, largest_tensor, moving
from dayfly.planning.profile import LayerBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSums:
    """Bytes of some layers.

    Attributes:
        parameters: of all parameters.
        trained: of the parameters that get a gradient.
        buffers: of all buffers, as the model has them.
        before: of all buffers in float32, as a step's beginning is kept.
        largest: of the largest gradient of one parameter.
        flat: of the flat buffer of their gradients.
        buckets: elements of that buffer's buckets.
        activations: of a sample, kept for the backward pass.
        passed: of a sample, the most that one layer gets and passes on.
    """

    parameters: int
    trained: int
    buffers: int
    before: int
    largest: int
    flat: int
    buckets: tuple[int, ...]
    activations: float
    passed: float


@lru_cache(maxsize=1024)
def layer_sums(layers: tuple[LayerBytes, ...], *, listed: bool) -> LayerSums:
    """Returns the sums; many plans have the same stages, so what was found is kept.

    Args:
        layers: at least one.
        listed: as `flat` takes it.
    """
    buckets = flat(layers, tail=3, listed=listed).buckets
    return LayerSums(
        parameters=sum(layer.parameters for layer in layers),
        trained=sum(layer.trained for layer in layers),
        buffers=sum(layer.buffers for layer in layers),
        before=ITEM_BYTES * sum(map(moving, layers)),
        largest=ITEM_BYTES * largest_tensor(layers),
        flat=ITEM_BYTES * sum(buckets),
        buckets=buckets,
        activations=sum(layer.activations for layer in layers),
        passed=max(layer.output + layer.gradient for layer in layers),
    )
