"""In which order training takes the samples of a stream's shards: all shards run out together.

    lengths 4, 2, 3     shard 0: 0 2   5 7      the numbers of its samples: sample j of a shard of l
                        shard 1:  1     6       stands at (2j + 1) / 2l of the epoch, as a ruler's
                        shard 2:   3 4   8      marks do

    S  shards; N  samples of all; l  samples of one; W  workers

A batch then has of each shard its share, whatever the shards' lengths. A worker's slice of a batch
is a run of its samples sorted by shard, so that each worker reads a run of shards all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dayfly.training.order import Indices

#: Numbers that are placed together: to place one takes nearly as long.
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class ShardOrder:
    """Numbers of the samples of a stream, from 0, by shard and place in it.

    Args:
        lengths: samples of each shard; at least one shard, and one sample.
        in_turn: as drawn above; else one shard after another, as in validation.
    """

    lengths: tuple[int, ...]
    in_turn: bool = True
    _starts: tuple[int, ...] = field(init=False)
    _placed: dict[int, NDArray[np.int64]] = field(init=False, default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", tuple(accumulate(self.lengths, initial=0)))

    @property
    def samples(self) -> int:
        """Samples of all shards, N."""
        return self._starts[-1]

    def serial(self, shard: int, place: int) -> int:
        """Returns the number that a sample would have if shards came one after another."""
        return self._starts[shard] + place

    def find(self, number: int) -> tuple[int, int]:
        """Returns the shard of a sample, and its place there.

        Args:
            number: of the sample, below N.
        """
        chunk = number // _CHUNK
        if chunk not in self._placed:
            while len(self._placed) > 1:
                del self._placed[next(iter(self._placed))]
            first = chunk * _CHUNK
            numbers = range(first, min(first + _CHUNK, self.samples))
            self._placed[chunk] = np.stack(self.place(numbers), axis=1)
        shard, place = self._placed[chunk][number % _CHUNK].tolist()
        return shard, place

    def place(self, numbers: range) -> tuple[Indices, Indices]:
        """Returns the shards (n,) of samples in a row, and their places in them (n,).

        Takes O((n + S) log (n + S)) time, wherever they are.
        """
        lengths, count = np.array(self.lengths, np.int64), len(self.lengths)
        if not self.in_turn:
            wanted = np.arange(numbers.start, numbers.stop, dtype=np.int64)
            starts = np.array(self._starts, np.int64)
            shards = np.searchsorted(starts, wanted, side="right") - 1
            return shards, wanted - starts[shards]
        # Each shard is less than one sample off its share, so these hold all that are asked for.
        low = self._before(lengths, max(0, numbers.start - 2 * count))
        high = self._before(lengths, min(self.samples, numbers.stop + 2 * count))
        held = high - low
        shards = np.repeat(np.arange(count, dtype=np.int64), held)
        places = np.arange(len(shards)) - np.repeat(np.cumsum(held) - held, held) + low[shards]
        order = np.argsort((2 * places + 1) / (2 * lengths[shards]), kind="stable")
        skipped = numbers.start - int(low.sum())
        order = order[skipped : skipped + len(numbers)]
        return shards[order], places[order]

    def _before(self, lengths: Indices, number: int) -> Indices:
        """Of each shard the samples (S,) that stand before number / N of the epoch."""
        found = -((self.samples - 2 * lengths * number) // (2 * self.samples))
        return np.clip(found, 0, lengths)

    def by_shard(self, batch: range) -> Indices:
        """Returns the samples of a batch (n,), shard by shard."""
        numbers = np.arange(batch.start, batch.stop, dtype=np.int64)
        return numbers[np.argsort(self.place(batch)[0], kind="stable")]

    def reads(self, workers: int) -> float:
        """Returns how often an epoch reads the set: 1, and the shards that workers share once more.

        Args:
            workers: among which each batch is shared, W.
        """
        total = self.samples
        for k in range(1, workers):
            shard = int(np.searchsorted(self._starts, self.samples * k / workers, "right")) - 1
            if self._starts[shard] * workers != self.samples * k:
                total += self.lengths[shard]
        return total / self.samples
