"""Good requests, to be made wrong in one way each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.runs.prepare import Prepared, prepare
from dayfly.runs.settings import Settings


class Rows:
    """A Dataset of 24 samples of 3 classes."""

    def __init__(self, samples: int = 24) -> None:
        generator = torch.Generator().manual_seed(2)
        self.x = torch.randn(samples, 6, generator=generator)
        self.y = torch.arange(samples) % 3

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def regression() -> nn.Module:
    return nn.Linear(6, 1)


def given(**changes: Any) -> dict[str, Any]:
    return {
        "model": model,
        "data": lambda: (Rows(), Rows(9)),
        "loss": F.cross_entropy,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 8,
        **changes,
    }


def prepared(*, workers: int = 1, **changes: Any) -> Prepared:
    job = Job(**given(**changes))
    return prepare(job, Settings(workers=workers))


def refusal(*, workers: int = 1, **changes: Any) -> str:
    """The sentence with which a request is refused."""
    try:
        prepared(workers=workers, **changes)
    except RequestError as error:
        text = str(error)
        assert "\n" not in text, "one line"
        assert text == text.strip()
        return text
    raise AssertionError("the request was not refused")


def saved(directory: Path, **changes: Any) -> Path:
    """Good arrays as a directory of .npy files; None leaves one out."""
    rows = Rows()
    arrays = {"x_train": rows.x.numpy(), "y_train": rows.y.numpy(), **changes}
    for name, array in arrays.items():
        if array is not None:
            np.save(directory / f"{name}.npy", array)
    return directory
