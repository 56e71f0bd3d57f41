"""How far a run has come, as the checkpoint keeps it: equal on every replica."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from dayfly.specs.events import epochs_from_1
from dayfly.training.state import decode, encode

#: One epoch: epoch (from 1), train_loss, val_loss, val_accuracy (None: not measured), metrics.
EpochRecord = dict[str, Any]


@dataclass(slots=True)
class Progress:
    """Losses of the epoch so far, and the epochs before it.

    not_finite: the first step whose loss, or whose validation's, was not finite, and that loss.
    """

    loss_sum: float = 0.0
    samples: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    not_finite: tuple[int, float] | None = None

    def add(self, step: int, loss: float, samples: int) -> None:
        """Note a step: its batch's mean loss, and its samples."""
        if self.not_finite is None and not math.isfinite(loss):
            self.not_finite = step, loss
        self.loss_sum += loss * samples
        self.samples += samples

    def become(self, other: Progress) -> None:
        """Be as far as another one."""
        self.loss_sum, self.samples, self.history = other.loss_sum, other.samples, other.history
        self.not_finite = other.not_finite

    def end_epoch(self, measured: Mapping[str, float | None]) -> EpochRecord:
        """Close the epoch with what validation measured (nothing, if there was none)."""
        record = {
            "epoch": len(self.history) + 1,
            "train_loss": self.loss_sum / self.samples,
            "val_loss": None,
            "val_accuracy": None,
            **measured,
        }
        self.history.append(record)
        self.loss_sum, self.samples = 0.0, 0
        return record

    def dump(self) -> Any:
        """For JSON; losses that are no number included."""
        return encode({one.name: getattr(self, one.name) for one in fields(self)}, "progress", {})

    @classmethod
    def load(cls, tree: Any) -> Self:
        """From what `dump` gave, by way of JSON."""
        progress = cls(**decode(tree, {}))
        progress.history = [dict(one) for one in epochs_from_1(progress.history)]
        return progress
