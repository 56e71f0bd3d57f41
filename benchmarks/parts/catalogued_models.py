"""Profiles of dayfly's models for Lambda over S3 by the catalogue, of 50,000 samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.models import MODELS
from dayfly.models.registry import Entry
from dayfly.planning.catalogued import Assumed
from dayfly.planning.profile import Profile
from dayfly.runs.profiling.from_catalogue import catalogued_profile

_SAMPLES, _VALIDATION_SAMPLES = 50_000, 500
_BASE_MIB, _COLD_START_S = 230.0, 1.0


class _Alike(torch.utils.data.Dataset[Any]):
    """The same sample over and over: a profile by the catalogue looks at few."""

    def __init__(self, entry: Entry, count: int) -> None:
        self._one = torch.zeros(entry.sample_shape, dtype=entry.sample_type)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> Any:
        return self._one, torch.tensor(0)


def profiled(name: str, *, memory_mib: Sequence[int], batch_size: int) -> Profile:
    """Returns the profile of a model.

    Args:
        name: of `dayfly.models.MODELS`.
        memory_mib: sizes of functions.
        batch_size: of the job.
    """
    entry = MODELS[name]
    job = dayfly.Job(
        model=entry.build,
        data=lambda: (_Alike(entry, _SAMPLES), _Alike(entry, _VALIDATION_SAMPLES)),
        loss=cross_entropy,
        optimizer=partial(torch.optim.SGD, lr=0.1),
        batch_size=batch_size,
        epochs=1,
    )
    return catalogued_profile(
        job,
        name=name,
        platform="aws-lambda",
        store="s3",
        memory_mib=tuple(memory_mib),
        assumed=Assumed(base_mib=_BASE_MIB, cold_start_s=_COLD_START_S),
        catalogue=Catalogue(),
    )
