"""A configuration is one way to run a job: so many workers, of such memory, by such a protocol.

Workers of one stage are of one kind: they have its layers, functions of one memory size, and a flat
buffer that they sum, as `training.flat` and `training.local_sgd` make it. Workers of a model that
is not cut all have it whole. They are of one kind, too, unless they differ in memory, in their
share of a batch or in their role. What takes a `stage` takes the number of a kind there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from dayfly.batches import share
from dayfly.elementwise import most
from dayfly.planning.function_times import contended, declined, interpolated
from dayfly.planning.profile import LayerBytes, Profile, SizeProfile
from dayfly.specs.compression import compression
from dayfly.specs.protocols import PROTOCOLS, Part, ProtocolDescription
from dayfly.specs.streaming import Streaming
from dayfly.wire.pipelines.flow import Flow
from dayfly.wire.pipelines.step import Layout, layout_of
from dayfly.wire.schedule import BUCKET_BYTES, FIRST_BUCKET_BYTES, bucket_ends, bucket_spans

#: Seconds between run checkpoints, unless said otherwise.
CHECKPOINT_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """How many functions, of which memory, doing what.

    Attributes:
        workers: of all stages.
        memory_mib: of each stage's functions; of a model that is not cut one entry, or one a
            worker; None: not limited.
        vcpus: of each function, where a memory can be had with several numbers; None: the fewest.
        gpu_share: of each function; None: no GPU.
        cut: numbers of the layers that begin a stage, but for the first.
        replicas: of each stage, or one number for all; `workers` if it is not cut.
        micro_batches: of a replica, of the stage with the most; with virtual workers of a whole
            model in each leaf, while of a cut one they are the leaves.
        schedule: fill-drain or 1f1b.
        sync: the protocol.
        k: steps of a round, if its rounds have several; None: an epoch's.
        outer: the outer optimizer, as `--outer`.
        streaming: how outer gradients are streamed; None: they are exchanged at a round's end.
        collective: a name of `wire.collectives`.
        aggregators: of k-reduce and hap.
        compress: as `--compress`.
        shares: each worker's share of a batch, in relation to the others; empty: equal.
        virtual_workers: leaves of a batch; None: as many as workers.
        batch_size: samples of a step, all workers'.
        epochs: of the run.
        validate_every: epochs.
        lifetime_s: of a function.
        cold_start_s: added to each start.
        checkpoint_every_s: as `--checkpoint-every`.
        clips: whether the job clips gradients.
    """

    workers: int
    memory_mib: tuple[int | None, ...] = (None,)
    vcpus: float | None = None
    gpu_share: float | None = None
    cut: tuple[int, ...] = ()
    replicas: int | tuple[int, ...] = 1
    micro_batches: int = 1
    schedule: str = "fill-drain"
    sync: str = "bsp"
    k: int | None = 1
    outer: str | None = None
    streaming: Streaming | None = None
    collective: str = "overlapped"
    aggregators: int | None = None
    compress: str = "none"
    shares: tuple[int, ...] = ()
    virtual_workers: int | None = None
    batch_size: int
    epochs: int = 1
    validate_every: int = 1
    lifetime_s: float | None = None
    cold_start_s: float = 0.0
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    clips: bool = False
    #: Made once it is asked for, which is often; equal for equal fields above.
    _layout: Layout | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def protocol(self) -> ProtocolDescription:
        """The description of `sync`, with its outer optimizer. Raises RequestError if it is not
        known."""
        PROTOCOLS.check(self.sync, "sync")
        return PROTOCOLS[self.sync].by(self.outer, self.streaming)

    @property
    def round_steps(self) -> int | None:
        """Steps of a round; None: an epoch's."""
        return self.protocol.steps(self.k)

    @property
    def feeds_back(self) -> bool:
        """Whether a worker keeps what its contributions lost on their way."""
        return compression(self.compress).feeds_back and self.workers > 1

    @property
    def layout(self) -> Layout:
        """Which worker is which replica of which stage."""
        found = self._layout
        if found is None:
            found = layout_of(self.stages, self.replicas if self.cut else self.workers)
            object.__setattr__(self, "_layout", found)
        return found

    @property
    def flow(self) -> Flow:
        """How stages share out a batch; of a cut model."""
        return Flow(self.layout, self.micro_batches, self.virtual_workers)

    @property
    def members(self) -> int:
        """Workers that hold the same parameters, and sum their gradients; of the stage that has
        the most of them."""
        return max(self.layout.each)

    def members_of(self, kind: int) -> int:
        """The same of those that workers of a kind sum with: of a model that is not cut, all."""
        return self.layout.replicas_of(kind if self.cut else 0)

    def aggregators_of(self, kind: int) -> int | None:
        """Of k-reduce among those, at most all of them; None: of another collective."""
        return None if self.aggregators is None else min(self.aggregators, self.members_of(kind))

    @property
    def leaves(self) -> int:
        """Parts of a batch whose gradients are computed apart."""
        return self.virtual_workers or self.members

    @property
    def pieces(self) -> int:
        """In which the worker that has the most computes its share: micro-batches of its leaves."""
        return self.micro_batches * (1 if self.cut else -(-self.leaves // self.workers))

    def pieces_of(self, kind: int) -> int:
        """The same of workers of a kind."""
        return self.flow.most(kind) if self.cut else self.pieces

    @property
    def stages(self) -> int:
        """Of the model; one if it is not cut."""
        return len(self.cut) + 1

    @property
    def kinds(self) -> tuple[Sequence[int], ...]:
        """Ranks of the workers of each kind: of a stage, or alike in memory, share and role."""
        if self.cut:
            return tuple(map(self.layout.stage_ranks, range(self.stages)))
        if not (self.shares or len(self.memory_mib) > 1 or self.protocol.staleness):
            return (range(self.workers),)
        return _kinds(self)

    def kind_of(self, rank: int) -> int:
        """The number of a worker's kind."""
        if self.cut:
            return self.layout.stage_rank(rank).stage
        kinds = self.kinds
        return next(at for at, ranks in enumerate(kinds) if rank in ranks) if len(kinds) > 1 else 0

    def lags(self, rank: int) -> bool:
        """Whether the worker takes each step's sum a step later than those that sum."""
        return bool(self.protocol.staleness) and rank >= (self.aggregators or 0)


@lru_cache(maxsize=256)
def _kinds(c: Configuration) -> tuple[Sequence[int], ...]:
    sizes = c.memory_mib if len(c.memory_mib) > 1 else c.memory_mib * c.workers
    found: dict[tuple[int | None, int, bool], list[int]] = {}
    for rank in range(c.workers):
        alike = sizes[rank], c.shares[rank] if c.shares else 1, c.lags(rank)
        found.setdefault(alike, []).append(rank)
    return tuple(map(tuple, found.values()))


#: Bytes of an element; the flat buffer is float32 at least, and wider types are rare.
ITEM_BYTES = 4
#: Inputs that come in, and outputs that wait, beside a pass's (`wire/pipelines/step.py`).
AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """The flat buffer of gradients, in buckets.

    Attributes:
        buckets: elements of each, in the order in which they are sent.
        tail: elements that are no gradients, if they are in no bucket.
        whole_after: for each bucket but the last, the layers of the backward pass that are over
            when it is whole; the fraction is of the next layer.
        trained: elements that the optimizer trains.
    """

    buckets: tuple[int, ...]
    whole_after: tuple[float, ...]
    trained: int
    tail: int = 0

    @property
    def length(self) -> int:
        """Elements of all buckets, and of the tail."""
        return sum(self.buckets) + self.tail


def flat(
    layers: Sequence[LayerBytes], *, tail: int, apart: bool = False, listed: bool = True
) -> Flat:
    """Of these layers: a model, or a stage.

    Args:
        tail: elements at the end.
        apart: whether what is no gradient is in no bucket.
        listed: layers are single ones, whose gradients come together; those of a whole model come
            as its backward pass goes through it.
    """
    return _flat(tuple(layers), tail, apart, listed)


@lru_cache(maxsize=256)
def _flat(layers: tuple[LayerBytes, ...], tail: int, apart: bool, listed: bool) -> Flat:
    tensors = [(size, at) for at, layer in enumerate(layers) for size in elements(layer)][::-1]
    sizes = [size for size, _ in tensors]
    whole = sum(sizes) + sum(map(moving, layers)) + len(sizes) + tail
    ends = bucket_ends([ITEM_BYTES * size for size in sizes], FIRST_BUCKET_BYTES, BUCKET_BYTES)
    _, spans = bucket_spans(sizes, ends, whole, apart=apart)
    after = []
    of_layer = [sum(elements(layer)) for layer in layers]
    up_to = [0, *accumulate(sizes)]
    behind = [0, *accumulate(reversed(of_layer))]  # of so many last layers
    *buckets, last = map(len, spans)
    buckets, beside = (buckets, last) if apart else ([*buckets, last], 0)
    for end in ends[: len(buckets) - 1]:
        layer = tensors[end - 1][1] if end else len(layers) - 1
        passed = len(layers) - 1 - layer
        done = up_to[end] - behind[passed] if end else 0
        part = 1.0 if listed or not of_layer[layer] else done / of_layer[layer]
        after.append(passed + part)
    return Flat(buckets=tuple(buckets), whole_after=tuple(after), trained=sum(sizes), tail=beside)


def part_elements(profile: Profile, layers: Sequence[LayerBytes], part: Part) -> int:
    """Returns the elements of a part of these layers."""
    if part is Part.BUFFERS:
        return sum(map(moving, layers))
    trained = sum(sum(elements(layer)) for layer in layers)
    return round(trained * profile.state_per_trained_byte) if part is Part.OPTIMIZER else trained


def elements(layer: LayerBytes) -> tuple[int, ...]:
    """Of each trained parameter of a layer."""
    if layer.tensors or not layer.trained:
        return layer.tensors
    return (-(-layer.trained // ITEM_BYTES),)


@lru_cache(maxsize=256)
def largest_tensor(layers: tuple[LayerBytes, ...]) -> int:
    """Elements of the largest trained parameter of some layers."""
    return max((max(elements(layer), default=0) for layer in layers), default=0)


def moving(layer: LayerBytes) -> int:
    """Elements of a layer's buffers."""
    return -(-layer.buffers // ITEM_BYTES) if layer.moving is None else layer.moving


def stage_range(profile: Profile, configuration: Configuration, stage: int) -> range:
    """Numbers of the stage's layers: of a model that is not cut, all."""
    if not configuration.cut:
        return range(len(profile.layers))
    ends = (0, *configuration.cut, len(profile.layers))
    return range(ends[stage], ends[stage + 1])


def stage_layers(
    profile: Profile, configuration: Configuration, stage: int
) -> tuple[LayerBytes, ...]:
    """The stage's layers."""
    mine = stage_range(profile, configuration, stage)
    return profile.layers[mine.start : mine.stop]


def stage_memory_mib(configuration: Configuration, stage: int) -> int | None:
    """Memory of the stage's functions."""
    c, sizes = configuration, configuration.memory_mib
    if len(sizes) == 1:
        return sizes[0]
    return sizes[stage] if c.cut else sizes[c.kinds[stage][0]]


def stage_size(profile: Profile, configuration: Configuration, stage: int) -> SizeProfile:
    """The profile of the stage's functions, near what they compute at once, and as all workers
    compute and send beside each other; of a model that is not cut, of all functions. Raises
    RequestError if there is none."""
    c = configuration
    found = profile.size(stage_memory_mib(c, stage), c.vcpus, c.gpu_share)
    size = interpolated(found, micro_samples(profile, c, stage))
    size = declined(size, profile.decline, c.workers)
    if size.crowd_cores <= 0 or c.workers == 1:
        return size
    speeds = [
        len(ranks) * profile.size(stage_memory_mib(c, one), c.vcpus).speed
        for one, ranks in enumerate(c.kinds)
    ]
    return contended(size, sum(speeds) - size.speed)


def step_samples(c: Configuration, stage: int, batch: int) -> int:
    """Samples of a batch of so many that a worker of this kind has, at most."""
    if not c.shares:
        return -(-batch // c.members_of(stage))
    return max(len(share(batch, rank, c.workers, c.shares)) for rank in c.kinds[stage])


def micro_samples(profile: Profile, configuration: Configuration, stage: int = 0) -> int:
    """Samples that a worker computes at once, at most."""
    c = configuration
    return -(-step_samples(c, stage, min(c.batch_size, profile.samples)) // c.pieces_of(stage))


def start_s(profile: Profile, configuration: Configuration, stage: int) -> float:
    """Seconds from the handler to a run's first step: what a worker of the whole model takes, less
    reading the parameters of the other stages. There is no state of an optimizer by then."""
    size = stage_size(profile, configuration, stage)
    mine = stage_layers(profile, configuration, stage)
    others = _model_bytes(profile.layers) - _model_bytes(mine)
    return max(0.0, size.start_s.value - size.down.occupied_s(others))


def end_s(profile: Profile, configuration: Configuration, stage: int) -> float:
    """Seconds from a worker's last step to its end. stage: the worker's."""
    c, size = configuration, stage_size(profile, configuration, stage)
    return ending_s(profile, c, size, stage_layers(profile, c, stage), c.members_of(stage))


def ending_s(
    profile: Profile, c: Configuration, size: SizeProfile, layers: tuple[LayerBytes, ...], many: int
) -> float:
    """Seconds from a worker's last step to its end, with its part of the last checkpoint.

    The profile's `end_s` is that of a run of one worker, which wrote the whole checkpoint.

    Args:
        profile: of the job.
        c: of the run.
        size: of the worker.
        layers: that it has.
        many: workers that have these layers, each of which writes as much of them; elementwise.
    """
    shared, own = kept_bytes(profile, c, layers, within=False)
    measured = _model_bytes(profile.layers) + _state_bytes(profile, profile.layers)
    writing_s = size.up.occupied_s(shared / many + own) - size.up.occupied_s(measured)
    seconds: float = most(0.0, size.end_s.value + writing_s)
    return seconds


def kept_bytes(
    profile: Profile, c: Configuration, layers: tuple[LayerBytes, ...], *, within: bool = True
) -> tuple[float, float]:
    """Returns the bytes of a checkpoint that workers share, and of each one's own.

    Shared are parameters, buffers, the optimizer's state, and what the protocol keeps beside;
    unless the optimizer's state is each worker's own. Where some workers lag, a checkpoint within
    an epoch has the weights and buffers of both.

    Args:
        profile: of the job.
        c: of the run.
        layers: of the worker's.
        within: of a checkpoint within an epoch, and not at its end.
    """
    state, protocol = _state_bytes(profile, layers), c.protocol
    beside = ITEM_BYTES * sum(part_elements(profile, layers, part) for part in protocol.keeps)
    lagging = within and protocol.staleness > 0
    shared = _model_bytes(layers) * (1 + lagging) + beside
    own = sum(layer.trained for layer in layers) if c.feeds_back else 0.0
    if Part.PARAMETERS in protocol.own:
        own += _model_bytes(layers)
    return (shared, state + own) if Part.OPTIMIZER in protocol.own else (shared + state, own)


def _state_bytes(profile: Profile, layers: tuple[LayerBytes, ...]) -> float:
    """The optimizer's."""
    return sum(layer.trained for layer in layers) * profile.state_per_trained_byte


def _model_bytes(layers: tuple[LayerBytes, ...]) -> float:
    return sum(layer.parameters + layer.buffers for layer in layers)
