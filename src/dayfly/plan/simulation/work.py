"""What workers compute: seconds by samples, and where in the backward pass gradients are whole.

backward pass   |layer 9|layer 8|layer 7| ...          buckets of gradients go out as soon as
bucket 0                |====|                         they are whole, the last layers first
bucket 1                        |====|
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dayfly.plan.figures import NOTHING, Affine
from dayfly.plan.profile import LayerBytes, SizeProfile
from dayfly.plan.simulation.chance import Floats, Ints
from dayfly.wire.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES, bucket_ends


def shares(total: int, parts: int) -> Ints:
    """How many of so many samples each part has, (parts,): they differ by one at most."""
    bounds = np.arange(parts + 1, dtype=np.int64) * total // parts
    return np.diff(bounds)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are summed together. whole_at: the part of the backward pass after which they
    are whole, by its time for one sample; the last one is whole at its end."""

    nbytes: float
    whole_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The layers that a worker has: seconds of so many samples.

    forward, backward: of all its layers. trained, parameters, buffers: bytes. apply_s: of the
    optimizer.
    """

    forward: Affine
    backward: Affine
    trained: float
    parameters: float
    buffers: float
    apply_s: float
    buckets: tuple[Bucket, ...]

    @classmethod
    def of(
        cls, size: SizeProfile, layers: Sequence[LayerBytes], first: int, factor: float = 1.0
    ) -> Work:
        """Of the layers from number `first` on. factor: of what compression leaves of gradients."""
        stop = first + len(layers)
        forward = sum(size.forward[first:stop], start=NOTHING)
        backward = sum(size.backward[first:stop], start=NOTHING)
        trained = float(sum(layer.trained for layer in layers))
        buffers = float(sum(layer.buffers for layer in layers))
        return cls(
            forward=forward,
            backward=backward,
            trained=trained,
            parameters=float(sum(layer.parameters for layer in layers)),
            buffers=buffers,
            apply_s=size.apply(trained) if trained else 0.0,
            buckets=_buckets(layers, size.backward[first:stop], buffers, factor),
        )

    def computing_s(self, samples_N: Ints, pieces: int) -> tuple[Floats, Floats]:
        """Forward and backward seconds of each worker, (N,), its samples in so many pieces."""
        counts, which_N = np.unique(samples_N, return_inverse=True)
        used = np.minimum(counts, pieces)
        found = [
            np.where(counts > 0, one.fixed * used + one.each * counts, 0.0)[which_N]
            for one in (self.forward, self.backward)
        ]
        return found[0], found[1]


def _buckets(
    layers: Sequence[LayerBytes], backward: Sequence[Affine], buffers: float, factor: float
) -> tuple[Bucket, ...]:
    """A parameter is never cut. The moves of buffers travel with the last one, uncompressed.

    Of a layer of several parameters, those of a bucket are whole in step with its backward pass.
    """
    times = [one(1) for one in backward]
    whole_s = sum(times)
    sizes, passed = [], []
    passed_s = 0.0
    for layer, time_s in zip(reversed(layers), reversed(times), strict=True):
        tensors = tuple(4 * size for size in reversed(layer.tensors))
        tensors = tensors or ((layer.trained,) if layer.trained else ())
        for number, size in enumerate(tensors, 1):
            sizes.append(size)
            passed.append(passed_s + time_s * number / len(tensors))
        passed_s += time_s
    if not sizes:
        return (Bucket(buffers, 1.0),)
    made, first = [], 0
    ends = bucket_ends(sizes, FIRST_BUCKET_BYTES, BUCKET_BYTES)
    for end in ends:
        last = end == len(sizes)
        whole_at = 1.0 if last or not whole_s else passed[end - 1] / whole_s
        nbytes = sum(sizes[first:end]) * factor + (buffers if last else 0.0)
        made.append(Bucket(nbytes, whole_at))
        first = end
    return tuple(made)
