"""What is trained in a soak: the small job of the tests of runs, made to last."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import dayfly
from tests.runs import small

EPOCHS = 6
STEPS_AN_EPOCH = small.STEPS_AN_EPOCH
STEPS = STEPS_AN_EPOCH * EPOCHS


@dataclass(frozen=True, slots=True)
class Slow:
    """`small.noisy`, with a pause before each sample: the bits are the same.

    Args:
        seconds: of the pause.
        held: a file; there are pauses only while it exists. None: always.
    """

    seconds: float
    held: Path | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.held is None or self.held.exists():
            time.sleep(self.seconds)
        return small.noisy(x)


def job(
    data: Path, *, epochs: int = EPOCHS, sample_s: float = 0.0, held: str | None = None
) -> dayfly.Job:
    """Returns the job.

    Args:
        data: from `small.write_data`.
        epochs: of nine steps.
        sample_s: pause before each sample; 0: none.
        held: path of a file; there are pauses only while it exists. None: always.
    """
    changes: dict[str, Any] = {"epochs": epochs}
    if sample_s:
        changes["transform"] = Slow(sample_s, None if held is None else Path(held))
    return small.job(data, **changes)


def sample_s(least_s: float, workers: int) -> float:
    """Returns the pause with which `EPOCHS` last at least so long on so many workers."""
    return least_s * workers / (STEPS * small.BATCH)
