"""What came of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dayfly.planning.simulation.chance import Ints
from dayfly.planning.simulation.course import Moved
from dayfly.planning.simulation.fleet import DEATHS, Attempt, End

Record = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Story:
    """What happened, in seconds of the run, for its events.

    coordinator: in order of time, without functions that began and ended. workers: of those that
    are watched, records as real ones report them.
    """

    coordinator: list[Record] = field(default_factory=list)
    workers: dict[int, list[Record]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A run that was simulated.

    status: "done", or "failed" with the error. attempts: of all functions, in the order of their
    ends. steps: that were completed. step_s: of each step that rank 0 took. epochs: (number, end).
    redone_steps: steps of workers that were computed again. moved: by worker, (N, 4). waited_s: of
    each worker, for others. computed_s: of each worker.
    """

    status: str
    error: str | None
    steps: int
    epochs: Sequence[tuple[int, float]]
    attempts: Sequence[Attempt]
    step_s: Sequence[float]
    redone_steps: int
    rollbacks: int
    checkpoints: int
    moved: Moved
    computed_s: Sequence[float]
    stragglers: Ints
    generation: int
    story: Story

    @property
    def run_s(self) -> float:
        """From the first invocation to the end of the last function."""
        return max((one.end_s for one in self.attempts), default=0.0)

    @property
    def deaths(self) -> int:
        """Of functions, by chance or in their first step."""
        return sum(one.end in DEATHS for one in self.attempts)

    @property
    def hand_overs(self) -> int:
        """Functions that handed over to their successors."""
        return sum(one.end is End.HANDED_OVER for one in self.attempts)

    @property
    def worst(self) -> Mapping[str, float]:
        """The worker that computed longest, and how long, beside the median."""
        ordered = sorted(self.computed_s)
        if not ordered:
            return {}
        seconds = max(self.computed_s)
        rank = self.computed_s.index(seconds) if isinstance(self.computed_s, list) else 0
        return {"rank": rank, "computed_s": seconds, "median_s": ordered[len(ordered) // 2]}
