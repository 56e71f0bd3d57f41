"""Bytes of a run's messages: what its channel is made for, of rounds and of validations."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dayfly.errors import RequestError, WireError
from dayfly.runs.functions import FunctionSettings
from dayfly.runs.settings import Settings
from dayfly.specs.compression import compression
from dayfly.training.evaluation import Evaluation
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import ChannelKind, ChannelSpec
from dayfly.wire.collectives.leaves import nodes_of
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import BUCKET_BYTES, MOST_CHUNKS
from dayfly.wire.segments.layout import ALIGN_BYTES

if TYPE_CHECKING:
    from dayfly.job import Job

MIB = 2**20
#: The bound of the messages unless another is asked for: of a job's at most, of a script's where
#: nobody knows what space is free.
_BUDGET_BYTES = 1024 * MIB
#: Beside a round's messages, room for reports and the like is kept ready for a worker.
_AHEAD_BYTES = 256 * 1024
#: Bytes of a validation's and of reports' messages, at most, that are not worth counting exactly.
_SMALL_MESSAGES_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBytes:
    """What workers send in a round.

    Attributes:
        sent: by the one that sends the most, about.
        kept: of all, as long as the message log has the round.
        passing: of all beside that, at most, while a round is under way.
        summed: of the buffer that a worker sums with others.
        between: messages between stages, of all workers; 0 if the model is not cut.
        largest: bytes of the largest of these.
        measured: of the sums of a validation, which are kept.
        gathered: of its outputs and targets, if metrics need them, while it is under way.
        phases: of a step, each with sums of its own.
    """

    sent: int
    kept: int
    passing: int
    summed: int
    between: int = 0
    largest: int = 0
    measured: int = 0
    gathered: int = 0
    phases: int = 1

    @classmethod
    def of_sums(
        cls,
        nbytes: int,
        workers: int,
        phases: int = 1,
        virtual_workers: int | None = None,
        staleness: int = 0,
    ) -> Self:
        """Of so many bytes that all workers sum: contributions pass, sums are kept.

        Args:
            nbytes: of the buffer.
            workers: that sum it.
            phases: of a step.
            virtual_workers: leaves of a batch; None: as many as workers.
            staleness: steps that workers may be ahead of the sum that is made.
        """
        terms = terms_of(workers, virtual_workers)
        passing = -(-(workers - 1) * nbytes * sum(terms) // workers) * (1 + staleness)
        sent = nbytes * max(terms)
        return cls(sent=sent, kept=nbytes, passing=passing, summed=nbytes, phases=phases)

    def validating_as(self, other: Self) -> Self:
        """The same with the validation of another one, as the job's is, whatever its workers."""
        return replace(self, measured=other.measured, gathered=other.gathered)


def terms_of(workers: int, virtual_workers: int | None) -> list[int]:
    """Returns the number of contributions that each worker brings to a sum, by rank."""
    leaves = workers if virtual_workers is None else virtual_workers
    return [len(nodes) for nodes in nodes_of(workers, leaves)]


def budget_bytes(settings: FunctionSettings, url: str) -> int:
    """Bound of the messages at a URL: what was asked for, or a quarter of the free space."""
    if settings.log_budget_mib is not None:
        return settings.log_budget_mib * MIB
    free = free_bytes(channel_kind(url).directory(url))
    return _BUDGET_BYTES if free is None else free // 4


def channel_plan(settings: Settings, url: str, round_bytes: RoundBytes) -> ChannelSpec:
    """What a job's channel at a URL is to be made for."""
    budget = budget_bytes(settings, url)
    if settings.log_budget_mib is None:
        budget = min(budget, _BUDGET_BYTES)
    # Of a validation each worker hands in about its share.
    sent = max(round_bytes.sent, -(-round_bytes.gathered // settings.members))
    return ChannelSpec(
        senders=settings.workers, budget_bytes=budget, ahead_bytes=sent + _AHEAD_BYTES
    )


def replays(settings: Settings, url: str) -> bool:
    """Whether a worker that starts again catches up alone; else all go back to the run checkpoint.

    The channel has to keep messages, and the collective to leave its sums in it. A single worker
    has nobody to catch up with, and a stage's nobody to sum with.
    """
    keeps = settings.members == 1 or bool(settings.reducing.sums(settings.members, 1, 1))
    return settings.workers == 1 or (channel_kind(url).abilities.replays and keeps)


def log_rounds(
    settings: Settings, url: str, plan: ChannelSpec, round_bytes: RoundBytes
) -> int | None:
    """How many rounds' messages the log may hold; None: there is no log, as nothing is replayed.

    Nor has a single worker one. The budget bounds the messages of the round under way, then.
    Raises RequestError if not even one round fits, or fewer than workers may be ahead by.
    """
    if settings.workers == 1:
        return None
    kind = channel_kind(url)
    messages = _messages(settings, kind, round_bytes)
    overhead = messages * (HEADER_BYTES + ALIGN_BYTES) + _SMALL_MESSAGES_BYTES
    whole = round_bytes.kept + round_bytes.measured + overhead
    passing = round_bytes.passing + (settings.members - 1) * overhead
    passing += (settings.workers - 1) * round_bytes.measured + round_bytes.gathered
    try:
        room = kind.room(plan)
        rounds = (room.nbytes - passing) // whole
    except WireError:
        rounds = 0
    if rounds < 1 + settings.protocol.ahead:
        free = free_bytes(kind.directory(url))
        place = f"at {url}" if free is None else f"at {url} ({free / MIB:.0f} MiB free)"
        gathered = ""
        if round_bytes.gathered >= MIB:
            gathered = f", {round_bytes.gathered / MIB:.0f} MiB of it outputs for the job's metrics"
        fewer = "fewer workers" if settings.stages == 1 else "fewer replicas or a smaller batch"
        raise RequestError(
            f"the message log may take {plan.budget_bytes / MIB:.0f} MiB, but a round of this "
            f"model on {settings.workers} workers takes {(whole + passing) / MIB:.0f} MiB {place}"
            f"{gathered}: raise --log-budget, or use {fewer}"
        )
    if not replays(settings, url):
        return None
    if room.messages is None:
        return rounds
    most, ahead = _most_messages(settings, kind, round_bytes), settings.protocol.ahead
    held = room.messages // most
    if ahead and held < 1 + ahead:
        raise RequestError(
            f"the message log may take {plan.budget_bytes / MIB:.0f} MiB at {url}, with room for "
            f"{room.messages} sums of a worker, and {1 + ahead} rounds of this model have "
            f"{(1 + ahead) * most}: raise --log-budget, or give fewer --fragments"
        )
    return min(rounds, max(1, held))


def _buckets(settings: Settings, round_bytes: RoundBytes) -> int:
    """How many all-reduces a round has at most: one for each full bucket, one for the rest of each
    exchange, and with PowerSGD twice as many."""
    streaming = settings.protocol.streaming
    exchanges = 1 if streaming is None else streaming.fragments
    times = 1 + (compression(settings.compress).method == "powersgd")
    return times * (round_bytes.phases * (1 + exchanges) + round_bytes.summed // BUCKET_BYTES)


def _chunks(nbytes: int, chunk_bytes: int) -> int:
    """Messages that carry so many bytes."""
    return max(1, min(MOST_CHUNKS, nbytes // chunk_bytes))


def _messages(settings: Settings, kind: ChannelKind, round_bytes: RoundBytes) -> int:
    """Messages of a round, of all workers, at most."""
    workers, chunk_bytes = settings.workers, kind.abilities.chunk_bytes
    each = min(round_bytes.summed, BUCKET_BYTES) // settings.members
    brought = sum(terms_of(settings.members, settings.virtual_workers)) * settings.stages
    sums = (workers + settings.members * brought) * _chunks(each, chunk_bytes)
    between = round_bytes.between * _chunks(round_bytes.largest, chunk_bytes)
    return _buckets(settings, round_bytes) * sums + between


def _most_messages(settings: Settings, kind: ChannelKind, round_bytes: RoundBytes) -> int:
    """Messages of a round that stay in the log, of the worker that has the most.

    Its own sums, those of validations, and what it has in flight, all have to be listed.
    """
    members, chunk_bytes = settings.members, kind.abilities.chunk_bytes
    sums = settings.reducing.sums(members, min(round_bytes.summed, BUCKET_BYTES), chunk_bytes)
    most = max(1, *(sum(name.source == rank for name in sums) for rank in range(members)))
    between = 2 * round_bytes.between * _chunks(round_bytes.largest, chunk_bytes)
    # A stage's only replica may send all that passes one of the boundaries.
    senders = settings.workers if settings.layout.even else settings.stages - 1
    return most * _buckets(settings, round_bytes) + -(-between // senders)


def free_bytes(directory: Path | None) -> int | None:
    """Free space where messages are kept; None if that is not on this machine."""
    if directory is None:
        return None
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free


#: Bytes of a number that validation sums.
_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class ValidationBytes:
    """Bytes of a validation.

    Attributes:
        sums: of all workers.
        gathered: outputs and targets of all samples.
    """

    sums: int
    gathered: int

    def add_to(self, round_bytes: RoundBytes) -> RoundBytes:
        """What workers send in a round, with this validation."""
        return replace(round_bytes, measured=self.sums, gathered=self.gathered)


def measuring(
    job: Job, samples: int, row_bytes: int, weighting: Weighting = SAMPLES
) -> ValidationBytes:
    """Returns what a job's validation sends.

    Args:
        job: whose metrics are measured.
        samples: of the validation set.
        row_bytes: outputs and targets of a sample, as metrics need them; 0 without metrics.
        weighting: how losses, and what the job's step logs, are combined.
    """
    numbers = Evaluation(job, samples, weighting).numbers
    return ValidationBytes(_NUMBER_BYTES * numbers, samples * row_bytes)


def check_gathering(
    round_bytes: RoundBytes, settings: Settings, least_mib: Callable[[], float]
) -> None:
    """Checks that one function holds outputs and targets of the whole validation set.

    Args:
        round_bytes: of the job.
        settings: with the memory of its functions.
        least_mib: returns what a function takes without a model; asked if memory is limited.

    Raises:
        RequestError: the function that computes the metrics has less memory than it takes for sure.
    """
    staged = settings.stage_memory_mib
    # Rank 0 computes the metrics, or the last stage of a cut model.
    memory_mib = settings.kinds[-1 if settings.cut else 0].memory_mib
    gathered_mib = round_bytes.gathered / MIB
    # Of a cut model nobody knows here which part the last stage has.
    model_mib = 0.0 if settings.cut else round_bytes.summed / MIB
    if not gathered_mib or memory_mib is None:
        return
    torch_mib = least_mib()
    # Too little memory for PyTorch alone is refused for every job, in other words.
    if torch_mib <= memory_mib < torch_mib + model_mib + gathered_mib:
        raise RequestError(
            "the job's metrics need outputs and targets of all validation samples at one function: "
            f"they take {gathered_mib:.0f} MiB beside the model's {model_mib:.0f} MiB and "
            f"PyTorch's {torch_mib:.0f} MiB, and it has {memory_mib} MiB: raise "
            f"{'--stage-memory' if staged else '--memory'}, validate on fewer samples, or let the "
            "job's step return smaller outputs, such as the classes that are predicted"
        )
