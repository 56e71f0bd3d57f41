"""What workers compute: seconds by samples, and where in the backward pass gradients are whole.

backward pass   |layer 9|layer 8|layer 7| ...          buckets of gradients go out as soon as
bucket 0                |====|                         they are whole, the last layers first
bucket 1                        |====|
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dayfly.planning.figures import NOTHING, Affine
from dayfly.planning.flat import ITEM_BYTES, Flat
from dayfly.planning.profile import LayerBytes, SizeProfile
from dayfly.planning.rank import travelling_bytes
from dayfly.planning.simulation.chance import Floats, Ints
from dayfly.planning.work import cut_backward


def shares(whole: int, parts: int) -> Ints:
    """How many of so many samples each part has, (parts,): they differ by one at most."""
    bounds = np.arange(parts + 1, dtype=np.int64) * whole // parts
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

    forward, backward: of all its layers. trained, kept: bytes that the optimizer trains, and of all
    parameters and buffers. apply_s: of the optimizer.
    """

    forward: Affine
    backward: Affine
    trained: float
    kept: float
    apply_s: float
    buckets: tuple[Bucket, ...]

    @classmethod
    def of(
        cls,
        size: SizeProfile,
        layers: tuple[LayerBytes, ...],
        first: int,
        buffer: Flat,
        codec: str = "none",
    ) -> Work:
        """Of the layers from number `first` on. codec: in which gradients travel."""
        times = size.backward[first : first + len(layers)]
        cut = len(layers) < len(size.forward)
        beside = Affine(size.pass_cpu_s / size.speed, 0.0) if cut else NOTHING
        trained = float(sum(layer.trained for layer in layers))
        return cls(
            forward=sum(size.forward[first : first + len(layers)], beside),
            backward=sum(times, beside),
            trained=trained,
            kept=float(sum(layer.parameters + layer.buffers for layer in layers)),
            apply_s=size.apply(trained) if trained else 0.0,
            buckets=_buckets(buffer, times, codec),
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


def _buckets(buffer: Flat, times: tuple[Affine, ...], codec: str) -> tuple[Bucket, ...]:
    """What is no gradient travels in the last one, and is not compressed then."""
    pieces = np.cumsum(cut_backward(times, 1, buffer.whole_after))
    last = len(buffer.buckets) - 1
    made = []
    for number, length in enumerate(buffer.buckets):
        packed = codec != "none" and number < last
        nbytes = travelling_bytes(codec, length) if packed else ITEM_BYTES * length
        early = number < len(buffer.whole_after) and pieces[-1] > 0
        made.append(Bucket(nbytes, float(pieces[number] / pieces[-1]) if early else 1.0))
    return tuple(made)
