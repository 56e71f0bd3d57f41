"""Samples that a script's loop is evaluated on, in the forms in which scripts have them.

a Dataset                  each rank reads the samples of its blocks
an IterableDataset         with a length; each rank reads it up to its blocks
a DataLoader               its dataset, put together by its collate_fn
x, y                       tensors with a row a sample
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from dayfly.errors import RequestError
from dayfly.training.evaluation import validation_batch
from dayfly.training.randomness import EVALUATE, seeded
from dayfly.training.sources import Source, dataset_source

_TRIED = 4
_FORMS = (
    "give a Dataset with a length, a DataLoader of one, or tensors with a row for each sample, "
    "such as x, y"
)


def held_out_source(data: tuple[Any, ...], seed: int) -> Source:
    """Returns the samples of what `evaluate` was given.

    Args:
        data: its arguments.
        seed: from which random transforms of samples follow.

    Raises:
        RequestError: it is in none of the forms, or without samples.
    """
    one: Any = data[0] if len(data) == 1 else data
    collate: Any = default_collate
    if isinstance(one, DataLoader):
        _check_whole(one)
        one, collate = one.dataset, one.collate_fn
    if isinstance(one, torch.Tensor):
        one = (one,)
    if isinstance(one, tuple) and one and all(_has_rows(part) for part in one):
        if len({len(part) for part in one}) > 1:
            sizes = ", ".join(str(len(part)) for part in one)
            raise RequestError(f"model.evaluate(): tensors have {sizes} rows: give equally many")
        one = TensorDataset(*one)
    streams = isinstance(one, IterableDataset)
    if not hasattr(one, "__len__") or not (streams or hasattr(one, "__getitem__")):
        raise RequestError(f"model.evaluate() was given a {type(one).__name__}: {_FORMS}")
    if not len(one):
        raise RequestError(f"model.evaluate() was given no samples: {_FORMS}")
    return dataset_source(one, seed, in_turn=False, collate=collate)


def tried_of(source: Source, seed: int) -> Any:
    """Returns a batch of the first samples, by which a loss is tried that no step was taken with.

    Args:
        source: of the samples.
        seed: see `held_out_source`.
    """
    with seeded(EVALUATE, seed):
        return validation_batch(source, range(min(_TRIED, source.samples)))


def _has_rows(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.ndim > 0


def _check_whole(loader: DataLoader[Any]) -> None:
    """Raises RequestError unless a loader goes through all of its dataset once."""
    sampler, batches = loader.sampler, loader.batch_sampler
    in_order = isinstance(loader.dataset, IterableDataset) or type(sampler) is SequentialSampler
    shuffled = type(sampler) is RandomSampler and not sampler.replacement
    if not (in_order or shuffled) or type(batches) is not BatchSampler or loader.drop_last:
        raise RequestError(
            "model.evaluate(): the DataLoader has a sampler of its own, drop_last, or no batches, "
            "and each rank takes its samples from the dataset itself: give the dataset"
        )
