"""What each worker of a whole model computes in a step, whatever it sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dayfly.planning.configuration import Configuration
from dayfly.planning.profile import SizeProfile
from dayfly.planning.simulation.rounds import Work, shares
from dayfly.planning.simulation.scenario import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """Seconds of each worker, (N,).

    Attributes:
        data_N: to get its samples.
        forward_N, backward_N: of all its pieces.
        last_N: of the backward pass of its last piece, in which gradients become whole.
        beside_N: of a step beside passes, sums and the optimizer.
        apply_N: of the optimizer.
        whole_at: of each bucket, as `Bucket` has it.
    """

    data_N: Floats
    forward_N: Floats
    backward_N: Floats
    last_N: Floats
    beside_N: Floats
    apply_N: Floats
    whole_at: tuple[float, ...]

    @classmethod
    def of(
        cls, c: Configuration, works: Sequence[Work], sizes: Sequence[SizeProfile], batch: int
    ) -> Self:
        """Of a batch of all workers.

        Args:
            c: of the run.
            works: of each kind of workers.
            sizes: of each kind's functions.
            batch: samples.
        """
        samples_N, kind_N = shares(batch, c.workers, c.shares), kinds_of(c)
        forward, backward = (
            np.stack(one)
            for one in zip(*(work.computing_s(samples_N, c.pieces) for work in works), strict=True)
        )
        data = np.stack([data_s(size, samples_N) for size in sizes])
        every_N = np.arange(c.workers)
        backward_N = backward[kind_N, every_N]
        return cls(
            data_N=data[kind_N, every_N],
            forward_N=forward[kind_N, every_N],
            backward_N=backward_N,
            last_N=backward_N / np.maximum(1, np.minimum(samples_N, c.pieces)),
            beside_N=np.array([size.step_s.value for size in sizes])[kind_N],
            apply_N=np.array([work.apply_s for work in works])[kind_N],
            whole_at=tuple(bucket.whole_at for bucket in works[0].buckets),
        )

    @property
    def whole_N(self) -> Floats:
        """All of it but the optimizer and what comes beside."""
        return self.data_N + self.forward_N + self.backward_N

    def ready(self, computed_N: Floats, slow_N: Floats) -> list[Floats]:
        """Returns when each worker has each bucket.

        Args:
            computed_N: when it has computed.
            slow_N: how much slower it computes.
        """
        found = [computed_N - slow_N * self.last_N * (1 - at) for at in self.whole_at]
        # What a step takes beside all that is work, too, before its sums are whole.
        found[-1] = computed_N + self.beside_N
        return found


def kinds_of(c: Configuration) -> Ints:
    """The kind of each worker, (N,)."""
    kind_N = np.zeros(c.workers, dtype=np.int64)
    for kind, ranks in enumerate(c.kinds):
        kind_N[list(ranks)] = kind
    return kind_N


def data_s(size: SizeProfile, samples_N: Ints) -> Floats:
    """Seconds to get so many samples, (N,)."""
    data = size.data
    return np.where(samples_N > 0, data.fixed + data.each * samples_N, 0.0)
