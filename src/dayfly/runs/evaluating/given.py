"""Data to evaluate a trained model on, in any of its forms, as one set of samples.

None, "digits", a path, a source    as a Job's data: the validation half
a function                          the second of (train, validation)
x.npy, an array, (x, y)             all rows; `eval_transform` as in validation
a Dataset                           all samples, as the model gets them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from dayfly.data.base import DataSource
from dayfly.data.npy_arrays import BUILTIN, load_array
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.runs.prepare import Data, arrays_of
from dayfly.training.arrays import Arrays, ArraySplit, check_arrays, store_arrays, store_split
from dayfly.training.probe import array_samples
from dayfly.training.streams import measured
from dayfly.wire.stores.base import Store

#: Name of a job's data in messages, where the rows of arrays were given themselves.
_GIVEN = "the data given"


@dataclass(frozen=True, slots=True)
class Given:
    """Samples to evaluate on.

    Args:
        job: whose validation half they are.
        arrays: their arrays, if they are no Dataset.
        samples: their number.
        tried: a few of them, as the Dataset or the transform gives them.
        labelled: whether each has a target; False: what stands in its place is none.
    """

    job: Job
    arrays: Arrays | None
    samples: int
    tried: list[Any]
    labelled: bool

    def put(self, store: Store, note: Callable[[str], None] | None) -> tuple[ArraySplit, ...]:
        """Puts arrays into a store, as `training.arrays` does. Returns nothing of a Dataset."""
        if self.arrays is None:
            return ()
        if "x_val" in self.arrays:
            part = store_split(self.arrays["x_val"], self.arrays["y_val"], store, note)
        else:
            _, part = store_arrays(self.arrays, store, self.job.seed, note=note)
        return part, part


class Both:
    """A job's data function: one Dataset on both sides. It travels with the job."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __call__(self) -> tuple[Any, Any]:
        return self._dataset, self._dataset


class Second:
    """A job's data function: the validation half of another one's, on both sides."""

    def __init__(self, data: Callable[[], Any]) -> None:
        self.data = data

    def __call__(self) -> tuple[Any, Any]:
        made = self.data()
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise RequestError("the data function must return (train, validation) Datasets")
        return made[1], made[1]


class Pairs:
    """A job's data function: another one's Datasets, with samples (x, y)."""

    def __init__(self, data: Callable[[], Any]) -> None:
        self.data = data

    def __call__(self) -> tuple[Any, Any]:
        first, second = map(as_pairs, self.data())
        return first, second


class Paired(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Samples (x, y) of a Dataset whose samples may be x alone."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return _pair(self._dataset[index])


class PairedStream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """The same of a stream."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        return map(_pair, self._dataset)


def as_pairs(dataset: Any) -> Any:
    """Returns a Dataset whose samples are (x, y), whatever theirs are."""
    streams = isinstance(dataset, torch.utils.data.IterableDataset)
    return PairedStream(dataset) if streams else Paired(dataset)


def _pair(sample: Any) -> Any:
    if isinstance(sample, (tuple, list)):
        if len(sample) == 2:
            return sample
        if len(sample) == 1:
            return sample[0], 0
    return sample, 0


def given(
    data: Any,
    job: Job,
    *,
    labels_needed: bool,
    paired: bool,
    note: Callable[[str], None] = lambda text: None,
) -> Given:
    """The samples of what a user gave.

    Args:
        data: in any of its forms; None: the job's own.
        job: that was trained.
        labels_needed: whether samples without targets are refused.
        paired: whether the model and a loss take samples (x, y); else a step takes them as they
            are.
        note: is told what is counted.

    Raises:
        RequestError: it is in none of the forms, or cannot be read.
    """
    data = job.data if data is None else data
    if (isinstance(data, str) and data not in BUILTIN) or isinstance(data, PathLike):
        path = Path(data).expanduser()
        if path.suffix == ".npy":
            data = load_array(path)
    if isinstance(data, (str, PathLike, DataSource)):
        job = replace(job, data=data)
        arrays = arrays_of(job)
        found = Data.of(job)
        return Given(job, arrays, found.validation, found.unseen, labelled=True)
    if isinstance(data, (np.ndarray, torch.Tensor)):
        return _of_arrays(data, None, job, labels_needed=labels_needed)
    if isinstance(data, (tuple, list)) and len(data) == 2 and all(map(_is_array, data)):
        return _of_arrays(data[0], data[1], job, labels_needed=labels_needed)
    if callable(data) and not hasattr(data, "__getitem__"):
        source: Callable[[], Any] = Second(data)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        source = Both(data)
    else:
        raise RequestError(
            f"the data is a {type(data).__name__}: give what a Job takes as data, a Dataset with "
            "__len__ and __getitem__, an array of samples, or a pair (x, y) of arrays"
        )
    # Transforms are for arrays: a Dataset transforms its samples itself.
    job, made = measured(replace(job, data=source, transform=None, eval_transform=None), note)
    if paired:
        job = replace(job, data=Pairs(cast("Callable[[], Any]", job.data)))
        made = made and (as_pairs(made[0]), as_pairs(made[1]))
    found = Data.of(job, made)
    return Given(job, None, found.validation, found.unseen, labelled=True)


def _is_array(data: Any) -> bool:
    return isinstance(data, (np.ndarray, torch.Tensor))


def _of_arrays(x: Any, y: Any, job: Job, *, labels_needed: bool) -> Given:
    if y is None and labels_needed:
        raise RequestError(
            "the data is one array, and targets are needed: give a pair (x, y) of arrays"
        )
    rows = _array(x)
    labels = np.zeros(len(rows) if rows.ndim else 0, np.int64) if y is None else _array(y)
    arrays = {"x_train": rows, "y_train": labels, "x_val": rows, "y_val": labels}
    check_arrays(arrays, _GIVEN)
    job = (
        replace(job, data=_GIVEN)
        if not callable(job.data)
        else replace(job, data=_GIVEN, transform=None, eval_transform=None)
    )
    tried = array_samples(arrays, "val", "eval_transform", job.eval_transform)
    return Given(job, arrays, len(rows), tried, labelled=y is not None)


def _array(data: Any) -> np.ndarray[Any, Any]:
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu()
        if data.dtype is torch.bfloat16:
            data = data.float()  # numpy has no such type
        data = data.numpy()
    return np.asarray(data)
