"""How samples are shared out: epochs in steps, steps in slices, slices in micro-batches; validation
in blocks.

Rules of arithmetic alone, which those who train and those who predict go by alike.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple


def share(total: int, part: int, parts: int, weights: tuple[int, ...] = ()) -> range:
    """Returns one part of the numbers from 0 to total - 1, which are cut into consecutive parts.

        share(10, 1, 3, (2, 1, 1))      0 1 2 3 4 | 5 6 | 7 8 9      bounds 10 * (0, 2, 3, 4) // 4

    Args:
        total: how many there are.
        part: number of the part, from 0.
        parts: how many parts there are.
        weights: of the parts, whose sizes are in proportion to them up to rounding; the bounds are
            rounded, so each of the total is in one part. Empty: sizes differ by one at most.
    """
    if not weights:
        return range(total * part // parts, total * (part + 1) // parts)
    bounds = _bounds(weights)
    return range(total * bounds[part] // bounds[-1], total * bounds[part + 1] // bounds[-1])


@lru_cache(maxsize=64)
def _bounds(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Where parts with these weights begin and end."""
    return tuple(accumulate(weights, initial=0))


class _Stretch(NamedTuple):
    """Steps in a row with batches of one size, through as many epochs as it takes.

    Args:
        first: its first step.
        epoch: in which that is.
        position: of that step's first sample in the epoch's order.
        size: samples of a step.
    """

    first: int
    epoch: int
    position: int
    size: int

    def own(self, samples: int) -> int:
        """Steps until the end of its first epoch."""
        return -(-(samples - self.position) // self.size)

    def at(self, step: int, samples: int) -> _Stretch:
        """The same from one of its steps on."""
        done = step - self.first
        if done < (own := self.own(samples)):
            return self._replace(first=step, position=self.position + done * self.size)
        epochs, steps = divmod(done - own, -(-samples // self.size))
        return _Stretch(step, self.epoch + 1 + epochs, steps * self.size, self.size)


@lru_cache(maxsize=64)
def _stretches(
    samples: int, sizes: tuple[int, ...], changed: tuple[tuple[int, int], ...]
) -> tuple[_Stretch, ...]:
    """Those of a run; the last one goes on for ever."""
    found = [_Stretch(0, 0, 0, sizes[0])]
    for size in sizes[1:]:
        last = found[-1]
        found.append(_Stretch(last.first + last.own(samples), last.epoch + 1, 0, size))
    for step, size in changed:
        before = [one for one in found if one.first <= step]
        changes = before[-1].at(step, samples)._replace(size=size)
        found = [*(one for one in before if one.first < step), changes]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Batches:
    """The global batches of a run, step by step. Steps are counted through all epochs, from 0.

        samples 10, batch_size 4, changed ((4, 2),)

        epoch 0   0 1 2 3 | 4 5 6 7 | 8 9              steps 0 to 2
        epoch 1   0 1 2 3 | 4 5 | 6 7 | 8 9            steps 3 to 6
        epoch 2   0 1 | 2 3 | 4 5 | 6 7 | 8 9          steps 7 to 11

    Args:
        samples: of an epoch.
        batch_size: samples of a step in the first epoch, and in all if `later` is empty.
        later: the same of the epochs after it; the last one's also of all that follow.
        changed: steps from which on batches have another size, in order, each with that size.
    """

    samples: int
    batch_size: int
    later: tuple[int, ...] = field(default=(), kw_only=True)
    changed: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)

    @property
    def steps(self) -> int:
        """Steps of the first epoch; the last batch of an epoch may be smaller."""
        return self.first(1)

    @property
    def largest(self) -> int:
        """Samples of the largest batch."""
        return max(*self._sizes, 1)

    @property
    def most_steps(self) -> int:
        """Steps of the longest epoch, or more if sizes change within it."""
        return -(-self.samples // min(self._sizes))

    @property
    def alike_from(self) -> int:
        """The first epoch from which on all have as many steps."""
        last = self._stretches[-1]
        return last.epoch + (last.position > 0)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.batch_size, *self.later, *(size for _, size in self.changed))

    @property
    def _stretches(self) -> tuple[_Stretch, ...]:
        return _stretches(self.samples, (self.batch_size, *self.later), self.changed)

    def _at(self, step: int) -> _Stretch:
        """What goes on from a step."""
        found = self._stretches
        one = found[bisect_right(found, step, key=_first) - 1]
        return one.at(step, self.samples)

    def size(self, epoch: int) -> int:
        """Samples of a step in an epoch; of its last one, if that changes within it."""
        return self._at(self.first(epoch + 1) - 1).size

    def first(self, epoch: int) -> int:
        """The first step of an epoch; so many steps lie before it."""
        found = self._stretches
        one = found[bisect_right(found, (epoch, 0), key=_begins) - 1]
        if one.epoch == epoch:
            return one.first
        more = epoch - one.epoch - 1
        return one.first + one.own(self.samples) + more * -(-self.samples // one.size)

    def epoch(self, step: int) -> int:
        """The epoch of a step, from 0; as many were whole before it."""
        return self._at(step).epoch

    def begins_epoch(self, step: int) -> bool:
        """Whether the step is its epoch's first."""
        return self._at(step).position == 0

    def ends_epoch(self, step: int) -> bool:
        """Whether the step is its epoch's last."""
        return self.begins_epoch(step + 1)

    def batch(self, step: int) -> range:
        """Positions, in the epoch's order, of the step's global batch."""
        one = self._at(step)
        return range(one.position, min(one.position + one.size, self.samples))


def _first(stretch: _Stretch) -> int:
    return stretch.first


def _begins(stretch: _Stretch) -> tuple[int, int]:
    return stretch.epoch, stretch.position


@dataclass(frozen=True, slots=True)
class Rounds:
    """How an epoch's steps form rounds, after each of which replicas are equal.

        epochs of 9 steps, k = 4, begun = 6      ... 2 3 4 5 | 6 7 8 | 9 10 11 12 | 13 14 15 16 | 17

    An epoch's last round may be shorter.

    Args:
        epochs: of which the steps are.
        k: steps of a round; None: an epoch is one.
        begun: a step with which a round begins: those of its epoch are counted from it, those of
            others from their epoch's first step.
    """

    epochs: Batches
    k: int | None
    begun: int = 0

    @property
    def longest(self) -> int:
        """Steps of the longest round."""
        most = self.epochs.most_steps
        return most if self.k is None else min(self.k, most)

    def steps(self, step: int) -> range:
        """The steps of the round that `step` is in."""
        epoch = self.epochs.epoch(step)
        begin, end = self.epochs.first(epoch), self.epochs.first(epoch + 1)
        first = step - (step - self._begun(epoch)) % self.longest
        return range(max(first, begin), min(first + self.longest, end))

    def number(self, step: int) -> int:
        """The rounds that lie before `step` as a whole."""
        epochs, last = self.epochs, self.epochs.epoch(step)
        alike_from = max(epochs.alike_from, epochs.epoch(self.begun) + 1)
        changing = range(min(last, alike_from))
        before = sum(self._of(epoch) for epoch in changing)
        before += (last - len(changing)) * self._of(len(changing))
        return before + self._within(last, step)

    def _begun(self, epoch: int) -> int:
        """The step from which the rounds of an epoch are counted."""
        first = self.epochs.first(epoch)
        return self.begun if first < self.begun < self.epochs.first(epoch + 1) else first

    def _within(self, epoch: int, step: int) -> int:
        """How many rounds of an epoch are complete before a step begins."""
        begun = self._begun(epoch)
        first = (self.epochs.first(epoch) - begun) // self.longest
        return (step - begun) // self.longest - first

    def _of(self, epoch: int) -> int:
        """How many rounds an epoch has."""
        return self._within(epoch, self.epochs.first(epoch + 1) - 1) + 1


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a replica: its number, and its samples, one at least."""

    number: int
    samples: int


def micro_batches(
    samples: int,
    replica: int,
    replicas: int,
    parts: int,
    leaves: int | None = None,
    weights: tuple[int, ...] = (),
) -> tuple[MicroBatch, ...]:
    """A replica's share of a batch of so many samples, in `parts`; without those that are empty.

    The same as the pieces of `training.slices.Slices`.

    Args:
        leaves: of the batch, of which the replica has some in a row, each of them a micro-batch;
            None: its share is cut in `parts`.
        weights: of the replicas, as of `share`.
    """
    if leaves is None:
        whole = share(samples, replica, replicas, weights)
        sizes = [len(share(len(whole), number, parts)) for number in range(parts)]
    else:
        sizes = [len(share(samples, leaf, leaves)) for leaf in share(leaves, replica, replicas)]
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


def validation_rounds(samples: int, most: int, batch_size: int) -> list[list[range]]:
    """Validation of a cut model: the blocks of each round, in their order.

    Args:
        most: blocks of a round: as many as all replicas have micro-batches in a step of training.
    """
    blocks = validation_blocks(samples, batch_size)
    return [blocks[at : at + most] for at in range(0, len(blocks), most)]
