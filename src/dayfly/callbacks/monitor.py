"""Which epoch of a history is the best by a value. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dayfly.errors import RequestError

#: Values whose mode is known.
_MODES: Mapping[str, Literal["min", "max"]] = {
    "train_loss": "min",
    "val_loss": "min",
    "val_accuracy": "max",
}


@dataclass(frozen=True, slots=True)
class Monitor:
    """A value of the history, and whether less or more of it is better."""

    name: str
    mode: Literal["min", "max"]

    @classmethod
    def of(cls, name: str | None = None, mode: str | None = None) -> Monitor:
        """As a user gives it.

        Args:
            name: in the history's records; None: `val_loss`.
            mode: `min` or `max`; None: that of a loss or of `val_accuracy`.

        Raises:
            RequestError: the mode is another, or must be given.
        """
        name = "val_loss" if name is None else name
        if mode is None and name not in _MODES:
            raise RequestError(
                f"monitor {name!r}: say whether less or more of it is better (mode min or max)"
            )
        if mode not in (None, "min", "max"):
            raise RequestError(f"mode {mode!r}: give min or max")
        found = mode or _MODES[name]
        return cls(name, "max" if found == "max" else "min")

    @property
    def of_training(self) -> bool:
        """Whether each epoch has the value, validated or not."""
        return self.name == "lr" or self.name.startswith(("train_", "lr-"))

    def better(self, value: Any, than: float | None, min_delta: float = 0.0) -> bool:
        """Whether a value improves on another one by more than `min_delta`; NaN never does."""
        if not isinstance(value, (int, float)) or math.isnan(value):
            return False
        if than is None:
            return True
        return value < than - min_delta if self.mode == "min" else value > than + min_delta

    def best(
        self, history: Sequence[Mapping[str, Any]], min_delta: float = 0.0, every: int = 1
    ) -> tuple[int | None, int]:
        """Finds the best epoch, of equal ones the first, and how long ago it was.

        Args:
            history: records of the epochs, in order.
            min_delta: least improvement that counts.
            every: epochs between validations: of those without one, nothing is expected.

        Returns:
            The best epoch, None if there is none, and the number of validations since then.
        """
        epoch, value, since = None, None, 0
        for record in history:
            measured = record.get(self.name)
            if self.better(measured, value, min_delta):
                epoch, value, since = int(record["epoch"]), measured, 0
            elif measured is not None or record["epoch"] % every == 0:
                since += 1
        return epoch, since
