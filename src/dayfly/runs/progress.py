"""How far a run has come, as the checkpoint keeps it: equal on every replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from dayfly.train.state import decode, encode

#: One epoch's results: epoch, train_loss, val_loss, val_accuracy (None: not measured), metrics.
EpochRecord = dict[str, Any]


@dataclass(slots=True)
class Progress:
    """Losses of the epoch so far, and the epochs before it."""

    loss_sum: float = 0.0
    samples: int = 0
    history: list[EpochRecord] = field(default_factory=list)

    def add(self, loss: float, samples: int) -> None:
        """Note a step: its batch's mean loss, and its samples."""
        self.loss_sum += loss * samples
        self.samples += samples

    def become(self, other: Progress) -> None:
        """Be as far as another one."""
        self.loss_sum, self.samples, self.history = other.loss_sum, other.samples, other.history

    def end_epoch(self, measured: Mapping[str, float | None]) -> EpochRecord:
        """Close the epoch with what validation measured (nothing, if there was none)."""
        record = {
            "epoch": len(self.history),
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
        whole = {"loss_sum": self.loss_sum, "samples": self.samples, "history": self.history}
        return encode(whole, "progress", {})

    @classmethod
    def load(cls, tree: Any) -> Self:
        """From what `dump` gave, by way of JSON."""
        return cls(**decode(tree, {}))
