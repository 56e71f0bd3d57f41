"""Which rank computes which stage of a model, and which replica of it.

    Layout(stages=3, replicas=2)      stage 0   stage 1   stage 2
    replica 0                         rank 0 -> rank 2 -> rank 4
    replica 1                         rank 1 -> rank 3 -> rank 5

A row is a pipeline: activations go along it, and gradients come back. A column holds the same
parameters, and sums their gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from dayfly.wire.schedule import check_rank


@dataclass(frozen=True, slots=True)
class Place:
    """Which stage of the model a rank computes, and which replica of it; counted from 0."""

    stage: int
    replica: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A number of stages, and of replicas of each. Raises ValueError unless there is one at least.

    rank = stage * replicas + replica.
    """

    stages: int
    replicas: int

    def __post_init__(self) -> None:
        if self.stages < 1 or self.replicas < 1:
            raise ValueError(f"{self}: a pipeline has a stage and a replica at least")

    @property
    def world_size(self) -> int:
        """Ranks of all stages."""
        return self.stages * self.replicas

    def place(self, rank: int) -> Place:
        """What a rank computes. Raises ValueError if there is no such rank."""
        check_rank(rank, self.world_size)
        return Place(*divmod(rank, self.replicas))

    def rank(self, stage: int, replica: int) -> int:
        """Who computes a stage's replica. Raises ValueError if there is no such place."""
        if not (0 <= stage < self.stages and 0 <= replica < self.replicas):
            raise ValueError(f"replica {replica} of stage {stage}: there is none in {self}")
        return stage * self.replicas + replica

    def stage_ranks(self, stage: int) -> range:
        """The ranks of a stage, in the order of their replicas; ValueError if there is none."""
        first = self.rank(stage, 0)
        return range(first, first + self.replicas)
