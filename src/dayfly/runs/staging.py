"""A job's model in stages: tried before anything starts, and cut anew when a run goes on.

bytes of a step       of a stage with one replica    with several
what comes in         kept, for one that dies        dropped once the step's sums are read
sums of gradients     none                           kept
a validation's        dropped, round by round        the same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.utils._pytree import tree_map

from dayfly.batches import block_samples
from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.checkpoints import State
from dayfly.runs.job_record import Record
from dayfly.runs.log_budget import RoundBytes, terms_of
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.protocols import protocol
from dayfly.runs.protocols.handing_on import OUTER
from dayfly.runs.settings import Settings
from dayfly.training.evaluation import validation_batch
from dayfly.training.flat import FlatBuffer
from dayfly.training.optimizers import check_groups, split_state
from dayfly.training.order import Epochs, Rounds
from dayfly.training.randomness import DATA, seeded
from dayfly.training.replica import Replica
from dayfly.training.sources import open_sources
from dayfly.training.stages.layers import build_stage
from dayfly.training.stages.probe import check_stages
from dayfly.training.state import Tensors, model_tensors
from dayfly.training.streaming import check_fragments
from dayfly.wire.pipelines.step import StageRank
from dayfly.wire.stores.base import Store

#: In the tree of a run's checkpoint: in which stages it is.
CUT = "cut"

#: A cut has no place for what each worker has of its own.
CUT_LATER = (
    "workers of an outer optimizer have optimizers of their own, which no stage can take: change "
    "to --sync bsp first, and to --cut once the run has gone on by that"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """A model in stages.

    Attributes:
        names: of each stage's parameters and buffers.
    """

    pipelining: Pipelining
    round_bytes: RoundBytes
    names: tuple[frozenset[str], ...]

    def split(self, tree: Any, tensors: Tensors) -> list[State]:
        """The state of a run's whole checkpoint, stage by stage."""
        states = []
        for names in self.names:
            part, own = split_state(tree["replica"], tensors, names)
            states.append(({**tree, "replica": part, CUT: list(self.pipelining.cut)}, own))
        return states


def staged(
    job: Job, model: nn.Module, fresh: State, settings: Settings, samples: Sequence[Any]
) -> Staging:
    """Try the model in the stages of the settings.

    Raises RequestError, in one sentence, for what does not work.

    Args:
        model: the whole.
        fresh: the state of a replica of it, just made.
        samples: a few, pairs (x, y).
    """
    if job.step is not None:
        raise RequestError(
            "a job with a step= of its own cannot be cut, as that has all of the model: give loss="
        )
    if job.compile:
        raise RequestError(
            "a job with compile=True cannot be cut, as its layers pass one by one: leave one out"
        )
    if isinstance(samples[0], Mapping):
        raise RequestError(
            "a job whose samples are dicts cannot be cut, as its first layer takes x alone: let "
            "its Datasets return pairs (x, y)"
        )
    forms = check_stages(job, model, settings.cut, samples, settings.precision)
    line = Pipelining(
        cut=settings.cut,
        replicas=settings.replicas or 1,
        micro_batches=settings.micro_batches_of_worker(job.accumulate),
        virtual_workers=settings.virtual_workers,
        schedule=settings.schedule,
        forms=forms,
    )
    flat_bytes, names = [], []
    for stage in range(settings.stages):
        part = Replica(job, build_stage(job, settings.cut, stage).model)
        check_groups(fresh, part.state(), f"stage {stage}")
        flat_bytes.append(FlatBuffer(part.model, tail=0).data.nbytes)
        names.append(frozenset(model_tensors(part.model)))
    return Staging(
        pipelining=line,
        round_bytes=step_bytes(line, max(job.batch_sizes), flat_bytes),
        names=tuple(names),
    )


def step_bytes(line: Pipelining, batch_size: int, flat_bytes: Sequence[int]) -> RoundBytes:
    """What workers send in a step.

    Args:
        flat_bytes: of each stage, what its replicas sum.
    """
    layout, flow, last = line.layout, line.flow, line.layout.stages - 1
    sent, sizes, kept, dropped, brought, summed = [], [], 0, 0, 0, 0
    for stage, nbytes in enumerate(flat_bytes):
        replicas = layout.replicas_of(stage)
        # The last replica's share is the largest.
        micros = flow.passing(batch_size, StageRank(stage, replicas - 1)).micros
        own = [
            *(line.forms[stage].nbytes(one.samples) for one in micros if stage < last),
            *(line.forms[stage - 1].gradient_nbytes(one.samples) for one in micros if stage),
        ]
        terms = terms_of(replicas, line.virtual_workers)
        sums = nbytes if replicas > 1 else 0
        sent.append(sum(own) + sums * max(terms))
        brought += -(-(replicas - 1) * sums * sum(terms) // replicas)
        kept, summed = kept + sums, max(summed, sums)
        sizes += own * replicas
        coming = replicas * sum(
            (line.forms[stage - 1].nbytes(one.samples) if stage else 0)
            + (line.forms[stage].gradient_nbytes(one.samples) if stage < last else 0)
            for one in micros
        )
        if replicas > 1:
            dropped += coming
        else:
            kept += coming
    # A reader may drop a step's messages, or those of a validation's round, only when the next
    # one's are under way already.
    validated = sum(form.nbytes(block_samples(batch_size)) for form in line.forms)
    validating = 2 * flow.total * validated
    return RoundBytes(
        sent=max(sent),
        kept=kept,
        passing=max(2 * dropped + brought, dropped + validating),
        summed=summed,
        between=len(sizes),
        largest=max(sizes, default=0),
    )


#: Samples that are tried.
_SAMPLES = 4


def refitted(before: Settings, record: Record, job: Job, store: Store) -> Record:
    """The record of a life with these settings, whose messages are others than in the life before.

    Raises RequestError for stages that do not work.
    """
    settings = record.settings
    if not settings.cut:
        nbytes = record.round_bytes.summed
        exchanges = ("cut", "sync", "k", "outer", "fragments")
        if any(getattr(settings, name) != getattr(before, name) for name in exchanges):
            nbytes = _summed_bytes(record, job)
        fresh = RoundBytes.of_sums(
            nbytes,
            settings.workers,
            len(job.phases),
            settings.virtual_workers,
            settings.protocol.ahead,
        )
        return replace(record, pipelining=None, round_bytes=fresh.validating_as(record.round_bytes))
    fitting = ("cut", "replicas", "micro_batches", "schedule", "precision")  # leaves are fixed
    if all(getattr(settings, name) == getattr(before, name) for name in fitting):
        return record
    staging = _staged(record, job, store)
    round_bytes = staging.round_bytes.validating_as(record.round_bytes)
    return replace(record, pipelining=staging.pipelining, round_bytes=round_bytes)


def _summed_bytes(record: Record, job: Job) -> int:
    """What a worker sums in a round by the settings of a record, of a model that is not cut.

    Raises RequestError for an outer optimizer that cannot be.
    """
    settings = record.settings
    epochs = Epochs.of(record.samples, job, changed=record.batches)
    rounds = Rounds(epochs, settings.round_steps)
    with seeded(DATA, job.seed):
        replica = Replica(job)
        check_fragments(settings.outer_optimizer, replica.model)
        return protocol(settings.protocol).round_bytes(job, replica, rounds)


def recut(record: Record, job: Job, store: Store) -> None:
    """Write the latest checkpoint in the record's stages, if it is in others.

    It says itself in which it is, so that this can be interrupted anywhere. Raises RequestError if
    it was damaged.
    """
    try:
        _recut(record, job, store)
    except RequestError:
        raise
    except DayflyError as error:
        raise RequestError(f"the run's checkpoint cannot be used: {error}") from error


def _recut(record: Record, job: Job, store: Store) -> None:
    committed = checkpoints.latest(store)
    if committed is None:
        return
    cut = list(record.settings.cut)
    tree, _ = checkpoints.read(store, committed)
    if tree[CUT] == cut:
        return
    if OUTER in tree["replica"]:
        raise RequestError(CUT_LATER)

    def split(tree: Any, tensors: Any) -> list[State]:
        if cut:
            return _staged(record, job, store).split(tree, tensors)
        return [({**tree, CUT: cut}, tensors)]

    checkpoints.recut(store, committed, split)


def _staged(record: Record, job: Job, store: Store) -> Staging:
    with seeded(DATA, job.seed):
        source, _ = open_sources(job, record.parts, store)
        samples = [
            tree_map(lambda tensor: tensor[0], validation_batch(source, range(one, one + 1)))
            for one in range(min(_SAMPLES, source.samples))
        ]
        replica = Replica(job)
        return staged(job, replica.model, replica.state(), record.settings, samples)
