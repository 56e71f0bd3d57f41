"""Measurements of functions of one size, and how fast the parts of a step are in real steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dayfly.runs.profiling.passes import Round
from dayfly.wire.collectives import Collective

Json = Mapping[str, Any]

#: Parts in real steps are taken to be so many times as fast as by themselves, at most.
_MOST_PACE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of functions of one size.

    Args:
        cpu_cores: None: not limited.
        period_s, at_once_s: how often it gets CPU time anew, and how much; None: any.
        samples: of passes, the most first.
        step_samples: of a worker's whole step.
        trained_bytes: of the model.
        inits_s, bases_mib: of functions that did nothing.
        life: of the worker, with its run_s and last_s.
        lead, follow: of the two that sent each other messages.
        collective: by which they summed, elements of `few`.
        in_flight: of their channel.
        neighbours: how many computed beside the worker in turns.
    """

    memory_mib: int | None
    cpu_cores: float | None
    period_s: float
    at_once_s: float | None
    samples: tuple[int, ...]
    step_samples: int
    trained_bytes: int
    inits_s: tuple[float, ...]
    bases_mib: tuple[float, ...]
    life: Json
    run_s: float
    last_s: float
    lead: Json
    follow: Json
    collective: Collective
    few: int
    in_flight: int
    neighbours: int = 0

    @property
    def limited(self) -> bool:
        """Whether the function's threads share less than one core."""
        return self.cpu_cores is not None and self.cpu_cores < 1

    @property
    def share(self) -> float:
        """CPU seconds a second of a thread that only computes."""
        shares = self.life["parts"]["share"]
        cpu_s, wall_s = sum(cpu_s for cpu_s, _ in shares), sum(wall_s for _, wall_s in shares)
        return min(1.0, float(cpu_s) / float(wall_s))

    @property
    def rounds(self) -> Sequence[Round]:
        """Real steps."""
        return [Round(*one) for one in self.life["rounds"] or [self.life["first"]]]

    @property
    def around_s(self) -> float:
        """CPU seconds of computing a real step that are of none of its parts."""
        return self._around_alone_s * self.share / self.pace

    @property
    def _around_alone_s(self) -> float:
        plain = self.life["parts"][f"plain {self.samples[0]}"]
        return float(median(around for *_, around in plain))

    @property
    def pace(self) -> float:
        """Of CPU seconds of passes and reading, timed by themselves, to wall seconds of real steps.

        That is the share, if they take as long in real steps as by themselves.
        """
        parts, samples = self.life["parts"], self.samples[0]
        forward, backward, _ = map(median, zip(*parts[f"plain {samples}"], strict=True))
        putting = median(batch for _, batch in parts[f"read {samples}"])
        alone_s = (forward + backward + putting) * self.step_samples / samples
        alone_s += self._around_alone_s
        among_s = median(one.compute_s for one in self.rounds)
        return self.share * _faster(alone_s, among_s)

    @property
    def apply_pace(self) -> float:
        """The same of applying."""
        alone_s = median(apply for apply, _ in self.life["parts"]["apply"])
        among_s = median(one.apply_s for one in self.rounds)
        return self.share * _faster(alone_s, among_s)


def _faster(alone_s: float, among_s: float) -> float:
    """How many times as fast a part is in real steps as by itself."""
    return alone_s / max(among_s, alone_s / _MOST_PACE) if alone_s else 1.0
