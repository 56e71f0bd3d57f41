"""Steps of a cut model, as schedules for virtual time.

    stage 0, replica 0   passes    |f0|f1|..|b0|b1|            |apply, rest|   the next step
                         bucket 0               |all-reduce|   |     among the stage's replicas
                         tail      |of all ranks          |    |

Stages and replicas that do the same passes have one schedule (`passage_plan`): labels say whom each
of them talks to, and about which micro-batches.

See `runs.protocols`: pipeline.py, staged_validation.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from dayfly.batches import BLOCK_NUMBERS
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
from dayfly.planning.passages import (
    BETWEEN,
    FIRST,
    LAST,
    PIECE,
    Boundary,
    PassagePlan,
    labels_of,
    passage_plan,
)
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import (
    ChannelModel,
    all_reduce,
    alone_or_side_by_side,
    chain,
    limited,
    small_sum,
    ways_of,
)
from dayfly.planning.summed import Summed
from dayfly.wire.leaves import leaves_of
from dayfly.wire.pipelines.flow import Passing
from dayfly.wire.pipelines.orders import (
    BACKWARD,
    FORWARD,
    ORDERS,
    MakeOrder,
    forward_only,
    in_waves,
)
from dayfly.wire.pipelines.step import StageRank
from dayfly.wire.schedule import Work
from dayfly.wire.streams import Rank, Stream

#: Where nobody measured what a stage's messages take, each is taken to wake its lanes as those of a
#: sum of two do, of which each has so many.
_MESSAGES = 4
#: Elements of the tail: the loss and two wishes, float64.
TAIL, TAIL_BYTES = 3, 8


def ranks(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    batch: int,
    among: range | None = None,
    *,
    sums: bool = True,
) -> list[Rank]:
    """Returns what each worker of these replicas (None: all) does in a step of so many samples.

    Args:
        sums: whether replicas of a stage sum their gradients.
    """
    return [
        stage.has(number, stage.step(replica, batch, sums=sums))
        for number, (stage, replica) in enumerate(stage_workers(profile, c, means))
        if among is None or replica in among
    ]


def passages(
    profile: Profile, c: Configuration, means: ChannelModel, batch: int, among: range
) -> list[Stream]:
    """Returns the passes alone of each worker of these replicas, in a step of so many samples."""
    return [
        stage.passage(replica, batch)[1]
        for stage, replica in stage_workers(profile, c, means)
        if replica in among
    ]


def stage_workers(
    profile: Profile, c: Configuration, means: ChannelModel
) -> list[tuple[StageWork, int]]:
    """Returns the stage and the replica's number of each rank, in order.

    Replicas of a stage that are equally fast share one object, and with it their schedules; so do
    all who ask about one run, one after another.
    """
    return _stage_workers(_Same(profile), c, means)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A profile, which equals itself alone: comparing all of it would take long."""

    profile: Profile

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.profile is other.profile

    def __hash__(self) -> int:
        return id(self.profile)


@lru_cache(maxsize=4)
def _stage_workers(of: _Same, c: Configuration, means: ChannelModel) -> list[tuple[StageWork, int]]:
    profile = of.profile
    sizes = [stage_size(profile, c, stage) for stage in range(c.stages)]
    chunk_bytes = means.message_bytes(sizes)
    found = []
    for stage, size in enumerate(sizes):
        of_pace: dict[float, StageWork] = {}
        for replica, rank in enumerate(c.layout.stage_ranks(stage)):
            times = pace(size, rank, c.workers, c.flow.most(stage))
            if times not in of_pace:
                of_pace[times] = StageWork(
                    profile, c, means, stage, paced(size, times), chunk_bytes
                )
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

    plan: PassagePlan
    pieces: tuple[int, ...]
    forward: int | None
    works_s: tuple[float, ...]


class StageWork:
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
        self._layout, self._flow = c.layout, c.flow
        self._replicas = c.members_of(stage)
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
        self._ways = ways_of(size)
        #: By replica and batch.
        self._passages: dict[tuple[int, int], tuple[_Passes, Stream]] = {}
        #: By replica, where its passes are, and whether it sums.
        self._behind: dict[tuple[int, tuple[int, ...], int | None, bool], list[Stream]] = {}
        #: By samples of micro-batches, their waves, seconds of leaves, and whether it learns.
        self._found: dict[tuple[object, ...], _Passes] = {}

    def has(self, rank: int, streams: Sequence[Stream]) -> Rank:
        """Returns a worker of the stage that runs these streams."""
        return limited(self.size, self._means, rank, streams, self._ways)

    def step(self, replica: int, batch: int, *, sums: bool = True) -> list[Stream]:
        """Returns the streams of a step of one replica."""
        passes, passage = self.passage(replica, batch)
        key = replica, passes.pieces, passes.forward, sums
        if key not in self._behind:
            self._behind[key] = self._sums(replica, passes, sums=sums)
        return [passage, *self._behind[key]]

    def passage(self, replica: int, batch: int) -> tuple[_Passes, Stream]:
        """Returns the passes of a step of one replica, and their stream."""
        if (replica, batch) not in self._passages:
            c, of = self._c, self._replicas
            passing = self._flow.passing(batch, StageRank(self._stage, replica))
            leaves = leaves_of(replica, of, c.virtual_workers or of)
            adding = adding_s(self.size, c, leaves, self._flat)
            passes = self._passes(passing, adding, learns=True)
            stream = self._passage(passes, passing, "pipe", replica)
            self._passages[replica, batch] = passes, stream
        return self._passages[replica, batch]

    def _sums(self, replica: int, passes: _Passes, *, sums: bool) -> list[Stream]:
        """The streams of a step behind its passes: sums, and what ends it."""
        c, size = self._c, self.size
        # Of the last micro-batch, as its loss is known.
        known = ((0, passes.forward),) if self._last and passes.forward is not None else ()
        streams = [self._of_all("tail", replica, TAIL, known)]
        early = len(passes.pieces)
        for number, length in enumerate(self._flat.buckets if self._replicas > 1 and sums else ()):
            streams.append(
                all_reduce(
                    c.collective,
                    c.aggregators_of(self._stage),
                    replica,
                    self._replicas,
                    Summed(length),
                    self._means,
                    name=("grad", self._stage, number),
                    after=((0, passes.pieces[number] if number < early else None),),
                    pool="buckets",
                    group=True,
                    begin_s=size.sum_cpu_s,
                    virtual_workers=c.virtual_workers,
                )
            )
        # The passes are stream 0.
        after = tuple((number, None) for number in range(len(streams) + 1))
        if c.clips:
            streams.append(self._of_all("norm", replica, 2 * self._tensors, after))
            after = ((len(streams), None),)
        streams.append(Stream(plan=chain(1), after=after, works_s=[self._ending_s]))
        return streams

    def validating(self, replica: int, sizes: Sequence[int]) -> list[Stream]:
        """Streams of a round of validation, of blocks of so many samples."""
        passing = self._flow.validating(sizes, StageRank(self._stage, replica))
        passes = self._passes(passing, 0.0, learns=False)
        passage = self._passage(passes, passing, "eval", replica)
        numbers = BLOCK_NUMBERS * len(sizes)
        return [passage, self._of_all("val", replica, numbers, ((0, None),))]

    def _of_all(
        self, name: str, replica: int, length: int, after: tuple[tuple[int, int | None], ...]
    ) -> Stream:
        """A small sum over all ranks, at one aggregator, by a thread of its own."""
        return small_sum(
            self._layout.rank(self._stage, replica),
            self._layout.world_size,
            length,
            self._means,
            name=name,
            after=after,
            itemsize=TAIL_BYTES,
            begin_s=self.size.sum_cpu_s,
        )

    @property
    def _message_s(self) -> float:
        """CPU seconds of a message of the pipeline beside those of any."""
        measured = self.size.stage_message_cpu_s
        return self.size.sum_cpu_s / _MESSAGES if measured is None else measured

    def _passage(self, passes: _Passes, passing: Passing, name: str, replica: int) -> Stream:
        """The passes of a replica, whose messages have a name of their own, unless replicas of
        different numbers send each other some."""
        return Stream(
            plan=passes.plan,
            name=(name, replica if self._layout.even else None),
            member=self._layout.rank(self._stage, replica),
            members=self._layout.world_size,
            labels=labels_of(self._stage, [one.number for one in passing.micros]),
            itemsize=1,
            message_s=self._message_s,
            works_s=passes.works_s,
            **alone_or_side_by_side(self._means, passes.plan, 1),
        )

    def _passes(self, passing: Passing, adding: float, *, learns: bool) -> _Passes:
        """Returns passes, which are made once for all replicas that have the same.

        Args:
            passing: a replica's.
            adding: CPU seconds in which it adds its leaves.
            learns: whether there are backward passes.
        """
        samples = tuple([one.samples for one in passing.micros])
        waves = tuple(map(len, passing.waves))
        key = samples, waves, adding, learns
        if key not in self._found:
            plan, pieces = self._plan(samples, waves, learns=learns)
            last = Work(FORWARD, len(samples) - 1)
            forward = plan.works[plan.each_work.index(last)] if samples else None
            works_s = self._seconds(plan.each_work, samples, adding, learns=learns)
            self._found[key] = _Passes(plan, pieces, forward, works_s)
        return self._found[key]

    def _plan(
        self, samples: tuple[int, ...], waves: tuple[int, ...], *, learns: bool
    ) -> tuple[PassagePlan, tuple[int, ...]]:
        """Returns the schedule, and the operations after which each early bucket is complete.

        Args:
            samples: of each micro-batch.
            waves: how many micro-batches each of them has.
            learns: whether there are backward passes.
        """
        c, layers, cut, stage = self._c, self._profile.layers, self._c.cut, self._stage

        def boundaries(at: int) -> tuple[Boundary, ...]:
            output, gradient = layers[at - 1].output, layers[at].gradient if learns else 0
            return tuple([(round(output * n), round(gradient * n)) for n in samples])

        before = boundaries(cut[stage - 1]) if stage else ()
        behind = () if self._last else boundaries(cut[stage])
        several = self._replicas > 1 and bool(samples)
        early = len(self._flat.whole_after) if learns and several else 0
        numbers = iter(range(len(samples)))
        each = [tuple(islice(numbers, count)) for count in waves]
        make: MakeOrder = ORDERS[c.schedule] if learns else forward_only
        order = in_waves(make, stage, c.stages, each)
        like = LAST if self._last else BETWEEN if stage else FIRST
        return passage_plan(like, order, before, behind, self._chunk_bytes, early)

    def _seconds(
        self, works: Sequence[Work], micros: Sequence[int], adding: float, *, learns: bool
    ) -> tuple[float, ...]:
        """CPU seconds of each pass, in the order of `works`.

        Where replicas sum gradients while the last backward pass goes on, that pass is several
        pieces, one up to each bucket.

        Args:
            micros: samples of each micro-batch.
            adding: CPU seconds that a step takes to add up its micro-batches' gradients.
            learns: the gradients of these micro-batches are summed, as in training.
        """
        size, speed = self.size, self.size.speed
        keeping_s = adding / len(micros) if micros else 0.0
        passes_s: dict[tuple[str, int], float] = {}
        of_samples: dict[int, tuple[float, float]] = {}
        for number, samples in enumerate(micros):
            if samples not in of_samples:
                reading = size.data(samples) if not self._stage else 0.0
                forward = reading + passed(self._forward, samples)
                backward = passed(self._backward, samples)
                of_samples[samples] = (
                    speed * forward + size.pass_cpu_s,
                    speed * backward + size.pass_cpu_s + keeping_s,
                )
            both_s = of_samples[samples]
            passes_s[FORWARD, number], passes_s[BACKWARD, number] = both_s
        if learns and micros and self._replicas > 1:
            cuts = cut_backward(self._backward, micros[-1], self._flat.whole_after)
            for number, piece in enumerate(cuts[:-1]):
                passes_s[PIECE, number] = speed * piece
            ending_s = speed * cuts[-1] + size.pass_cpu_s + keeping_s
            passes_s[BACKWARD, len(micros) - 1] = ending_s
        return tuple([passes_s.get((work.what, work.micro_batch), 0.0) for work in works])
