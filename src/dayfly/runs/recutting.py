"""A run that goes on in other stages, or with other replicas or micro-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.utils._pytree import tree_map

from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.checkpoints import State
from dayfly.runs.job_record import Record
from dayfly.runs.log_budget import RoundBytes
from dayfly.runs.protocols import protocol
from dayfly.runs.settings import Settings
from dayfly.runs.staging import CUT, Staging, staged
from dayfly.training.evaluation import validation_batch
from dayfly.training.order import Epochs, Rounds
from dayfly.training.randomness import DATA, seeded
from dayfly.training.replica import Replica
from dayfly.training.sources import open_sources
from dayfly.wire.stores.base import Store

#: Samples that are tried.
_SAMPLES = 4


def refitted(before: Settings, record: Record, job: Job, store: Store) -> Record:
    """The record of a life with these settings, whose messages are others than in the life before.

    Raises RequestError for stages that do not work.
    """
    settings = record.settings
    if not settings.cut:
        nbytes = record.round_bytes.summed
        if before.cut:
            rounds = Rounds(Epochs(record.samples, job.batch_size, job.seed), settings.round_steps)
            nbytes = protocol(settings.sync).round_bytes(job, Replica(job), rounds)
        fresh = RoundBytes.of_sums(nbytes, settings.workers)
        return replace(record, pipelining=None, round_bytes=fresh.validating_as(record.round_bytes))
    fitting = ("cut", "replicas", "micro_batches", "schedule")
    if all(getattr(settings, name) == getattr(before, name) for name in fitting):
        return record
    staging = _staged(record, job, store)
    round_bytes = staging.round_bytes.validating_as(record.round_bytes)
    return replace(record, pipelining=staging.pipelining, round_bytes=round_bytes)


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
