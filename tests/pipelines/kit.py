"""Pipelines for tests: the steps of all ranks, and what travels in them, computed by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import torch

from dayfly.wire.pipelines.orders import FORWARD, MakeOrder
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, input_part, output_part
from dayfly.wire.schedule import Kind, Lane, Name, Schedule, Work

#: Between stage s and the next, by micro-batch.
Boundaries = Sequence[Mapping[int, StageBoundary]]


def equal(layout: Layout, micro_batches: Sequence[int], size: int) -> list[Boundaries]:
    """Boundaries of every replica where all messages are of so many bytes."""
    one = StageBoundary(activation_bytes=size, gradient_bytes=size)
    return [[dict.fromkeys(micro_batches, one)] * (layout.stages - 1)] * layout.replicas


def pipeline(
    layout: Layout,
    make: MakeOrder,
    micro_batches: Sequence[int],
    boundaries: Sequence[Boundaries],
    chunk_bytes: int,
) -> list[PipelineStep]:
    """The step of every rank. boundaries: one each replica."""
    steps = []
    for rank in range(layout.world_size):
        at = layout.stage_rank(rank)
        own = boundaries[at.replica]
        steps.append(
            PipelineStep(
                layout=layout,
                stage_rank=at,
                order=make(at.stage, layout.stages, micro_batches),
                before=own[at.stage - 1] if at.stage else {},
                behind=own[at.stage] if at.stage < layout.stages - 1 else {},
                chunk_bytes=chunk_bytes,
            )
        )
    return steps


def one_at_a_time(schedules: Sequence[Schedule]) -> list[int]:
    """How far ranks come that each do one operation after another, as over a channel in memory."""
    there, done = set(), [0] * len(schedules)
    moved = True
    while moved:
        moved = False
        for rank, schedule in enumerate(schedules):
            while done[rank] < len(schedule):
                op = schedule.ops[done[rank]]
                if op.kind is Kind.GET and op.name not in there:
                    break
                if op.kind is Kind.PUT:
                    there.add(op.name)
                done[rank] += 1
                moved = True
    return done


def ends_in(
    outbox_bytes: int, schedules: Sequence[Schedule], in_flight: int, random: Random
) -> bool:
    """Whether all ranks come to an end where a put waits until its sender's outbox has room.

    As over a direct channel: an outbox holds messages that are not read. Of the operations that may
    be under way, `random` says which is the next, as any put may take the room that there is.
    """
    lanes = [
        {lane: [at for at, op in enumerate(each) if op.lane is lane] for lane in Lane}
        for each in schedules
    ]
    done: list[set[int]] = [set() for _ in schedules]
    unread: dict[Name, int] = {}
    room = [outbox_bytes] * len(schedules)

    def possible() -> Iterator[tuple[int, int]]:
        for rank, own in enumerate(lanes):
            for lane, queue in own.items():
                first = next((nth for nth, at in enumerate(queue) if at not in done[rank]), None)
                if first is None:
                    continue
                for at in queue[first : first + (1 if lane is Lane.COMPUTE else in_flight)]:
                    if at in done[rank]:
                        continue
                    op = schedules[rank].ops[at]
                    if not done[rank].issuperset(op.after):
                        break  # a lane starts its operations in their order
                    full = op.kind is Kind.PUT and len(op.span) > room[rank]
                    if not full and not (op.kind is Kind.GET and op.name not in unread):
                        yield rank, at

    while some := list(possible()):
        rank, at = random.choice(some)
        op = schedules[rank].ops[at]
        if op.name is not None and op.kind is Kind.PUT:
            room[rank] -= len(op.span)
            unread[op.name] = rank
        elif op.name is not None:
            room[unread.pop(op.name)] += len(op.span)
        done[rank].add(at)
    return [len(each) for each in done] == [len(schedule) for schedule in schedules]


@dataclass
class Stage:
    """What a rank computes: bytes that follow from its place, the pass, and all that came in.

    came: the input of every pass. made: its output.
    """

    step: PipelineStep
    came: dict[Work, torch.Tensor] = field(default_factory=dict)
    made: dict[Work, torch.Tensor] = field(default_factory=dict)

    def compute(self, work: Work, into: torch.Tensor) -> torch.Tensor:
        """The output of a pass from its input. A backward pass also needs the forward one's."""
        self.came[work] = into.clone()
        size = self.step.sizes()[output_part(work)]
        own = self.step.stage_rank
        seed = hash((own.stage, own.replica, work.micro_batch, work.what == FORWARD))
        pattern = torch.randint(
            0, 256, (size,), generator=torch.Generator().manual_seed(seed), dtype=torch.int64
        )
        salt = _folded(into)
        if work.what != FORWARD:
            salt += 7 * _folded(self.came[Work(FORWARD, work.micro_batch)])
        self.made[work] = ((pattern + salt) % 256).to(torch.uint8)
        return self.made[work]

    def on(self, slots: Slots, work: Work) -> None:
        """A pass, as the engine asks for it."""
        sizes = self.step.sizes()
        empty = torch.empty(0, dtype=torch.uint8)
        into = slots.take(input_part(work)) if sizes[input_part(work)] else empty
        slots.put(output_part(work), self.compute(work, into))


def expected(steps: Sequence[PipelineStep]) -> list[Stage]:
    """What every rank gets and makes, computed pass by pass in one place."""
    ranks = [Stage(step) for step in steps]
    layout = steps[0].layout
    for rank in range(layout.world_size):  # ranks of earlier stages are smaller
        for work in steps[rank].order:
            if work.what == FORWARD:
                _pass(ranks, rank, work, -1)
    for rank in reversed(range(layout.world_size)):
        for work in steps[rank].order:
            if work.what != FORWARD:
                _pass(ranks, rank, work, 1)
    return ranks


def _pass(ranks: Sequence[Stage], rank: int, work: Work, neighbour: int) -> None:
    layout = ranks[rank].step.layout
    source = rank + neighbour * layout.replicas
    into = torch.empty(0, dtype=torch.uint8)
    if 0 <= source < layout.world_size:
        into = ranks[source].made[work]
    ranks[rank].compute(work, into)


def _folded(values: torch.Tensor) -> int:
    """A number that shows where bytes were swapped, too."""
    places = torch.arange(1, len(values) + 1)
    return int((values.to(torch.int64) * places).sum())
