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
    """`small.noisy`, which takes so many seconds more: the bits are the same."""

    seconds: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return small.noisy(x)


def job(data: Path, workers: int, least_s: float) -> dayfly.Job:
    """Lasts at least so long on so many workers; 0: as long as it takes."""
    changes: dict[str, Any] = {"epochs": EPOCHS}
    if least_s:
        changes["transform"] = Slow(least_s * workers / (STEPS * small.BATCH))
    return small.job(data, **changes)
