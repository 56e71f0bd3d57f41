"""Protocols: each takes a round, the steps until replicas are equal again.

`WholeModel` is a protocol whose workers each hold all of the model. They validate together:

    blocks    |0 1 2 3|4 5 6|7 8 9|     of each worker some; sums: a row a block
    metrics   computed at rank 0 from what all others hand in; they travel with the sums

`Gathering` brings outputs and targets of a validation to one worker, the root:

    rank 1   |evaluate|hand in|                 | sum of all: the metrics are in it
    root     |evaluate        |collect|metrics  | sum of all | drop what was handed in

Nothing is dropped before the metrics are stored with the sum, so a worker that starts again finds
what it needs: the root the rows of the others, all others the sum.
"""

from __future__ import annotations

import time
import typing
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from dayfly.batches import block_shares, covered
from dayfly.closing import Closing
from dayfly.job import Job
from dayfly.life.faults import Faults
from dayfly.life.lifetimes import Lifetime
from dayfly.life.reports import Reporter
from dayfly.runs.progress import CatchUp, LoggedSum, Progress
from dayfly.runs.spans import FaultPoints, Spans
from dayfly.runs.task import StepTask
from dayfly.training.evaluation import HeldOut, Measures
from dayfly.training.logged import Sums, means
from dayfly.training.order import Epochs, Rounds
from dayfly.training.replica import Replica, Wishes
from dayfly.training.rows import Rows
from dayfly.training.slices import Piece
from dayfly.training.state import Tensors
from dayfly.wire.channels.base import Channel
from dayfly.wire.collectives import Collective
from dayfly.wire.collectives.exchange import collect, hand_in, handed_in
from dayfly.wire.engine import Engine
from dayfly.wire.execution import message_key, wait_patiently
from dayfly.wire.keys import Key
from dayfly.wire.schedule import Span
from dayfly.wire.stores.base import Store


class SlicePieces(typing.Protocol):
    """Where a rank's slices of batches come from.

    Attributes:
        leaves: of each batch, those that are the rank's.
    """

    leaves: range

    def pieces(self, step: int, leaf: int | None = None) -> Iterator[Piece]:
        """As `training.slices.Slices.pieces`."""

    def lent(self) -> AbstractContextManager[None]:
        """As `training.slices.Slices.lent`."""

    def at_work(self) -> AbstractContextManager[None]:
        """As `training.slices.Slices.at_work`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """A worker as its protocol sees it.

    Args:
        wishes: returns what this worker wants done after the round that is being taken.
        room: waits until the message log has room for another round.
        written: waits until a checkpoint that is under way is written.
        among: returns another engine, of some of the ranks, for sums by the run's collective. Its
            arguments are a name for the messages (None: as all ranks name them), the ranks, and
            the leaves along whose tree they sum, if they do. The caller closes it.
        by: returns another engine of all ranks, by another collective. The caller closes it.
        finite: looks at the losses of steps whose sums were applied, as the run's `on_nan` says;
            whether the worker's own shares of them are finite comes with them. It may raise.
    """

    task: StepTask
    job: Job
    store: Store
    replica: Replica
    progress: Progress
    epochs: Epochs
    rounds: Rounds
    slices: SlicePieces
    channel: Channel
    held_out: HeldOut
    engine: Engine
    catch_up: CatchUp
    faults: Faults
    fault_points: FaultPoints
    reporter: Reporter
    lifetime: Lifetime
    spans: Spans
    wishes: Callable[[], Wishes]
    room: Callable[[], None]
    written: Callable[[], None]
    among: Callable[[str | None, Sequence[int], int | None], Engine]
    by: Callable[[Collective], Engine]
    finite: Callable[[range, bool], None]


class Protocol(Closing):
    """Takes the rounds of a worker. Made before the replica's state is loaded.

    Attributes:
        steps_when_written: whether it calls the worker's `written` before the replica's `step`, so
            that a checkpoint needs no copies of what that changes.
        own_finite: whether this worker's own losses of the round that was taken are finite, as far
            as it computed them.
        looks_at_losses: whether it calls the worker's `finite` itself, with each sum; else that is
            called after each round.
    """

    steps_when_written: ClassVar[bool] = False
    looks_at_losses: ClassVar[bool] = False
    own_finite: bool = True

    def __init__(self, worker: WorkerContext) -> None:
        self.worker = worker

    @abstractmethod
    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        """Become the replica of a checkpoint before `step`; returns the step to go on with."""

    @property
    def equal(self) -> bool:
        """Whether the replica equals its peers', as far as the protocol knows: between rounds."""
        return True

    @property
    def complete(self) -> bool:
        """Whether the model of `shared_state` is what any other protocol goes on with, too."""
        return True

    def shared_state(self) -> tuple[Any, Tensors]:
        """The replica's state as JSON and tensors (not copied), as all workers have it alike."""
        return self.worker.replica.state()

    def state(self) -> tuple[Tensors, Tensors]:
        """What a run checkpoint keeps beside the replica (not copied): shared, and this worker's.

        The shared tensors are equal on all workers, and have names that the replica's have not.
        """
        return {}, {}

    @abstractmethod
    def take(self, step: int) -> Wishes:
        """Take the rest of the round that `step` is in; returns what is granted after it.

        Raises HandOver if there is no time for it, WireError if the wire fails.
        """

    @abstractmethod
    def validate(self, step: int, held_out: HeldOut | None = None) -> Measures:
        """Measures the model after an epoch's last step; the same at every worker.

        Args:
            step: names the messages.
            held_out: what it is measured on; None: the job's own.
        """

    def tell_step(
        self,
        step: int,
        loss: float | None,
        *,
        computed: bool,
        began: float,
        at: float,
        logged: Sums | None = None,
        **more: Any,
    ) -> None:
        """Report a step that took from `began` (monotonic; `at` in Unix seconds) until now.

        Args:
            more: fields of the report; with `step_s` and `spans` it did not end now.
        """
        here = self.worker
        if logged:
            more["logged"] = means(logged)
        if "spans" not in more:
            more |= {"step_s": time.monotonic() - began, "spans": here.spans.take(began)}
        here.reporter.add("step", step=step, loss=loss, computed=computed, began=at, **more)

    def close(self) -> None:
        """End its threads."""
        return None


class Gathering:
    """One validation's rows on their way to `root`; all workers name the parts alike."""

    def __init__(self, worker: WorkerContext, held_out: HeldOut, root: int, step: int) -> None:
        self._worker = worker
        self._held_out = held_out
        self._root = root
        self._step = step
        self._chunk = max(1, worker.channel.abilities.chunk_bytes)
        self._expected: list[Key] = []

    def hand_in(self, number: int, rows: Rows, samples: range) -> None:
        """Sends rows of some samples, this worker's part of the gathering's round `number`."""
        here = self._worker
        for leaf, own in enumerate(rows.bytes_of(samples) if samples else ()):
            schedule = hand_in(here.task.rank, self._root, own.numel(), chunk=self._chunk)
            if len(schedule):
                here.engine.run(schedule, own, self._step, self._operation(number, leaf))

    def collect(self, number: int, rows: Rows, parts: Mapping[int, range]) -> None:
        """Receives parts of a round.

        Args:
            number: of the round, within the gathering.
            rows: of all samples.
            parts: each rank's samples.
        """
        for operation, whole, spans in self._spans(number, rows, parts):
            schedule = collect(self._root, spans, chunk=self._chunk)
            if len(schedule):
                self._worker.engine.run(schedule, whole, self._step, operation)
        self.expect(number, rows, parts)

    def expect(self, number: int, rows: Rows, parts: Mapping[int, range]) -> None:
        """Notes parts of a round as messages that are to be dropped in the end."""
        for operation, _, spans in self._spans(number, rows, parts):
            names = handed_in(self._root, spans, chunk=self._chunk)
            self._expected += [message_key(self._step, operation, name) for name in names]

    def _spans(
        self, number: int, rows: Rows, parts: Mapping[int, range]
    ) -> Iterator[tuple[str, torch.Tensor, dict[int, Span]]]:
        """Of each tensor: its operation, its bytes, and where in them each rank's part is."""
        for leaf, whole in enumerate(rows.bytes_of(rows.samples)):
            row = whole.numel() // len(rows.samples)
            spans = {
                rank: Span(row * samples.start, row * samples.stop)
                for rank, samples in parts.items()
            }
            yield self._operation(number, leaf), whole, spans

    def keep_form(self, rows: Rows) -> None:
        """Keeps the form of the rows for another attempt of the root."""
        key = self._form_key()
        self._worker.channel.put_bytes(key, rows.form())
        self._expected.append(key)

    def take_form(self, rows: Rows) -> None:
        """Takes the form that an earlier attempt of the root kept."""
        here, key = self._worker, self._form_key()
        form = wait_patiently(
            lambda some_s: here.channel.get_bytes(key, some_s),
            here.task.wait_timeout_s,
            here.engine.check,
            f"rank {here.task.rank} for the {key}",
        )
        rows.take_form(form)
        self._expected.append(key)

    def drop(self) -> None:
        """Removes what was handed in, once the metrics are stored."""
        self._worker.channel.drop(self._expected)
        self._expected = []

    def _form_key(self) -> Key:
        return Key(self._step, self._held_out.operation("rows-form"), self._root, self._root)

    def _operation(self, number: int, leaf: int) -> str:
        return self._held_out.operation(f"rows-{number}-{leaf}")


class WholeModel(Protocol):
    """A protocol whose workers each hold all of the model."""

    @staticmethod
    @abstractmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        """Size of what a round sums over the workers; may change the replica."""

    def validate(self, step: int, held_out: HeldOut | None = None) -> Measures:
        """Each worker measures its blocks, which are summed by all.

        Rank 0 computes the metrics, of outputs and targets that all others hand in.
        """
        here = self.worker
        held_out = held_out or here.held_out
        source, evaluation = held_out.source, held_out.evaluation
        here.fault_points.operation = "val"
        rank, root = here.task.rank, 0
        blocks = len(evaluation.blocks)
        sums = torch.cat([evaluation.empty(blocks), evaluation.no_values()])
        numbers = len(sums) - len(evaluation.gathered)
        table, values = sums[:numbers], sums[numbers:]
        one = LoggedSum(here.engine, held_out.operation("val"), sums)
        (stored,) = here.catch_up.stored(step, [one])
        gathering = Gathering(here, held_out, root, step)
        if one.reads_buffer(stored):
            shares = block_shares(evaluation.blocks, here.task.world_size)
            samples = [covered(share) for share in shares]
            whole = range(source.samples)
            rows = evaluation.rows(whole if rank == root else samples[rank])
            with here.spans.during("validate"), here.replica.averaged():
                own = evaluation.measure(here.replica.model, source, shares[rank], rows)
                table.copy_(own)
            here.faults.at(step, "evaluated")
            if rows is not None:
                if rank == root:
                    others = {r: some for r, some in enumerate(samples) if r != root}
                    gathering.collect(0, rows, others)
                    values.copy_(evaluation.values(rows))
                else:
                    gathering.hand_in(0, rows, samples[rank])
            here.faults.at(step, "gathered")
        one.take(step, stored)
        gathering.drop()
        return evaluation.record(table, values)
