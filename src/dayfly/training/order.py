"""Which samples form which step: a function of (seed, epoch, step) alone.

The order of an epoch is a pseudo-random permutation of 0..n-1 that can be asked for any few of its
positions, so a worker finds its own samples without making the whole order: a Feistel network on
the smallest square power of four that holds n, walked until the result falls below n (Black and
Rogaway, "Ciphers with arbitrary finite domains", 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dayfly.batches import Batches, Rounds, share
from dayfly.training.randomness import mix

if TYPE_CHECKING:
    from dayfly.job import Job

__all__ = ["Epochs", "Indices", "Rounds", "permuted", "share"]

Indices = NDArray[np.int64]
_ROUNDS = 6


def permuted(positions: Indices, size: int, *key: int) -> Indices:
    """Samples at these positions (n,) of the permutation of 0..size-1 that the key selects."""
    if len(positions) and not 0 <= positions.min() <= positions.max() < size:
        raise ValueError(f"positions {positions.min()} to {positions.max()} of {size} samples")
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    keys = [np.uint64(mix(*key, turn)) for turn in range(_ROUNDS)]
    values = positions.astype(np.uint64)
    outside = np.ones(len(values), dtype=bool)
    while outside.any():
        values[outside] = _feistel(values[outside], keys, np.uint64(half), mask)
        outside = values >= size
    return values.astype(np.int64)


def _feistel(
    values: NDArray[np.uint64], keys: list[np.uint64], half: np.uint64, mask: np.uint64
) -> NDArray[np.uint64]:
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (_scrambled(right + key) & mask)
    return (left << half) | right


def _scrambled(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64, element by element."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Epochs(Batches):
    """Where each step of a run lies in its data. Steps are counted through all epochs, from 0."""

    seed: int

    @classmethod
    def of(
        cls,
        samples: int,
        job: Job,
        steps: int = 0,
        changed: Sequence[tuple[int, int]] = (),
    ) -> Self:
        """Returns the epochs of a job that trains on so many samples.

        Args:
            samples: of an epoch.
            job: what is trained.
            steps: of the run, which may have more epochs than the job.
            changed: see `Batches`.
        """
        first, *later = job.batch_sizes
        if (schedule := job.batch_schedule) is not None:
            while cls(samples, first, job.seed, later=tuple(later)).first(1 + len(later)) < steps:
                later.append(schedule(2 + len(later)))
        return cls(samples, first, job.seed, later=tuple(later), changed=tuple(changed))

    def indices(self, step: int, rank: int, world_size: int) -> Indices:
        """The samples of a rank's slice of the step's batch, in their order; may be empty."""
        return self.slices(range(step, step + 1), rank, world_size)[0]

    def slices(
        self,
        steps: range,
        rank: int,
        world_size: int,
        count: int = 1,
        *,
        weights: tuple[int, ...] = (),
        in_order: bool = False,
        by_shard: Callable[[range], Indices] | None = None,
    ) -> list[Indices]:
        """As `indices`, of several steps of one epoch: together in little more time than one.

        Args:
            steps: of one epoch.
            rank: whose slices.
            world_size: number of workers.
            count: slices in a row, from the rank's on.
            weights: of the workers' slices; empty: they are of one size (see `share`).
            in_order: samples come in the order of their numbers.
            by_shard: of samples in order, those of a batch put so that those of one shard stand
                together, and a slice has samples of few; None: they stay as they are.
        """
        positions = []
        for step in steps:
            batch = self.batch(step)
            first = batch.start + share(len(batch), rank, world_size, weights).start
            last = share(len(batch), rank + count - 1, world_size, weights)
            stop = batch.start + last.stop
            positions.append(np.arange(first, stop, dtype=np.int64))
        key = self.seed, self.epoch(steps.start)
        whole = np.concatenate(positions)
        if not in_order:
            whole = permuted(whole, self.samples, *key)
        elif by_shard is not None:
            return [
                by_shard(self.batch(step))[some - self.batch(step).start]
                for step, some in zip(steps, positions, strict=True)
            ]
        return np.split(whole, np.cumsum([len(some) for some in positions[:-1]]))
