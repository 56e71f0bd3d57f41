"""How samples are shared out: epochs in steps, steps in slices, slices in micro-batches; validation
in blocks.

Rules of arithmetic alone, which those who train and those who predict go by alike.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise


def share(total: int, part: int, parts: int) -> range:
    """Part number `part` of 0..total-1 cut in `parts` whose sizes differ by one at most."""
    return range(total * part // parts, total * (part + 1) // parts)


@lru_cache(maxsize=64)
def _starts(samples: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """First step of each epoch with a batch size of its own, and of the one after them."""
    return (0, *accumulate(-(-samples // size) for size in sizes))


@dataclass(frozen=True, slots=True)
class Batches:
    """The global batches of a run, step by step. Steps are counted through all epochs, from 0.

    Args:
        samples: of an epoch.
        batch_size: samples of a step in the first epoch, and in all if `later` is empty.
        later: the same of the epochs after it; the last one's also of all that follow.
    """

    samples: int
    batch_size: int
    later: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def steps(self) -> int:
        """Steps of the first epoch; the last batch of an epoch may be smaller."""
        return -(-self.samples // self.batch_size)

    @property
    def largest(self) -> int:
        """Samples of the largest batch."""
        return max(self.batch_size, *self.later, 1)

    @property
    def most_steps(self) -> int:
        """Steps of the longest epoch."""
        return -(-self.samples // min(self.batch_size, *self.later, self.batch_size))

    def size(self, epoch: int) -> int:
        """Samples of a step in an epoch."""
        sizes = (self.batch_size, *self.later)
        return sizes[min(epoch, len(sizes) - 1)]

    def first(self, epoch: int) -> int:
        """The first step of an epoch; so many steps lie before it."""
        starts = _starts(self.samples, (self.batch_size, *self.later))
        known = min(epoch, len(starts) - 1)
        return starts[known] + (epoch - known) * -(-self.samples // self.size(epoch))

    def epoch(self, step: int) -> int:
        """The epoch of a step, from 0; as many were whole before it."""
        starts = _starts(self.samples, (self.batch_size, *self.later))
        if step < starts[-1]:
            return bisect_right(starts, step) - 1
        known = len(starts) - 1
        return known + (step - starts[-1]) // -(-self.samples // self.size(known))

    def begins_epoch(self, step: int) -> bool:
        """Whether the step is its epoch's first."""
        return step == self.first(self.epoch(step))

    def ends_epoch(self, step: int) -> bool:
        """Whether the step is its epoch's last."""
        return self.begins_epoch(step + 1)

    def batch(self, step: int) -> range:
        """Positions, in the epoch's order, of the step's global batch."""
        epoch = self.epoch(step)
        size = self.size(epoch)
        first = (step - self.first(epoch)) * size
        return range(first, min(first + size, self.samples))


@dataclass(frozen=True, slots=True)
class Rounds:
    """How an epoch's steps form rounds, after each of which replicas are equal.

    An epoch's last round may be shorter.

    Attributes:
        k: steps of a round; None: an epoch is one.
    """

    epochs: Batches
    k: int | None

    @property
    def longest(self) -> int:
        """Steps of the longest round."""
        most = self.epochs.most_steps
        return most if self.k is None else min(self.k, most)

    def steps(self, step: int) -> range:
        """The steps of the round that `step` is in."""
        epoch = self.epochs.epoch(step)
        begin, end = self.epochs.first(epoch), self.epochs.first(epoch + 1)
        first = step - (step - begin) % self.longest
        return range(first, min(first + self.longest, end))

    def number(self, step: int) -> int:
        """The rounds that lie before `step` as a whole."""
        epochs, last = self.epochs, self.epochs.epoch(step)
        changing = range(min(last, len(epochs.later)))
        before = sum(self._of(epoch) for epoch in changing)
        before += (last - len(changing)) * self._of(len(changing))
        return before + (step - epochs.first(last)) // self.longest

    def _of(self, epoch: int) -> int:
        """Rounds of an epoch."""
        return -(-(self.epochs.first(epoch + 1) - self.epochs.first(epoch)) // self.longest)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a replica: its number, and its samples, one at least."""

    number: int
    samples: int


def micro_batches(samples: int, replica: int, replicas: int, parts: int) -> tuple[MicroBatch, ...]:
    """A replica's share of a batch of so many samples, in `parts`; without those that are empty.

    The same as the pieces of `training.sources.Slices`.
    """
    whole = share(samples, replica, replicas)
    sizes = (len(share(len(whole), number, parts)) for number in range(parts))
    return tuple(MicroBatch(number, size) for number, size in enumerate(sizes) if size)


def validates(epoch: int, epochs: int, every: int) -> bool:
    """Whether an epoch ends with a validation.

    Args:
        epoch: from 0.
        epochs: of the run, whose last one is validated, too.
        every: epochs between validations; 0: there is none.
    """
    return every > 0 and ((epoch + 1) % every == 0 or epoch + 1 == epochs)


def validations(epochs: int, every: int) -> int:
    """Returns the validations of a run; see `validates`."""
    return -(-epochs // every) if every else 0


#: Least samples of a block of validation, unless the batch is smaller.
_BLOCK_SAMPLES = 16
#: How many values validation sums for each block; see `training.evaluation`.
BLOCK_NUMBERS = 4


def block_samples(batch_size: int) -> int:
    """Samples of a block of validation: an eighth of the batch, at least 16, at most the batch."""
    return min(batch_size, max(_BLOCK_SAMPLES, -(-batch_size // 8)))


def validation_blocks(samples: int, batch_size: int) -> list[range]:
    """Cuts validation into blocks, which depend on the job alone, not on workers and stages.

    The model sees one block at a time, so its outputs are the same bits whoever computes them.
    """
    size = block_samples(batch_size)
    return [range(first, min(first + size, samples)) for first in range(0, samples, size)]


def block_shares(blocks: list[range], workers: int) -> list[list[range]]:
    """Each worker's blocks, in their order; numbers differ by one at most, the first have more."""
    least, more = divmod(len(blocks), workers)
    starts = [worker * least + min(worker, more) for worker in range(workers + 1)]
    return [blocks[first:stop] for first, stop in pairwise(starts)]


def covered(blocks: list[range]) -> range:
    """The samples of blocks that follow each other."""
    return range(blocks[0].start, blocks[-1].stop) if blocks else range(0)


def validation_rounds(
    samples: int, replicas: int, micro_batches: int, batch_size: int
) -> list[list[list[range]]]:
    """Validation of a cut model: of each round, in their order, each replica's blocks.

    A replica has at most as many blocks in a round as micro-batches in a step of training.
    """
    blocks = validation_blocks(samples, batch_size)
    each = replicas * micro_batches
    return [block_shares(blocks[at : at + each], replicas) for at in range(0, len(blocks), each)]
