"""What the settings of a run say of its pipeline: which worker is which replica of which stage.

--cut 4,9 --replicas 2      stage 0          stage 1          stage 2
layers                      0 to 3           4 to 8           9 to the last
workers                     0, 1             2, 3             4, 5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dayfly.runs.functions import FunctionSettings
from dayfly.runs.settings import Settings

_SCHEDULES = {"fill-drain": "fill-drain", "1f1b": "1F1B"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A pipeline's form. cut: the first layer of each stage but the first.

    micro_batches: a replica's; 0 where the settings leave them to the job. memory_mib: of each
    stage's functions, None where nobody said.
    """

    cut: tuple[int, ...]
    replicas: int = 1
    micro_batches: int = 0
    schedule: str | None = None
    memory_mib: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, settings: FunctionSettings) -> Self | None:
        """From a run's settings; None if its model was not cut."""
        if not isinstance(settings, Settings) or not settings.cut:
            return None
        return cls(
            cut=settings.cut,
            replicas=settings.members,
            micro_batches=settings.micro_batches or 0,
            schedule=settings.schedule,
            memory_mib=settings.stage_memory_mib or (settings.memory_mib,) * settings.stages,
        )

    @property
    def count(self) -> int:
        """How many stages there are."""
        return len(self.cut) + 1

    @property
    def ideal_bubble(self) -> float:
        """Share of a step in which a worker idles if all stages take equally long, 0 to 1.

        (K - 1) / (M + K - 1) for K stages and M micro-batches, of fill-drain as of 1F1B; nothing
        but passes takes time, and M is at least 1. GPipe (Huang et al. 2019), section 2.3.
        """
        return (self.count - 1) / (max(1, self.micro_batches) + self.count - 1)

    def stage_of(self, worker: int) -> int:
        """Ranks count through a stage's replicas first."""
        return worker // self.replicas

    def name(self, worker: int) -> str:
        """A worker, in words."""
        stage, replica = divmod(worker, self.replicas)
        of = f", replica {replica}" if self.replicas > 1 else ""
        return f"stage {stage}{of} (worker {worker})"

    def short(self, worker: int) -> str:
        """A worker, where there is room for a few letters."""
        stage, replica = divmod(worker, self.replicas)
        return f"s{stage}r{replica}" if self.replicas > 1 else f"s{stage}"

    def layers(self, stage: int) -> str:
        """Which of the model's layers a stage has, both ends counted."""
        first = self.cut[stage - 1] if stage else 0
        if stage == self.count - 1:
            return f"layers {first} to the last"
        last = self.cut[stage] - 1
        return f"layers {first} to {last}" if first < last else f"layer {first}"

    def memory(self, stage: int) -> int | None:
        """The memory of a stage's functions, in MiB; None if nobody said."""
        return self.memory_mib[stage] if stage < len(self.memory_mib) else None

    def title(self, stage: int) -> str:
        """A stage with all that is known of it."""
        memory = self.memory(stage)
        return f"stage {stage}: {self.layers(stage)}" + (f", {memory} MiB" if memory else "")

    def form(self) -> str:
        """The pipeline in a few words."""
        parts = [f"{self.count} stages"]
        parts += [f"{self.replicas} replicas"] if self.replicas > 1 else []
        if self.micro_batches:
            parts.append(f"{self.micro_batches} micro-batch{'es' * (self.micro_batches > 1)}")
        if self.schedule:
            parts.append(_SCHEDULES.get(self.schedule, self.schedule))
        return ", ".join(parts)
