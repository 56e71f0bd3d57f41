"""What a step of a pipeline should take: its schedules in virtual time, with measured passes.

    critical path      | passes and transfers as scheduled | sum of replicas | apply |
    computing alone    | passes as scheduled, transfers take no time         | apply |
    transfers alone    | transfers as scheduled, passes take no time | sum of replicas |

A step should take the critical path: the schedules as the engine runs them, at the rates and
latency that are imposed, with passes as long as they were measured (the median of a stage's forward
and of its backward passes). Of its two parts, each as if the other took no time, the larger is what
no schedule of these stages is below: the bound. What is between the two cannot be hidden: transfers
and latencies while the pipeline fills and drains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.parts.pipelines.scale import Scale
from benchmarks.parts.predictions import AllReduce
from dayfly.runs.pipelining import Pipelining
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.pipelines.orders import BACKWARD, FORWARD, ORDERS
from dayfly.wire.pipelines.step import worthwhile_bytes
from dayfly.wire.schedule import Kind, Schedule, Work
from dayfly.wire.shaping import Rates
from dayfly.wire.virtual import Link, simulate

Json = Mapping[str, Any]
_KINDS = {FORWARD: "f", BACKWARD: "b"}
_SMALL_BYTES = 24  # of the sum of the loss and the wishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """What a stage computes in a step. In seconds, medians over steps, micro-batches, replicas."""

    forward_s: float
    backward_s: float
    apply_s: float

    def work_s(self, work: Work) -> float:
        """Of one pass."""
        return self.forward_s if work.what == FORWARD else self.backward_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Seconds of a step; see the module."""

    critical_path_s: float
    compute_s: float
    transfer_s: float

    @property
    def bound_s(self) -> float:
        """The larger of its two parts."""
        return max(self.compute_s, self.transfer_s)


def stage_passes(records: Iterable[Json]) -> Passes:
    """From the step records of a stage's workers."""
    taken: dict[str, list[float]] = {"f": [], "b": []}
    apply_s: list[float] = []
    for record in records:
        for what, _, start_ms, end_ms in record["passes"]:
            taken[what].append((end_ms - start_ms) / 1e3)
        spans = record["spans"].get("apply", [])
        apply_s.append(sum(end - start for start, end in spans) / 1e3)
    return Passes(
        forward_s=median(taken[_KINDS[FORWARD]]),
        backward_s=median(taken[_KINDS[BACKWARD]]),
        apply_s=median(apply_s),
    )


def predicted(
    line: Pipelining,
    batch_size: int,
    passes: Sequence[Passes],
    flat_bytes: Sequence[int],
    scale: Scale,
    abilities: Abilities,
    collective: str,
) -> Predicted:
    """A step in virtual time. passes: of each stage. flat_bytes: what its replicas sum."""
    link = scale.link(abilities.in_flight)
    way = Rates(
        up_bytes_per_s=link.up_bytes_per_s,
        down_bytes_per_s=link.down_bytes_per_s,
        latency_s=link.latency_s,
    )
    worthwhile = worthwhile_bytes([way], abilities.in_flight)
    schedules = _schedules(line, batch_size, max(abilities.chunk_bytes, worthwhile))
    sums = [
        all_reduce(collective, replicas, size, scale, abilities) if replicas > 1 else None
        for size, replicas in zip(flat_bytes, line.layout.each, strict=True)
    ]
    sum_s = [0.0 if one is None else one.virtual_s for one in sums]
    apply_s = [one.apply_s for one in passes]
    none = [0.0] * len(passes)
    endless = replace(
        link, up_bytes_per_s=float("inf"), down_bytes_per_s=float("inf"), latency_s=0.0
    )
    idle = [Passes(forward_s=0.0, backward_s=0.0, apply_s=0.0)] * len(passes)
    after_s = [a + b for a, b in zip(sum_s, apply_s, strict=True)]
    return Predicted(
        critical_path_s=_end_s(line, schedules, passes, link, after_s),
        compute_s=_end_s(line, schedules, passes, endless, apply_s),
        transfer_s=_end_s(line, schedules, idle, link, sum_s or none),
    )


def all_schedules(
    line: Pipelining,
    batch_size: int,
    flat_bytes: Sequence[int],
    scale: Scale,
    abilities: Abilities,
    collective: str,
) -> list[Schedule]:
    """Of a step, every rank's: of the passes, of the loss's sum, and of each stage's sum."""
    whole = _schedules(line, batch_size, abilities.chunk_bytes)
    whole += all_reduce(
        "all-reduce", line.layout.world_size, _SMALL_BYTES, scale, abilities
    ).schedules()
    for size, replicas in zip(flat_bytes, line.layout.each, strict=True):
        if replicas > 1:
            whole += all_reduce(collective, replicas, size, scale, abilities).schedules()
    return whole


def all_reduce(
    name: str, workers: int, size_bytes: int, scale: Scale, abilities: Abilities
) -> AllReduce:
    """An all-reduce under the scale's caps."""
    link = scale.link(abilities.in_flight)
    return AllReduce(
        name=name,
        world_size=workers,
        size_bytes=size_bytes,
        bytes_per_s=link.up_bytes_per_s,
        latency_s=link.latency_s,
        abilities=abilities,
    )


def requests(schedules: Iterable[Schedule], *kinds: Kind) -> int:
    """Operations of these kinds."""
    return sum(op.kind in kinds for schedule in schedules for op in schedule)


def _schedules(line: Pipelining, batch_size: int, chunk_bytes: int) -> list[Schedule]:
    """Every rank's."""
    order = ORDERS[line.schedule]
    schedules = []
    for rank in range(line.layout.world_size):
        at = line.layout.stage_rank(rank)
        passing = line.flow.passing(batch_size, at)
        schedules.append(line.step(at, order, passing, chunk_bytes).schedule())
    return schedules


def _end_s(
    line: Pipelining,
    schedules: Sequence[Schedule],
    passes: Sequence[Passes],
    link: Link,
    after_s: Sequence[float],
) -> float:
    """When the last rank is through. after_s: what each stage does after its last pass."""

    def work_s(rank: int, work: Work) -> float:
        return passes[line.layout.stage_rank(rank).stage].work_s(work)

    times = simulate(schedules, link, itemsize=1, work_s=work_s)
    # What is sent last is another's to wait for.
    ends_s = [max(one.done_s for one in rank if one.op.kind is Kind.COMPUTE) for rank in times]
    return max(
        end_s + after_s[line.layout.stage_rank(rank).stage] for rank, end_s in enumerate(ends_s)
    )
