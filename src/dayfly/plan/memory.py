"""The most memory that a worker needs at once, by what it holds at its fullest moments.

    start        the model, and the checkpoint that it is read from; the flat buffer
    step         model, gradients, optimizer's state, activations, what is computed with
    checkpoint   model, gradients, optimizer's state, and a copy of what is to be written

FuncPipe's equation 3b is  mu a + s (4 - 2 y_1) + s_0:  activations of mu micro-batches, parameters
s and as much of gradients, twice as much again of serialized data if replicas are summed, and the
framework's base. Ours differs. A schedule may hold fewer micro-batches. Nothing is serialized:
messages leave the flat buffer and the model where they lie, and only contributions under way lie
beside them. An optimizer has a state. A whole model's checkpoint is copied. And a pass needs room
to compute in.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dayfly.batches import Batches, Rounds
from dayfly.plan.channels import Means
from dayfly.plan.configuration import Configuration
from dayfly.plan.flat import ITEM_BYTES, averaged, elements, flat, moving
from dayfly.plan.profile import LayerBytes, Profile
from dayfly.plan.stages import stage_layers, stage_size

_MIB = 2**20
#: What a worker has beside the base before it has a model: code that runs for the first time, pages
#: that it wrote to and no longer shares, threads. Measured with one linear layer.
WORKER_MIB = 22.0
#: The C library gives freed memory back when more than so many times the largest block that was
#: freed lies at the heap's end (`M_TRIM_THRESHOLD`), and larger blocks than this at once.
_KEPT_BLOCKS = 2
_LARGEST_BLOCK_BYTES = 32 * _MIB
#: Blocks of samples that are read ahead, and their bytes (`train/slices.py`).
_BLOCKS, _BLOCK_BYTES = 3, 2**20
#: Inputs that come in, and outputs that wait, beside a pass's (`wire/pipelines/step.py`).
_AHEAD = 2
#: Contributions to one sum that are there at least, before they are added.
_LEAST_HELD = 2
#: The log has this size unless another is asked for, and half of it makes a checkpoint due.
_LOG_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one worker of a stage holds, in bytes, and where that is in the code.

    model: parameters and buffers (`Replica`). gradients: the flat buffer (`train/flat.py`), or
    gradients of their own under local SGD. average: local SGD's flat buffer (`train/averaging.py`).
    state: the optimizer's. before: where buffers were when the step began (`train/moves.py`).
    gradient: the largest of a parameter, before it is added to the others. activations: kept for
    the backward pass, of all micro-batches that are between their passes. work: what a pass
    computes with beside them. boundary: messages of a cut model that come, wait or go
    (`wire/pipelines/slots.py`). wire: contributions under way, and what a codec holds
    (`wire/buffers.py`). samples: read ahead. read: the checkpoint, until the model is filled.
    copy: of this worker's share of a checkpoint (`life/checkpoints.py`); a stage's is not copied.
    heap: freed, and not given back.
    """

    model: float
    gradients: float
    average: float
    state: float
    before: float
    gradient: float
    activations: float
    work: float
    boundary: float
    wire: float
    samples: float
    read: float
    copy: float
    heap: float

    def of(self, *names: str) -> float:
        """Bytes of these together."""
        return float(sum(getattr(self, name) for name in names))


_START = ("model", "read", "state", "average", "samples")
_START_STEPPING = ("model", "read", "gradients", "samples")
_STEP = tuple(
    one.name for one in fields(Holding) if one.name not in ("read", "copy", "boundary", "wire")
)
_BETWEEN = ("model", "state", "average", "before", "samples", "heap", "copy")


def peak_mib(
    profile: Profile, configuration: Configuration, stage: int, *, lasts_s: float | None = None
) -> float:
    """Of a worker of this stage, in MiB, as its platform counts it.

    lasts_s: of the run; None: long enough for a checkpoint that is written beside steps. Raises
    RequestError if the profile lacks functions of that size, or its channel is not known.
    """
    c = configuration
    has = holding(profile, c, stage)
    moments = [
        has.of(*_STEP) + max(has.boundary, has.wire),
        has.of(*(_START if c.sync == "local-sgd" else _START_STEPPING)),
    ]
    if c.sync == "local-sgd":
        moments.append(has.of(*_BETWEEN) + has.wire)  # no steps are taken until it is written
    else:
        moments.append(has.of(*_BETWEEN, "gradients"))
        if _has_checkpoints(profile, c, has, lasts_s):
            moments.append(moments[0] + has.copy)
    return stage_size(profile, c, stage).base_mib.value + WORKER_MIB + max(moments) / _MIB


def holding(profile: Profile, configuration: Configuration, stage: int) -> Holding:
    """Of a worker of this stage. Raises RequestError as `peak_mib`."""
    c, layers = configuration, stage_layers(profile, configuration, stage)
    members = c.replicas if c.cut else c.workers
    model = sum(layer.parameters + layer.buffers for layer in layers)
    state = sum(layer.trained for layer in layers) * profile.state_per_trained_byte
    largest = max((ITEM_BYTES * size for one in layers for size in elements(one)), default=0)
    samples = -(-c.batch_size // members)
    micro = -(-samples // c.micro_batches)
    passing, average = ITEM_BYTES * flat(layers, tail=3, listed=profile.listed).length, 0
    if c.sync == "local-sgd":
        average = ITEM_BYTES * averaged(layers, profile.state_per_trained_byte, _losses(profile, c))
    held = between_passes(c, stage)
    kept = sum(layer.activations for layer in layers)
    work = micro * max(layer.output + layer.gradient for layer in layers)
    block = min(_LARGEST_BLOCK_BYTES, max(largest, work))
    return Holding(
        model=model,
        gradients=passing if c.sync != "local-sgd" else sum(layer.trained for layer in layers),
        average=average,
        state=state,
        before=sum(ITEM_BYTES * moving(layer) for layer in layers),
        gradient=largest,
        activations=held * micro * kept,
        work=work,
        boundary=micro * _boundary(layers, c, stage, held),
        wire=_wire(profile, c, members, average or passing, layers),
        samples=_samples(profile, samples),
        read=0 if c.cut else model,
        copy=0 if c.cut else max((model + state) / members, largest),
        heap=_KEPT_BLOCKS * block,
    )


def between_passes(configuration: Configuration, stage: int) -> int:
    """Micro-batches whose forward pass is done and backward pass is not, at most.

    All of them by fill-drain, and by 1F1B as many as there are stages from this one on (see
    `wire.pipelines.orders`); one where the model is not cut.
    """
    c = configuration
    if not c.cut:
        return 1
    return min(c.micro_batches, c.stages - stage) if c.schedule == "1f1b" else c.micro_batches


def _boundary(layers: tuple[LayerBytes, ...], c: Configuration, stage: int, held: int) -> float:
    """Of a micro-batch's samples: what comes in and goes out, ahead and behind, and what was sent
    and has still to go back."""
    first, last = layers[0], layers[-1]
    before = 0.0 if stage == 0 else first.gradient
    behind = 0.0 if stage == c.stages - 1 else last.output
    waiting = min(_AHEAD, c.micro_batches - 1)
    return held * behind + waiting * 2 * max(before, behind)


def _wire(
    profile: Profile, c: Configuration, members: int, nbytes: int, layers: tuple[LayerBytes, ...]
) -> float:
    """Contributions that lie beside the buffer of `nbytes` bytes."""
    if members == 1:
        return 0.0
    means, held = Means.of(profile), 0.0
    residual = sum(layer.trained for layer in layers) if c.compress == "int8" else 0
    if not means.lends and not means.kind.abilities.sums:
        owners = c.aggregators or members
        pieces = min(members - 1, _LEAST_HELD) + 1
        held = pieces * nbytes / owners
    return held + residual


def _samples(profile: Profile, samples: int) -> float:
    """Read ahead, and put together."""
    step = samples * profile.sample_bytes
    return _BLOCKS * max(step, min(_BLOCK_BYTES, 32 * step)) + step


def _losses(profile: Profile, c: Configuration) -> int:
    return Rounds(Batches(profile.samples, c.batch_size), c.k).longest


def _has_checkpoints(
    profile: Profile, c: Configuration, has: Holding, lasts_s: float | None
) -> bool:
    """Whether a checkpoint is written beside steps: after some time, or as the log fills."""
    if lasts_s is None or lasts_s > c.checkpoint_every_s:
        return True
    if c.workers == 1:
        return False
    sums = has.gradients
    rounds = max(1.0, (_LOG_BYTES - (c.workers - 1) * sums) // max(1.0, sums) // 2)
    return c.epochs * Batches(profile.samples, c.batch_size).steps > rounds
