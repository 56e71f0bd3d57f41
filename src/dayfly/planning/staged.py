"""Steps of a cut model, as schedules for virtual time.

    stage 0, replica 0   passes    |f0|f1|..|b0|b1|            |apply, rest|   the next step
                         bucket 0               |all-reduce|   |     among the stage's replicas
                         tail      |of all ranks          |    |

Replicas do the same passes: in virtual time each talks under a name of its own, so all of them have
the schedules of one pipeline alone (`_passage_plan`), which are made once.

See `runs.protocols`: pipeline.py, staged_validation.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dayfly.batches import BLOCK_NUMBERS, MicroBatch, micro_batches, validation_rounds
from dayfly.planning.configuration import (
    Configuration,
    elements,
    flat,
    stage_layers,
    stage_range,
    stage_size,
)
from dayfly.planning.data_parallel import adding_s
from dayfly.planning.function_times import cut_backward, pace, paced, passed
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import (
    ChannelModel,
    all_reduce,
    alone_or_side_by_side,
    chain,
    limited,
)
from dayfly.wire.collectives import SMALL_SUM
from dayfly.wire.leaves import leaves_of
from dayfly.wire.pipelines.orders import BACKWARD, FORWARD, ORDERS, MakeOrder, forward_only
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, StageRank
from dayfly.wire.processor import SharedProcessor
from dayfly.wire.schedule import CompiledSchedule, Op, Schedule, Work
from dayfly.wire.simulation import run
from dayfly.wire.streams import ALONE, Rank, Shared, Stream

#: Where nobody measured what a stage's messages take, each is taken to wake its lanes as those of a
#: sum of two do, of which each has so many.
_MESSAGES = 4
#: Elements of the tail: the loss and two wishes, float64.
TAIL, TAIL_BYTES = 3, 8
#: What the pieces of the last backward pass do, but for the last of them.
_PIECE = "backward, in part"


def ranks(
    profile: Profile, c: Configuration, means: ChannelModel, batch: int, among: range | None = None
) -> list[Rank]:
    """Returns what each worker of these replicas (None: all) does in a step of so many samples."""
    return [
        limited(stage.size, means, number, stage.step(replica, batch))
        for number, (stage, replica) in enumerate(_workers(profile, c, means))
        if among is None or replica in among
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRound:
    """A round of a validation.

    Args:
        ranks: all workers.
        count: how often it comes.
        alike: of each replica, the first that validates as many samples in each micro-batch.
    """

    ranks: Sequence[Rank]
    count: int
    alike: tuple[int, ...]


def validation(profile: Profile, c: Configuration, means: ChannelModel) -> list[ValidationRound]:
    """Returns each kind of round of all workers' validation."""
    workers = _workers(profile, c, means)
    kinds: dict[tuple[tuple[int, ...], ...], int] = {}
    for rounds in validation_rounds(
        profile.validation_samples, c.replicas, c.micro_batches, c.batch_size
    ):
        kind = tuple(tuple(map(len, blocks)) for blocks in rounds)
        kinds[kind] = kinds.get(kind, 0) + 1
    found = []
    for kind, count in kinds.items():
        made = [
            limited(stage.size, means, number, stage.validating(replica, kind))
            for number, (stage, replica) in enumerate(workers)
        ]
        # Where passes vary, each worker has a pace of its own.
        varied = any(stage.size.jitter for stage, _ in workers)
        alike = tuple(range(c.replicas)) if varied else tuple(map(kind.index, kind))
        found.append(ValidationRound(ranks=made, count=count, alike=alike))
    return found


def joining(of: ValidationRound, shared: Shared) -> Sequence[Rank]:
    """Returns ranks whose virtual time ends as the round's does, with fewer messages.

    The replicas of a round meet in its sum alone, so those that are alike are there at the same
    moments: one of them stands for all, and the ranks of the others wait until then. This holds
    where ranks share nothing, and neither messages nor sums take CPU time; else the round's own
    ranks are returned.

    Args:
        of: the round.
        shared: what all ranks have together.
    """
    replicas = len(of.alike)
    if len(set(of.alike)) == replicas or shared != ALONE or not all(map(_carries_only, of.ranks)):
        return of.ranks
    ready_s: dict[int, Sequence[float]] = {}  # of each stage, by the replica that stands for it
    for replica in set(of.alike):
        mine = [replace(rank, streams=rank.streams[:1]) for rank in of.ranks[replica::replicas]]
        moments = run(mine, shared)
        ready_s[replica] = [max(passage.done_s, default=0.0) for (passage,) in moments]
    made = []
    for number, rank in enumerate(of.ranks):
        stage, replica = divmod(number, replicas)
        wait = Stream(plan=chain(1), works_s=[ready_s[of.alike[replica]][stage]])
        streams = [wait, *rank.streams[1:]]
        made.append(replace(rank, streams=streams, processor=SharedProcessor()))
    return made


def _carries_only(rank: Rank) -> bool:
    """Whether nothing but passes takes CPU time, and that at any moment."""
    works = any(way.cpu_s or way.cpu_s_per_byte for way in (rank.up, rank.down))
    works = works or any(one.begin_s or one.message_s for one in rank.streams)
    return not (works or rank.reduce_s_per_byte or rank.processor.stands_still)


def _workers(profile: Profile, c: Configuration, means: ChannelModel) -> list[tuple[_Stage, int]]:
    """Returns the stage and the replica's number of each rank, in order.

    Replicas of a stage that are equally fast share one object, and with it their schedules.
    """
    sizes = [stage_size(profile, c, stage) for stage in range(c.stages)]
    chunk_bytes = means.message_bytes(sizes)
    found = []
    for stage, size in enumerate(sizes):
        of_pace: dict[float, _Stage] = {}
        for replica in range(c.replicas):
            rank = stage * c.replicas + replica
            times = pace(size, rank, c.workers, c.micro_batches)
            if times not in of_pace:
                of_pace[times] = _Stage(profile, c, means, stage, paced(size, times), chunk_bytes)
            found.append((of_pace[times], replica))
    return found


@dataclass(frozen=True, slots=True)
class _Passes:
    """The passes of a worker.

    Attributes:
        plan: their schedule.
        pieces: operations after which each early bucket is complete.
        forward: the last forward pass; None: there is none.
        works_s: CPU seconds of each pass, or piece of one.
    """

    plan: CompiledSchedule
    pieces: tuple[int, ...]
    forward: int | None
    works_s: tuple[float, ...]


class _Stage:
    """What the workers of one stage do that are as fast as each other.

    Args:
        stage: its number.
        size: of the workers' functions.
        chunk_bytes: least bytes of a message between stages.
    """

    def __init__(
        self,
        profile: Profile,
        c: Configuration,
        means: ChannelModel,
        stage: int,
        size: SizeProfile,
        chunk_bytes: int,
    ) -> None:
        self._profile = profile
        self._c = c
        self._means = means
        self._stage = stage
        self._layout = Layout(c.stages, c.replicas)
        self.size = size
        self._chunk_bytes = chunk_bytes
        mine = stage_range(profile, c, stage)
        self._layers = stage_layers(profile, c, stage)
        self._forward = size.forward[mine.start : mine.stop]
        self._backward = size.backward[mine.start : mine.stop]
        self._last = stage == c.stages - 1
        self._flat = flat(self._layers, tail=0)
        self._tensors = sum(len(elements(layer)) for layer in profile.layers)
        # What a step takes beside passes is the flat buffer's: it goes by its parameters.
        part = sum(len(elements(layer)) for layer in self._layers) / max(1, self._tensors)
        beside_s = size.step_s.value * (part if self._tensors else 1.0)
        trained_bytes = sum(layer.trained for layer in self._layers)
        self._ending_s = (size.apply(trained_bytes) + beside_s) * size.speed
        #: By micro-batches, seconds in which leaves are added, and whether it learns.
        self._found: dict[tuple[tuple[MicroBatch, ...], float, bool], _Passes] = {}

    def step(self, replica: int, batch: int) -> list[Stream]:
        """Returns the streams of a step of one replica."""
        c, size = self._c, self.size
        micros = micro_batches(batch, replica, c.replicas, c.micro_batches, c.virtual_workers)
        adding = adding_s(size, c, leaves_of(replica, c.replicas, c.leaves), self._flat)
        passes = self._passes(micros, adding, learns=True)
        streams = [self._passage(passes, "pipe", replica)]
        # Of the last micro-batch, as its loss is known.
        known = ((0, passes.forward),) if self._last and micros else ()
        streams.append(self._of_all("tail", replica, TAIL, known))
        early = len(passes.pieces)
        for number, length in enumerate(self._flat.buckets if c.replicas > 1 else ()):
            streams.append(
                all_reduce(
                    c.collective,
                    c.aggregators,
                    replica,
                    c.replicas,
                    length,
                    self._means,
                    name=("grad", self._stage, number),
                    after=((0, passes.pieces[number] if number < early else None),),
                    pool="buckets",
                    group=True,
                    begin_s=size.sum_cpu_s,
                    virtual_workers=c.virtual_workers,
                )
            )
        after = tuple((number, None) for number in range(len(streams)))
        if c.clips:
            streams.append(self._of_all("norm", replica, 2 * self._tensors, after))
            after = ((len(streams) - 1, None),)
        streams.append(Stream(plan=chain(1), after=after, works_s=[self._ending_s]))
        return streams

    def validating(self, replica: int, sizes: Sequence[Sequence[int]]) -> list[Stream]:
        """Streams of a round of validation, of blocks of so many samples for each replica."""
        micros = tuple(MicroBatch(number, some) for number, some in enumerate(sizes[replica]))
        passage = self._passage(self._passes(micros, 0.0, learns=False), "eval", replica)
        numbers = BLOCK_NUMBERS * sum(map(len, sizes))
        return [passage, self._of_all("val", replica, numbers, ((0, None),))]

    def _of_all(
        self, name: str, replica: int, length: int, after: tuple[tuple[int, int | None], ...]
    ) -> Stream:
        """A small sum over all ranks, at one aggregator, by a thread of its own."""
        return all_reduce(
            *SMALL_SUM,
            self._layout.rank(self._stage, replica),
            self._layout.world_size,
            length,
            self._means,
            name=name,
            after=after,
            pool="all",
            itemsize=TAIL_BYTES,
            begin_s=self.size.sum_cpu_s,
        )

    @property
    def _message_s(self) -> float:
        """CPU seconds of a message of the pipeline beside those of any."""
        measured = self.size.stage_message_cpu_s
        return self.size.sum_cpu_s / _MESSAGES if measured is None else measured

    def _passage(self, passes: _Passes, name: str, replica: int) -> Stream:
        """The passes of a replica, whose messages have a name of their own."""
        return Stream(
            plan=passes.plan,
            name=(name, replica),
            member=self._layout.rank(self._stage, replica),
            members=self._layout.world_size,
            itemsize=1,
            message_s=self._message_s,
            works_s=passes.works_s,
            **alone_or_side_by_side(self._means, passes.plan, 1),
        )

    def _passes(self, micros: tuple[MicroBatch, ...], adding: float, *, learns: bool) -> _Passes:
        """Returns the passes of these micro-batches, which are made once for all replicas.

        Args:
            micros: of a replica.
            adding: CPU seconds in which it adds its leaves.
            learns: whether there are backward passes.
        """
        key = micros, adding, learns
        if key not in self._found:
            plan, pieces = self._plan(micros, learns=learns)
            works = [op.work for op in plan.schedule if op.work is not None]
            forward = plan.works[works.index(Work(FORWARD, micros[-1].number))] if micros else None
            seconds = self._seconds(micros, adding, learns=learns)
            works_s = tuple(seconds.get(work, 0.0) for work in works)
            self._found[key] = _Passes(plan, pieces, forward, works_s)
        return self._found[key]

    def _plan(
        self, micros: tuple[MicroBatch, ...], *, learns: bool
    ) -> tuple[CompiledSchedule, tuple[int, ...]]:
        """Returns the schedule, and the operations after which each early bucket is complete."""
        c, layers, cut, stage = self._c, self._profile.layers, self._c.cut, self._stage

        def boundary(at: int, micro: MicroBatch) -> StageBoundary:
            back = round(layers[at].gradient * micro.samples) if learns else 0
            return StageBoundary(
                activation_bytes=round(layers[at - 1].output * micro.samples), gradient_bytes=back
            )

        before = tuple(boundary(cut[stage - 1], one) for one in micros) if stage else ()
        behind = () if self._last else tuple(boundary(cut[stage], one) for one in micros)
        numbers = tuple(one.number for one in micros)
        early = len(self._flat.whole_after) if learns and c.replicas > 1 and micros else 0
        order = c.schedule if learns else None
        return _passage_plan(
            c.stages, stage, order, numbers, before, behind, self._chunk_bytes, early
        )

    def _seconds(
        self, micros: Sequence[MicroBatch], adding: float, *, learns: bool
    ) -> dict[Work, float]:
        """CPU seconds of each pass; of the last backward one, of its pieces."""
        size, speed, found = self.size, self.size.speed, {}
        keeping_s = adding / len(micros) if micros else 0.0
        for one in micros:
            reading = size.data(one.samples) if not self._stage else 0.0
            forward = reading + passed(self._forward, one.samples)
            backward = passed(self._backward, one.samples)
            found[Work(FORWARD, one.number)] = speed * forward + size.pass_cpu_s
            found[Work(BACKWARD, one.number)] = speed * backward + size.pass_cpu_s + keeping_s
        if learns and micros and self._c.replicas > 1:
            cuts = cut_backward(self._backward, micros[-1].samples, self._flat.whole_after)
            for number, piece in enumerate(cuts[:-1]):
                found[Work(_PIECE, number)] = speed * piece
            ending_s = speed * cuts[-1] + size.pass_cpu_s + keeping_s
            found[Work(BACKWARD, micros[-1].number)] = ending_s
        return found


@lru_cache(maxsize=1024)
def _passage_plan(
    stages: int,
    stage: int,
    order: str | None,
    numbers: tuple[int, ...],
    before: tuple[StageBoundary, ...],
    behind: tuple[StageBoundary, ...],
    chunk_bytes: int,
    early: int,
) -> tuple[CompiledSchedule, tuple[int, ...]]:
    """Returns the schedule of a stage of one replica, and its operations that are early pieces.

    `early` pieces of the last backward pass stand before it, each an operation of its own.
    """
    if early:
        whole, _ = _passage_plan(stages, stage, order, numbers, before, behind, chunk_bytes, 0)
        return _in_pieces(whole.schedule, Work(BACKWARD, numbers[-1]), early)
    make: MakeOrder = forward_only if order is None else ORDERS[order]
    step = PipelineStep(
        layout=Layout(stages, 1),
        stage_rank=StageRank(stage, 0),
        order=make(stage, stages, numbers),
        before=dict(zip(numbers, before, strict=False)),
        behind=dict(zip(numbers, behind, strict=False)),
        chunk_bytes=chunk_bytes,
    )
    return CompiledSchedule(step.schedule()), ()


def _in_pieces(
    schedule: Schedule, work: Work, early: int
) -> tuple[CompiledSchedule, tuple[int, ...]]:
    """The schedule with so many operations more before a pass: pieces of it."""
    at = next(number for number, op in enumerate(schedule) if op.work == work)
    whole = schedule.ops[at]
    pieces: list[Op] = []
    for number in range(early):
        after = whole.after if not number else (at + number - 1,)
        pieces.append(replace(whole, work=Work(_PIECE, number), after=after))
    rest = replace(whole, after=(at + early - 1,))

    def moved(op: Op) -> Op:
        return replace(op, after=tuple(one + early * (one >= at) for one in op.after))

    ops = (*schedule.ops[:at], *pieces, rest, *map(moved, schedule.ops[at + 1 :]))
    return CompiledSchedule(Schedule(ops)), tuple(range(at, at + early))
