"""How long the streams of a job are: an IterableDataset, or its shards, each epoch anew.

A stream says so itself, by a `__len__` or by `shard_lengths`; those of Hugging Face say neither.
Theirs are counted where a job begins, and the lengths travel with the job, so that workers and a
run that goes on need not count again. Each worker makes the stream anew, so it is made twice there,
and the first samples of its shards are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils._pytree import tree_flatten
from torch.utils.data import IterableDataset

from dayfly.errors import DayflyError, RequestError, RunFailed, in_short
from dayfly.job import Job
from dayfly.training import stream_counts
from dayfly.training.randomness import DATA, seeded
from dayfly.training.shard_order import ShardOrder
from dayfly.training.stream_counts import Lengths, StreamCount, kept_at

#: Samples of a shard by which two makings of a stream are compared, and shards at most.
_COMPARED, _COMPARED_SHARDS = 8, 16
#: After the last sample.
_END = object()
#: Rows that are counted at once.
_ROWS = 10_000


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
        counted: whether they were counted: it then fails, by RunFailed, if a shard has more. That
            one has less, its reader finds.
    """

    def __init__(self, stream: Any, shard_lengths: Lengths, *, counted: bool = False) -> None:
        self._stream = stream
        self.shard_lengths = shard_lengths
        self._counted = counted

    def __len__(self) -> int:
        return sum(self.shard_lengths)

    def __iter__(self) -> Iterator[Any]:
        samples, left = iter(self._stream), len(self)
        for sample in samples:
            left -= 1
            if self._counted and left <= 0 and next(samples, _END) is not _END:
                raise RunFailed(
                    f"a shard of the job's stream has more than the {len(self)} samples that were "
                    "counted: its data changed since, so put back what they were, or remove "
                    f"{kept_at()}, where counts are kept, and begin the run anew"
                )
            yield sample

    @property
    def num_shards(self) -> int:
        """The stream's."""
        return len(self.shard_lengths)

    def shard(self, num_shards: int, index: int) -> Any:
        """One shard of the stream."""
        one = self._stream.shard(num_shards=num_shards, index=index)
        return MeasuredStream(one, self.shard_lengths[index : index + 1], counted=self._counted)

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
        return self.of(self.data())

    def of(self, made: tuple[Any, Any]) -> tuple[Any, Any]:
        """Returns what the function made, with lengths."""
        first, second = (
            one
            if lengths is None
            else MeasuredStream(one, lengths, counted=not hasattr(one, "shard_lengths"))
            for one, lengths in zip(made, self.lengths, strict=True)
        )
        return first, second


class Measured(NamedTuple):
    """A job whose streams all have lengths.

    Args:
        job: the job.
        made: what its data function returned; None: it has none, or it is to be called again.
    """

    job: Job
    made: tuple[Any, Any] | None


def measured(job: Job, note: Callable[[str], None] = lambda text: None) -> Measured:
    """Returns a job whose streams all have lengths, which are counted where nobody says them.

    Only streams with `num_shards` and `shard` are counted, as those of Hugging Face; of others it
    is not known whether they end. What was counted is kept (`stream_counts`), and taken again for a
    stream that is the same.

    Args:
        job: any; one whose data are no streams is returned as it is.
        note: is told what is counted.

    Raises:
        RequestError: a stream cannot be counted, or gives other samples when it is made again.
    """
    if not callable(job.data):
        return Measured(job, None)
    data = cast("Callable[[], Any]", job.data)

    def make() -> tuple[Any, Any] | None:
        with seeded(DATA, job.seed):
            return _made(data)

    made = make()
    if made is None or not any(map(_is_unmeasured, made)):
        return Measured(job, made)
    twice = cache(make)

    def again(side: int) -> Any:
        return (twice() or ())[side]

    alike = made[0] is made[1]  # then it is counted once, as the validation
    lengths = [
        _measure(one, name, job.seed, partial(again, side), note)
        if _is_unmeasured(one) and (side or not alike)
        else None
        for side, (one, name) in enumerate(zip(made, ("training", "validation"), strict=True))
    ]
    counted = MeasuredData(data, (lengths[1 if alike else 0], lengths[1]))
    return Measured(replace(job, data=counted), counted.of(made))


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


def _measure(
    stream: Any, name: str, seed: int, again: Callable[[], Any], note: Callable[[str], None]
) -> Lengths:
    """Returns the samples of each shard. again: makes the stream once more.

    What was counted of a stream with this identity, whose samples begin so, needs no other look: an
    order that each making draws anew is part of the identity, or of the samples.
    """
    count, says = _shards(stream), hasattr(stream, "shard_lengths")
    identity = None if says else stream_counts.identity(stream)
    try:
        first = _first_samples(stream, count, seed)
        known = stream_counts.recall(identity, note)
        if known is not None and known.first == first and len(known.lengths) == count:
            return known.lengths
        if says:
            lengths = lengths_of(stream)
        else:
            note(
                f"the {name} stream says no length: its {count} "
                f"{'shards are' if count > 1 else 'shard is'} read once to count samples"
            )
            lengths = tuple(_count(stream, count, shard) for shard in range(count))
        same = first == _first_samples(again(), count, seed)
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(f"the job's {name} stream fails: {in_short(error)}") from error
    if not sum(lengths):
        raise RequestError(f"the job's {name} Dataset is empty: it needs at least one sample")
    if not same:
        raise RequestError(
            f"the job's {name} stream gives other samples when it is made again, as each "
            "worker makes it: give its shuffle() a seed"
        )
    stream_counts.keep(identity, StreamCount(lengths=lengths, first=first), note)
    return lengths


def _count(stream: Any, count: int, shard: int) -> int:
    """The samples of a shard. Rows of Arrow are counted without being made into samples."""
    one = stream.shard(num_shards=count, index=shard) if count > 1 else stream
    if hasattr(one, "with_format") and hasattr(one, "iter"):
        tables = one.with_format("arrow").iter(batch_size=_ROWS)
        return sum(table.num_rows for table in tables)
    return sum(1 for _ in one)


def _first_samples(stream: Any, count: int, seed: int) -> str:
    """Returns a digest of the first samples of shards, spread evenly over all of them.

    What has no bytes of its own, such as an object of another library, does not count.
    """
    chosen = np.unique(np.linspace(0, count - 1, min(count, _COMPARED_SHARDS), dtype=np.int64))
    digest = hashlib.sha256()
    with seeded(DATA, seed):
        for shard in chosen.tolist():
            one = stream.shard(num_shards=count, index=shard) if count > 1 else stream
            leaves, shape = tree_flatten(list(islice(one, _COMPARED)))
            digest.update(str(shape).encode())
            for leaf in leaves:
                digest.update(_bytes(leaf))
    return digest.hexdigest()


def _bytes(leaf: Any) -> bytes:
    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
        flat = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{leaf.dtype} {tuple(leaf.shape)}".encode() + flat.tobytes()
    if isinstance(leaf, np.ndarray):
        if leaf.dtype.hasobject:
            return b"".join(map(_bytes, leaf.ravel().tolist()))
        return f"{leaf.dtype} {leaf.shape}".encode() + leaf.tobytes()
    return repr(leaf).encode() if isinstance(leaf, (int, float, str, bytes)) else b""


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
