"""A plan of a cut model: its stages, what functions each has, and how a step goes through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from dayfly.planning.choose.front import counted
from dayfly.wire.pipelines.orders import FILL_DRAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """Stages of layers, what functions each has, and how a step is split.

    Attributes:
        starts: layers that begin a stage, but for the first.
        options: of each stage, its index in the problem's; 0 over links.
        memory_mib, replicas: of each stage's functions.
        micro_batches: M of a step, all replicas' together.
        collective: `pipelined`, `scatter-reduce` or `ring`, a name of `dayfly train --collective`.
        store: its name; empty over links.
        schedule: order of a step's passes, of `wire.pipelines.orders`.
        layers: L.
    """

    layers: int
    starts: tuple[int, ...]
    options: tuple[int, ...]
    memory_mib: tuple[int, ...]
    replicas: tuple[int, ...]
    micro_batches: int
    collective: str
    store: str = ""
    schedule: str = FILL_DRAIN

    def __post_init__(self) -> None:
        if list(self.starts) != sorted({*self.starts} & {*range(1, self.layers)}):
            raise ValueError(f"stages begin at {self.starts}: give layers 1 to the last, rising")
        each = {len(self.options), len(self.memory_mib), len(self.replicas)}
        if each != {len(self.starts) + 1}:
            raise ValueError(f"{len(self.starts) + 1} stages have values for {sorted(each)}")

    @property
    def pipelined(self) -> bool:
        """Whether replicas sum up by pipelined scatter-reduce."""
        return self.collective == "pipelined"

    @property
    def way(self) -> tuple[int, str]:
        """How a step is gone through: micro-batches, and the order of passes."""
        return self.micro_batches, self.schedule

    @property
    def functions(self) -> int:
        """At once."""
        return sum(self.replicas)

    @property
    def degree(self) -> int | None:
        """d, the replicas of every stage; None: stages have different numbers."""
        return self.replicas[0] if len(set(self.replicas)) == 1 else None

    @property
    def stages(self) -> tuple[range, ...]:
        """Layers of each."""
        return tuple(map(range, (0, *self.starts), (*self.starts, self.layers)))

    def __str__(self) -> str:
        return in_words(
            self.starts,
            self.memory_mib,
            self.replicas,
            self.micro_batches,
            collective=self.collective,
            store=self.store,
            schedule=self.schedule,
        )


def in_words(
    starts: Sequence[int],
    memory_mib: Sequence[int],
    replicas: Sequence[int],
    micro_batches: int,
    *,
    collective: str,
    store: str,
    schedule: str,
) -> str:
    """Returns a plan in a line, such as `2 stages (cut before layer 3) of 2 x 512 MiB, 1 replica,
    4 micro-batches over s3`.

    Args:
        starts, memory_mib, replicas, micro_batches, collective, store, schedule: as of
            `PipelinePlan`.
    """
    memory = [f"{len(list(same))} x {size} MiB" for size, same in groupby(memory_mib)]
    begin = f" (cut before layer {', '.join(map(str, starts))})" if starts else ""
    if len(set(replicas)) > 1:
        each = f"replicas {', '.join(map(str, replicas))}"
    else:
        each = counted(replicas[0], "replica")
    micro = f"{micro_batches} micro-batch{'' if micro_batches == 1 else 'es'}"
    said = f"{counted(len(memory_mib), 'stage')}{begin} of {', '.join(memory)}, {each}, "
    summed = f", {collective}" if max(replicas) > 1 else ""
    micro += "" if schedule == FILL_DRAIN else f" by {schedule}"
    return f"{said}{micro}{summed}{f' over {store}' if store else ''}"
