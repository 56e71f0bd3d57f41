"""A run's boundaries between two epochs: what is known there, and what was decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dayfly.batches import Batches
from dayfly.runs.deciders import Boundary, Decision, Decisions


class Boundaries:
    """The boundaries of a run that its coordinator has come to.

    Args:
        decisions: of the run's deciders.
        epochs: in which step they are.
        steps: of the whole run.
        noted: is given the records of the epochs that are known, by number.

    Attributes:
        ended: what ends the run at the last boundary that was asked about; None: nothing does.
        ended_at: completed steps at the first boundary that ends it.
    """

    def __init__(
        self,
        decisions: Decisions,
        epochs: Batches,
        steps: int,
        noted: Callable[[Mapping[int, Mapping[str, Any]]], None],
    ) -> None:
        self._decisions = decisions
        self._epochs = epochs
        self._steps = steps
        self._noted = noted
        self._history: dict[int, Mapping[str, Any]] = {}
        self._kept_at: dict[int, tuple[str, ...]] = {}
        self.ended: Decision | None = None
        self.ended_at: int | None = None

    def __bool__(self) -> bool:
        """Whether anybody decides at them."""
        return bool(self._decisions)

    def follow(self, epochs: Batches, steps: int) -> None:
        """Replaces the division of epochs into batches, as a change of the batch size requires.

        Args:
            epochs: the new division.
            steps: of the whole run, by that division.
        """
        self._epochs, self._steps = epochs, steps

    def note(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Takes the records of epochs."""
        self._history |= {int(record["epoch"]): record for record in records}
        self._noted(self._history)

    def until(self, step: int) -> tuple[Mapping[str, Any], ...]:
        """Returns the records of the epochs that were whole after `step` steps."""
        epochs = range(1, self._epochs.epoch(step) + 1)
        return tuple(self._history[epoch] for epoch in epochs)

    def is_at(self, step: int) -> bool:
        """Whether an epoch ended after `step` steps."""
        return step > 0 and self._epochs.begins_epoch(step)

    def ask(self, step: int) -> Decision:
        """Returns what happens after `step` steps, the end of an epoch."""
        if not self._decisions:
            return Decision()
        last = step >= self._steps
        found = self._decisions.at(Boundary(step=step, history=self.until(step), last=last))
        self._kept_at[step] = found.keep
        self.ended = found if found.reason is not None else None
        if found.reason is not None and self.ended_at is None:
            self.ended_at = step
        return found

    def kept_at(self, step: int) -> tuple[str, ...]:
        """Returns the files that get the weights of the boundary after `step` steps."""
        return self._kept_at.get(step, ())
