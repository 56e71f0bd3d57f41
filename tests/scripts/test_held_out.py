"""What `model.evaluate` takes: samples in the forms that scripts have, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

from dayfly.errors import RequestError
from dayfly.runs.scripts.held_out import held_out_source

X, Y = torch.arange(10.0)[:, None], torch.arange(10)
PAIRS = TensorDataset(X, Y)


class Stream(IterableDataset):  # type: ignore[type-arg]
    """The pairs, one after another."""

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[Any]:
        return iter(PAIRS)


def as_dict(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"x": torch.stack([x for x, _ in samples]), "y": torch.stack([y for _, y in samples])}


FORMS: dict[str, tuple[Any, ...]] = {
    "dataset": (PAIRS,),
    "list": (list(zip(X, Y, strict=True)),),
    "stream": (Stream(),),
    "loader": (DataLoader(PAIRS, 4),),
    "shuffled loader": (DataLoader(PAIRS, 3, shuffle=True),),
    "loader of a stream": (DataLoader(Stream(), 3),),
    "own batches": (DataLoader(PAIRS, 3, collate_fn=as_dict),),
    "tensors": (X, Y),
    "pair": ((X, Y),),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_finds_its_samples_in_every_form(form: str) -> None:
    source = held_out_source(FORMS[form], seed=0)
    assert source.samples == 10
    numbers = np.arange(4, 7)
    batch = source.batch(source.fetch(numbers), numbers, range(3), -1)
    x, y = batch.values() if isinstance(batch, dict) else batch
    assert x.tolist() == [[4.0], [5.0], [6.0]]
    assert y.tolist() == [4, 5, 6]


WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "nothing": ((), "was given no samples"),
    "a number": ((3,), "was given a int: give a Dataset with a length"),
    "no samples": ((X[:0], Y[:0]), "was given no samples"),
    "unequal": ((X, Y[:4]), "tensors have 10, 4 rows: give equally many"),
    "sampler": (
        (DataLoader(PAIRS, 2, sampler=RandomSampler(PAIRS, replacement=True)),),
        "give the dataset",
    ),
    "drop_last": ((DataLoader(PAIRS, 3, drop_last=True),), "drop_last"),
    "no batches": ((DataLoader(PAIRS, batch_size=None),), "or no batches"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_shared_out_is_refused(name: str) -> None:
    data, expected = WRONG[name]
    with pytest.raises(RequestError, match=expected):
        held_out_source(data, seed=0)
