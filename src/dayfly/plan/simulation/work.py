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

#: Most bytes of the first bucket and of the others, as in training (`train.flat`).
FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20


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
    """A layer is never cut. The moves of buffers travel with the last bucket, uncompressed."""
    whole_s = sum(one(1) for one in backward)
    made: list[Bucket] = []
    nbytes, room, passed_s = 0.0, float(FIRST_BUCKET_BYTES), 0.0
    for layer, time in zip(reversed(layers), reversed(backward), strict=True):
        if nbytes and layer.trained > room:
            made.append(Bucket(nbytes * factor, passed_s / whole_s if whole_s else 1.0))
            nbytes, room = 0.0, float(BUCKET_BYTES)
        nbytes += layer.trained
        room -= layer.trained
        passed_s += time(1)
    made.append(Bucket(nbytes * factor + buffers, 1.0))
    return tuple(made)
