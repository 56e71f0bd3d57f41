"""How long the streams of a job are: an IterableDataset, or its shards, each epoch anew.

A stream says so itself, by a `__len__` or by `shard_lengths`; those of Hugging Face say neither.
Theirs are counted where a job begins, and the lengths travel with the job, so that workers and a
run that goes on need not count again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils._pytree import tree_flatten
from torch.utils.data import IterableDataset

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.training.randomness import DATA, seeded
from dayfly.training.shard_order import ShardOrder

#: Samples by which two makings of a stream are compared.
_COMPARED = 8
#: Rows that are counted at once.
_ROWS = 10_000

Lengths = tuple[int, ...]


def lengths_of(dataset: Any) -> Lengths:
    """Returns the samples of each shard of a stream; of one without shards, those of all.

    Args:
        dataset: has `shard_lengths`, or a `__len__`: then its shards are equally long, but for one
            sample. Has shards if it has `num_shards` and `shard(num_shards=, index=)`.

    Raises:
        RequestError: shards and lengths are not equally many, or do not make its length.
    """
    count = _shards(dataset)
    if hasattr(dataset, "shard_lengths"):
        lengths = tuple(map(int, dataset.shard_lengths))
        if len(lengths) != count or min(lengths) < 0:
            raise RequestError(
                f"a stream of the job has {count} shards, and shard_lengths {list(lengths)}: give "
                "the samples of each"
            )
        if hasattr(dataset, "__len__") and len(dataset) != sum(lengths):
            raise RequestError(
                f"a stream of the job has a length of {len(dataset)}, and shard_lengths that make "
                f"{sum(lengths)}: leave one of them out, or give both alike"
            )
        return lengths
    each, more = divmod(len(dataset), count)
    return tuple(each + (shard < more) for shard in range(count))


def _shards(dataset: Any) -> int:
    """The number of shards, each of which can be read without the others; 1: it has none."""
    shards = getattr(dataset, "num_shards", 1)
    whole = isinstance(shards, int) and callable(getattr(dataset, "shard", None))
    return max(1, shards) if whole else 1


class MeasuredStream(IterableDataset):  # type: ignore[type-arg]
    """A stream of which the length of each shard is known.

    Args:
        stream: of samples.
        shard_lengths: samples of each shard; of a stream without shards, those of all.
    """

    def __init__(self, stream: Any, shard_lengths: Lengths) -> None:
        self._stream = stream
        self.shard_lengths = shard_lengths

    def __len__(self) -> int:
        return sum(self.shard_lengths)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stream)

    @property
    def num_shards(self) -> int:
        """The stream's."""
        return len(self.shard_lengths)

    def shard(self, num_shards: int, index: int) -> Any:
        """One shard of the stream."""
        return self._stream.shard(num_shards=num_shards, index=index)

    def set_epoch(self, epoch: int) -> None:
        """Tells the stream, if it wants to know."""
        if callable(told := getattr(self._stream, "set_epoch", None)):
            told(epoch)


class MeasuredData:
    """A job's data function whose streams have lengths. It travels with the job.

    Args:
        data: the user's function.
        lengths: of training and validation; None: the Dataset needs none.
    """

    def __init__(
        self, data: Callable[[], Any], lengths: tuple[Lengths | None, Lengths | None]
    ) -> None:
        self.data = data
        self.lengths = lengths

    def __call__(self) -> tuple[Any, Any]:
        first, second = (
            one if lengths is None else MeasuredStream(one, lengths)
            for one, lengths in zip(self.data(), self.lengths, strict=True)
        )
        return first, second


class Measured(NamedTuple):
    """A job whose streams all have lengths.

    Args:
        job: the job.
        made: what its data function returned, of which nothing was read; None: it has none, or is
            to be called again.
    """

    job: Job
    made: tuple[Any, Any] | None


def measured(job: Job, note: Callable[[str], None] = lambda text: None) -> Measured:
    """Returns a job whose streams all have lengths, which are counted where nobody says them.

    Only streams with `num_shards` and `shard` are counted, as those of Hugging Face; of others it
    is not known whether they end.

    Args:
        job: any; one whose data are no streams is returned as it is.
        note: is told what is counted.

    Raises:
        RequestError: a stream cannot be counted, or gives other samples when it is made again.
    """
    if not callable(job.data):
        return Measured(job, None)
    data = cast("Callable[[], Any]", job.data)
    with seeded(DATA, job.seed):
        made = _made(data)
        if made is None or not any(map(_is_unmeasured, made)):
            return Measured(job, made)
        lengths = tuple(
            _measure(one, name, note) if _is_unmeasured(one) else None
            for one, name in zip(made, ("training", "validation"), strict=True)
        )
    first, second = _first_samples(job, data, lengths), _first_samples(job, data, lengths)
    for one, other, name in zip(first, second, ("training", "validation"), strict=True):
        if not _alike(one, other):
            raise RequestError(
                f"the job's {name} stream gives other samples when it is made again, as each "
                "worker makes it: give its shuffle() a seed"
            )
    return Measured(replace(job, data=MeasuredData(data, cast("Any", lengths))), None)


def _made(data: Callable[[], Any]) -> tuple[Any, Any] | None:
    """What the function returns, if it is a pair; what is wrong with it, others say."""
    try:
        pair = data()
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(f"the job's data function fails: {in_short(error)}") from error
    return tuple(pair) if isinstance(pair, (tuple, list)) and len(pair) == 2 else None


def _is_unmeasured(dataset: Any) -> bool:
    """Whether it is a stream that can be counted and has no length."""
    counts = hasattr(dataset, "shard_lengths") or hasattr(dataset, "num_shards")
    return isinstance(dataset, IterableDataset) and counts and not hasattr(dataset, "__len__")


def _measure(stream: Any, name: str, note: Callable[[str], None]) -> Lengths:
    count = _shards(stream)
    if hasattr(stream, "shard_lengths"):
        lengths = lengths_of(stream)
    else:
        note(
            f"the {name} stream says no length: its {count} "
            f"{'shards are' if count > 1 else 'shard is'} read once to count samples"
        )
        try:
            lengths = tuple(_count(stream, count, shard) for shard in range(count))
        except Exception as error:
            raise RequestError(f"the job's {name} stream fails: {in_short(error)}") from error
    if not sum(lengths):
        raise RequestError(f"the job's {name} Dataset is empty: it needs at least one sample")
    return lengths


def _count(stream: Any, count: int, shard: int) -> int:
    """The samples of a shard. Rows of Arrow are counted without being made into samples."""
    one = stream.shard(num_shards=count, index=shard) if count > 1 else stream
    if hasattr(one, "with_format") and hasattr(one, "iter"):
        tables = one.with_format("arrow").iter(batch_size=_ROWS)
        return sum(table.num_rows for table in tables)
    return sum(1 for _ in one)


def _first_samples(job: Job, data: Callable[[], Any], lengths: Sequence[Any]) -> list[list[Any]]:
    """Of each stream that was measured the first samples, of streams that are made for that."""
    with seeded(DATA, job.seed):
        made = _made(data) or ()
        return [
            [] if known is None else list(islice(one, _COMPARED))
            for one, known in zip(made, lengths, strict=True)
        ]


def _alike(some: list[Any], others: list[Any]) -> bool:
    """Whether samples are equal, as far as they can be compared."""
    (leaves, shape), (other_leaves, other_shape) = tree_flatten(some), tree_flatten(others)
    return shape == other_shape and all(map(_equal, leaves, other_leaves))


def _equal(one: Any, other: Any) -> bool:
    """Whether they are, NaN to NaN included; what cannot be compared is taken to be equal."""
    if isinstance(one, (torch.Tensor, np.ndarray)):
        if type(one) is not type(other) or one.shape != other.shape:
            return False
        same: Any = (one == other) | ((one != one) & (other != other))
        return bool(same.all())
    if not isinstance(one, (int, float, str, bytes)):
        return True
    return bool(one == other or (one != one and other != other))


def said_of(lengths: Lengths, workers: int) -> str | None:
    """Returns what is said of a stream that workers read more than twice in an epoch; or None.

    Args:
        lengths: samples of each shard.
        workers: that share each batch.
    """
    if len(lengths) == 1:
        return (
            f"the data are a stream, which each of {workers} workers reads as a whole for its "
            "share of the samples"
            if workers > 1
            else None
        )
    times = ShardOrder(lengths).reads(workers)
    if times <= 2:
        return None
    return (
        f"{workers} workers read the {len(lengths)} shards of the stream {times:.1f} times in an "
        f"epoch: make {workers} shards or more, none far longer than the others"
    )
