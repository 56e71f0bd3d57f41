"""A set of step numbers in little memory: workers compute steps in order, with few gaps."""

from __future__ import annotations

from bisect import bisect_right


class StepRanges:
    """Step numbers as disjoint ranges [start, stop) in order; memory grows with the gaps only."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, step: int) -> bool:
        """Adds a step.

        Returns:
            False if it was there already.
        """
        at = bisect_right(self._starts, step)  # the ranges before `at` begin at the step or before
        if at and step < self._stops[at - 1]:
            return False
        joins_before = bool(at) and self._stops[at - 1] == step
        joins_after = at < len(self._starts) and self._starts[at] == step + 1
        if joins_before and joins_after:
            self._stops[at - 1] = self._stops.pop(at)
            self._starts.pop(at)
        elif joins_before:
            self._stops[at - 1] = step + 1
        elif joins_after:
            self._starts[at] = step
        else:
            self._starts.insert(at, step)
            self._stops.insert(at, step + 1)
        return True

    def __len__(self) -> int:
        """Number of ranges."""
        return len(self._starts)
