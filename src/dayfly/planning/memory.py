"""The most memory that a worker needs at once, by what it holds at its fullest moments.

    start        the model, and the checkpoint that it is read from; the flat buffer
    step         model, gradients, optimizer's state, activations, what is computed with
    validation   model, gradients, optimizer's state, and what a batch passes on
    checkpoint   model, gradients, optimizer's state, and a copy of what is to be written
    lagging      after a checkpoint within an epoch, the weights of the step before beside a step

FuncPipe's equation 3b is  mu a + s (4 - 2 y_1) + s_0:  activations a of mu micro-batches,
parameters s and as much of gradients, twice as much again of serialized data where replicas are
summed (y_1 is 1 for a single one), and the framework's s_0. Ours differs. A schedule may hold fewer
micro-batches. Nothing is serialized: messages leave the flat buffer and the model where they lie,
and only contributions under way lie beside them. An optimizer has a state. A whole model's
checkpoint is copied. And a pass needs room to compute in.

What a pass needs beside the activations that are kept is measured, if the profile has it: reorders
and gradients within a layer, and what is lost between blocks, are the library's and the C
library's, and differ from 10 to 60% of the activations. One measurement does not tell the two
apart. A stage may have the layer that needs most, and then needs all of it, for one micro-batch; or
all is lost between blocks, in proportion to what is kept, of all micro-batches between their
passes. The greater of the two counts.

A worker on a GPU has two memories. The GPU's has model, gradients, the optimizer's state,
activations and what is computed with, beside CUDA's context; the machine's has the flat buffer,
pinned, contributions, messages, samples and checkpoints, and the model until it has moved.

Not counted, as no profile says it: what a job's own Datasets hold, and processes that it starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from dayfly.batches import Batches, block_samples
from dayfly.catalogue.gpu import CONTEXT_MIB
from dayfly.elementwise import most
from dayfly.planning.configuration import (
    AHEAD,
    ITEM_BYTES,
    Configuration,
    kept_bytes,
    part_elements,
    stage_layers,
    stage_memory_mib,
    stage_size,
    step_samples,
)
from dayfly.planning.contributions import held_bytes
from dayfly.planning.data_parallel import averaged_of
from dayfly.planning.gpus import gpu_room_mib
from dayfly.planning.layer_sums import layer_sums
from dayfly.planning.pass_memory import beside_kept
from dayfly.planning.plan import Prediction
from dayfly.planning.profile import LayerBytes, Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.leaves import leaves_of, most_kept

_MIB = 2**20
#: What a worker has beside the base before it has a model: code that runs for the first time, pages
#: that it wrote to and no longer shares, threads and their heaps. Measured with one linear layer,
#: 22 to 25, and rounded up.
WORKER_MIB = 26.0
#: Freed and not given back, in functions with a memory limit: the C library's heap ends with so
#: much at most; larger blocks go back at once (`life/allocator.py`).
HEAP_BYTES = 8 * _MIB
#: The same in functions without a limit, which keep blocks of any size, as a share of what a pass
#: takes: a block that was freed is often a little too short for the next. Up to a quarter was seen.
_KEPT = 0.25
#: Blocks of samples that are read ahead, the steps and the bytes of one (`training/sources.py`).
_BLOCKS, _BLOCK_STEPS, _BLOCK_BYTES = 3, 32, _MIB
#: The log has this size unless another is asked for, and half of it makes a checkpoint due.
_LOG_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one worker of a stage holds, in bytes, and where that is in the code.

    Attributes:
        model: parameters and buffers (`training/replica.py`).
        gradients: the flat buffer (`training/flat.py`), or the parameters' own under local SGD.
        leaves: gradients of virtual workers that are kept apart (`training/leaves.py`).
        average: the buffer of a round's exchange (`training/averaging.py`), and what else the
            protocol holds (`training/outer.py`).
        state: the optimizer's.
        before: buffers as they were when the step began (`training/flat.py`).
        gradient: the largest of one parameter, before it is added to the flat buffer.
        activations: kept for the backward pass, of all micro-batches between their passes.
        work: of one pass beside the activations; at least a layer's output and its gradient.
        boundary: messages of a cut model that come, wait or go (`wire/pipelines/slots.py`).
        wire: contributions under way (`wire/summation.py`).
        residual: of compression (`training/compression/exchange.py`).
        samples: read ahead (`training/sources.py`).
        contribution: copies while a round's contribution is made, with error feedback
            (`training/outer.py`).
        validation: activations of a batch of it, and the buffers as they were before.
        read: the checkpoint, until the model is filled.
        copy: of this worker's share of a checkpoint (`life/checkpoints.py`); a stage's is not
            copied.
        lag: model and buffers as a lagging worker has them, which all keep for a step after a
            checkpoint within an epoch (`runs/protocols/hap.py`).
        heap: freed and not given back, and lost between blocks.
    """

    model: float
    gradients: float
    leaves: float
    average: float
    state: float
    before: float
    gradient: float
    activations: float
    work: float
    boundary: float
    wire: float
    residual: float
    samples: float
    contribution: float
    validation: float
    read: float
    copy: float
    lag: float
    heap: float


#: What is there whatever is done. Gradients are, too, but under local SGD in steps only.
_NAMES = ("model", "state", "average", "leaves", "before", "residual", "samples", "heap")
_ALWAYS = attrgetter(*_NAMES)
_IN_STEP = attrgetter(*_NAMES, "gradients", "gradient", "activations", "work", "boundary", "wire")
_ON_HOST = attrgetter("average", "leaves", "residual", "samples")
_ON_GPU = attrgetter("model", "state", "average", "before", "gradients")
_ON_GPU_IN_STEP = attrgetter("gradient", "activations", "work", "boundary", "lag")


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory of a worker, whatever its sums hold.

    Args:
        other_mib: of the moments at which nothing is summed.
        step_mib: of a step, without contributions under way.
    """

    other_mib: float
    step_mib: float

    def mib(self, wire_bytes: float) -> float:
        """Returns the peak, in MiB, with so many bytes of contributions beside the buffers;
        elementwise."""
        peak: float = most(self.other_mib, self.step_mib + wire_bytes / _MIB)
        return peak


def peak_mib(
    profile: Profile, configuration: Configuration, stage: int, *, lasts_s: float | None = None
) -> float:
    """Of a worker of this stage, in MiB, as its platform counts it.

    lasts_s: of the run; None: long enough for a checkpoint that is written beside steps. Raises
    RequestError if the profile lacks functions of that size, or its channel is not known.
    """
    c, size = configuration, stage_size(profile, configuration, stage)
    has = _holding(profile, c, stage, size)
    return _peak(profile, c, size, has, lasts_s).mib(has.wire)


def peaks_of(profile: Profile, configuration: Configuration, stage: int) -> tuple[Peak, Peak]:
    """Returns a worker's peaks before it is known which collective sums: of a long run, and of one
    that ends before a checkpoint is due. Arguments and errors as `peak_mib`."""
    c, size = configuration, stage_size(profile, configuration, stage)
    has = _holding(profile, c, stage, size, sums=False)
    return _peak(profile, c, size, has, None), _peak(profile, c, size, has, 0.0)


def _peak(
    profile: Profile, c: Configuration, size: SizeProfile, has: Holding, lasts_s: float | None
) -> Peak:
    alone = c.protocol.averages
    base_mib = size.base_mib.value + WORKER_MIB
    if profile.gpu is not None:
        return _host_peak(profile, c, has, lasts_s, base_mib)
    always = sum(_ALWAYS(has)) + (0 if alone else has.gradients)
    step = sum(_IN_STEP(has)) - has.wire
    # The optimizer's state comes with every checkpoint but the first; local SGD steps to see it.
    unused = 0 if alone or c.lifetime_s is not None else has.state
    # And no pass has freed anything yet.
    start = always + has.read - has.before - has.heap - unused
    if not alone and _writes_beside_steps(profile, c, has, lasts_s):
        step += has.copy + has.lag
    other = max(start, *(always + one for one in (has.validation, has.copy, has.contribution)))
    return Peak(base_mib + other / _MIB, base_mib + step / _MIB)


def _host_peak(
    profile: Profile, c: Configuration, has: Holding, lasts_s: float | None, base_mib: float
) -> Peak:
    """Of a worker whose model is on a GPU, in the machine's memory."""
    alone = c.protocol.averages
    always = sum(_ON_HOST(has)) + HEAP_BYTES
    always += 0 if alone else has.gradients
    step = always + has.boundary
    if not alone and _writes_beside_steps(profile, c, has, lasts_s):
        step += has.copy
    other = always + max(has.model + has.read, has.copy, has.contribution)
    return Peak(base_mib + other / _MIB, base_mib + step / _MIB)


def gpu_peak_mib(profile: Profile, configuration: Configuration, stage: int) -> float:
    """Returns the most GPU memory of a worker of this stage, in MiB, CUDA's context included.

    Args:
        profile: of a job on a GPU.
        configuration: of the run.
        stage: its number.

    Raises RequestError as `peak_mib` does.
    """
    return _gpu_peak_mib(holding(profile, configuration, stage, sums=False))


def _gpu_peak_mib(has: Holding) -> float:
    step_bytes: float = sum(_ON_GPU_IN_STEP(has)) + has.heap
    always_bytes: float = sum(_ON_GPU(has))
    return CONTEXT_MIB + (always_bytes + max(step_bytes, has.validation)) / _MIB


def excess_mib(profile: Profile, configuration: Configuration, stage: int) -> float:
    """Returns by how much a worker of this stage needs more memory than it has, in MiB.

    Of the machine's memory or of the GPU's, whichever lacks more; 0 or less: it fits. Raises
    RequestError as `peak_mib`.
    """
    c, size = configuration, stage_size(profile, configuration, stage)
    has = _holding(profile, c, stage, size)
    limit, room = stage_memory_mib(c, stage), gpu_room_mib(profile, size)
    found = _peak(profile, c, size, has, None).mib(has.wire) - (limit or float("inf"))
    return found if room is None else max(found, _gpu_peak_mib(has) - room)


def misfits(profile: Profile, configuration: Configuration, said: Prediction) -> list[int]:
    """Returns the stages, or kinds of workers, that need more memory than they have, of either.

    Args:
        profile: of the job.
        configuration: of the run.
        said: what it was predicted to take.
    """
    found = []
    for stage, peak in enumerate(said.memory_mib):
        limit = stage_memory_mib(configuration, stage)
        room = gpu_room_mib(profile, stage_size(profile, configuration, stage))
        short = room is not None and said.gpu_memory_mib[stage] > room
        if short or (limit is not None and peak > limit):
            found.append(stage)
    return found


def holding(
    profile: Profile, configuration: Configuration, stage: int, *, sums: bool = True
) -> Holding:
    """Of a worker of this stage. sums: False: without contributions (`wire`), as of no collective.
    Raises RequestError as `peak_mib`."""
    c = configuration
    return _holding(profile, c, stage, stage_size(profile, c, stage), sums=sums)


def _holding(
    profile: Profile, c: Configuration, stage: int, size: SizeProfile, *, sums: bool = True
) -> Holding:
    layers, protocol = stage_layers(profile, c, stage), c.protocol
    of = layer_sums(layers, listed=profile.listed)
    members, between = c.members_of(stage), between_passes(c, stage)
    samples = step_samples(c, stage, c.batch_size)
    micro = -(-samples // c.pieces_of(stage))
    validated = min(block_samples(c.batch_size), profile.validation_samples)
    kept = micro * between * of.activations
    limited = stage_memory_mib(c, stage) is not None
    work, gaps = beside_kept(profile, size.passes, micro, kept, micro * of.passed)
    sums_of_round = [one.elements for one in averaged_of(profile, c)]
    residual, average = of.trained if c.feeds_back else 0, sum(sums_of_round)
    shared, own = (0.0, 0.0) if c.cut else kept_bytes(profile, c, layers)
    more = sum(part_elements(profile, layers, part) for part in protocol.holds)
    model = of.parameters + of.buffers
    return Holding(
        model=model,
        gradients=of.trained if average else of.flat,
        leaves=of.flat * _kept_leaves(c, members),
        average=ITEM_BYTES * (average + more),
        state=of.trained * profile.state_per_trained_byte,
        before=of.before,
        gradient=of.largest,
        activations=kept,
        work=work,
        boundary=micro * _boundary(layers, c, stage, between),
        wire=_wire(profile, c, stage, size, sums_of_round or of.buckets) if sums else 0,
        residual=residual,
        samples=samples_bytes(samples * profile.sample_bytes) if stage == 0 else 0,
        # The residual as it is from the next round on; of top-k what travels, too.
        contribution=residual * (1 + c.compress.startswith("topk")) if average else 0,
        validation=0 if c.cut else validated * (of.passed + profile.sample_bytes) + of.buffers,
        read=0 if c.cut else model,
        copy=0 if c.cut else max(shared / members, of.largest) + own,
        lag=model if protocol.staleness else 0,
        heap=gaps + (HEAP_BYTES if limited else max(HEAP_BYTES, _KEPT * (kept + work))),
    )


def _kept_leaves(c: Configuration, members: int) -> int:
    """Flat buffers in which a worker keeps leaves apart, of the one that has the most."""
    if c.virtual_workers is None:
        return 0
    leaves = (leaves_of(rank, members, c.leaves) for rank in range(members))
    return max(most_kept(own, c.virtual_workers) for own in leaves)


def between_passes(configuration: Configuration, stage: int) -> int:
    """As `Flow.held`; one where the model is not cut."""
    c = configuration
    return c.flow.held(stage, c.schedule) if c.cut else 1


def _boundary(layers: Sequence[LayerBytes], c: Configuration, stage: int, between: int) -> float:
    """Of each sample of a micro-batch: outputs to which gradients are still to come, and messages
    that come in and go out ahead and behind."""
    before = 0.0 if stage == 0 else layers[0].gradient
    behind = 0.0 if stage == c.stages - 1 else layers[-1].output
    ahead = min(AHEAD, c.pieces_of(stage) - 1)
    return between * behind + 2 * ahead * max(before, behind)


def _wire(
    profile: Profile, c: Configuration, stage: int, size: SizeProfile, buffers: Sequence[int]
) -> float:
    """Contributions beside buffers of so many elements, of those that are summed at once."""
    members = c.members_of(stage)
    if members == 1 or (c.protocol.staleness and c.lags(c.kinds[stage][0])):
        return 0.0  # nobody sums, or others do
    means = ChannelModel.of(profile)
    largest = tuple(sorted(buffers, reverse=True)[: means.at_once])
    named = c.collective, c.aggregators_of(stage), members, c.virtual_workers
    return held_bytes(means, size, largest, *named)


def samples_bytes(step_bytes: float) -> float:
    """Returns what is read ahead in blocks of a step at least, and put together for one; a step's
    samples of a worker have so many bytes."""
    return _BLOCKS * max(step_bytes, min(_BLOCK_BYTES, _BLOCK_STEPS * step_bytes)) + step_bytes


def _writes_beside_steps(
    profile: Profile, c: Configuration, has: Holding, lasts_s: float | None
) -> bool:
    """Whether a checkpoint is due before the end: after some time, or as the log fills."""
    if lasts_s is None or lasts_s > c.checkpoint_every_s:
        return True
    steps = c.epochs * Batches(profile.samples, c.batch_size).steps
    return steps > logged_steps(c.workers, has.gradients)


def logged_steps(workers: int, gradients_bytes: float) -> float:
    """Returns the steps after which the log makes a checkpoint due; infinite for a lone worker.

    Args:
        workers: of the run.
        gradients_bytes: of what each sums in a step.
    """
    if workers == 1:
        return math.inf
    sums = max(1.0, gradients_bytes)
    return max(1.0, (_LOG_BYTES - (workers - 1) * sums) // sums // 2)
