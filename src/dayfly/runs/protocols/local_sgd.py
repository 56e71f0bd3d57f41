"""Local SGD: a round is k steps, or an epoch; then models and optimizers are averaged, or an outer
optimizer takes a step (outer.py).

A run checkpoint is made between rounds, where replicas are equal. Within a round a worker keeps
its own state in the store when its lifetime ends, and every `checkpoint_every_s`: its successor
goes on from there, by the same steps as from the round's beginning, so with the same bits. That
holds after a rollback, too, if the round is the one that begins at the run checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.lifetimes import HandOver
from dayfly.runs.progress import LoggedSum, Progress
from dayfly.runs.protocols.base import WholeModel, WorkerContext
from dayfly.training.averaging import Averaging, RoundSum
from dayfly.training.local_sgd import LocalSgd
from dayfly.training.logged import means
from dayfly.training.order import Rounds
from dayfly.training.replica import Replica, Wishes
from dayfly.training.state import Tensors


class LocalSgdRounds(WholeModel):
    """Rounds of replicas that train by themselves. `step` is always a round's first step."""

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        task = worker.task
        self._steps = LocalSgd(
            worker.job,
            worker.replica,
            worker.epochs,
            worker.rounds,
            task.rank,
            task.world_size,
            task.weighting,
            self._make,
        )
        parts = self._steps.round_sum.parts
        self._sums = [
            LoggedSum(worker.engine, name, buffer, packing)
            for name, (buffer, packing) in zip(self._names(len(parts)), parts, strict=True)
        ]
        self._own = worker.store.below(f"{PRIVATE}/worker-{task.rank}")
        self._kept_at = time.monotonic()
        self._within: int | None = None  # the round that was begun, by its first step

    def _make(self, replica: Replica, numbers: int) -> RoundSum:
        """What a round sums; as of `LocalSgd`."""
        return Averaging(replica, numbers)

    @staticmethod
    def _names(sums: int) -> Sequence[str]:
        """Names of a round's sums, in keys."""
        return ["avg"]

    def _begin_at(self, tree: Any, tensors: Tensors) -> None:
        """Become the replica of a run checkpoint."""
        self.worker.replica.load_state(tree, tensors)

    @staticmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        return Averaging(replica, rounds.longest).data.nbytes

    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        own = checkpoints.latest(self._own)
        if own is None or own.step <= step:
            self._begin_at(tree, tensors)
            return step
        kept, kept_tensors = checkpoints.read(self._own, own)
        if not self.worker.task.replays and kept["first"] != step:
            # Of a later round, from which all went back: the averages between are gone.
            self._begin_at(tree, tensors)
            return step
        self._steps.load_state(kept["steps"], kept_tensors)
        self.worker.progress.become(Progress.load(kept["progress"]))
        first: int = kept["first"]
        self._within = first
        return first

    @property
    def equal(self) -> bool:
        return self._within is None

    def take(self, step: int) -> Wishes:
        here = self.worker
        steps = here.rounds.steps(step)
        stored = here.catch_up.stored(step, self._sums)
        if not here.catch_up.behind:
            here.room()
        if self._within != step:
            self._steps.begin_round()
            self._within = step
        computed = self._steps.round_sum.remembers or any(
            one.reads_buffer(some) for one, some in zip(self._sums, stored, strict=True)
        )
        # Its copies would lie beside the gradients, which nobody has between rounds.
        here.written()
        began, at, whole = time.monotonic(), time.time(), not self._steps.done
        for number in range(step + self._steps.done, steps.stop):
            if computed:
                self._step(step, number)
            else:
                self._steps.skip(number)
        last = steps.stop - 1
        self.own_finite = self._steps.finite
        if computed:
            self._steps.contribute(step, here.wishes())
        here.faults.at(last, "computed")
        averaging = time.monotonic()
        try:
            with here.slices.lent():
                for one, some in zip(self._sums, stored, strict=True):
                    one.take(step, some)
        except HandOver:
            if not computed:
                raise
            self._keep(step)
            raise HandOver(kept=True) from None
        here.faults.at(last, "reduced")
        with here.spans.during("apply"):
            losses, granted = self._steps.adopt(step)
        here.faults.at(last, "applied")
        for number, loss, logged in zip(steps, losses, self._steps.logged, strict=True):
            here.progress.add(number, loss, len(here.epochs.batch(number)), logged)
        ended = time.monotonic()
        here.reporter.add(
            "round",
            step=step,
            steps=len(steps),
            losses=losses,
            computed=computed and whole,
            began=at,
            round_s=ended - began,
            average_s=ended - averaging,
            spans=here.spans.take(began),
            logged=[means(one) for one in self._steps.logged if one],
        )
        self._within = None
        return granted

    def _step(self, first: int, step: int) -> None:
        here = self.worker
        here.lifetime.step_begins()
        self._step_alone(step)
        here.lifetime.step_ends()
        due = here.lifetime.due()
        if due or time.monotonic() - self._kept_at > here.task.checkpoint_every_s:
            self._keep(first)
        if due:
            raise HandOver(kept=True)

    def _step_alone(self, step: int) -> None:
        """Take an inner step, and tell it."""
        here = self.worker
        began, at = time.monotonic(), time.time()
        here.faults.at(step, "compute")
        with here.spans.during("compute"):
            loss = self._steps.step(here.slices.pieces(step), step)
        here.faults.at(step, "stepped")
        logged = self._steps.own_logged
        self.tell_step(step, loss, computed=True, began=began, at=at, logged=logged)

    def _keep(self, first: int) -> None:
        """Keep the own state, within the round that begins with step `first`."""
        here = self.worker
        began = time.monotonic()
        with here.spans.during("checkpoint"):
            steps, tensors = self._steps.state()
            tree = {"first": first, "steps": steps, "progress": here.progress.dump()}
            at = first + self._steps.done
            written = checkpoints.write_stages(self._own, at, [(tree, tensors)])
            checkpoints.discard_others(self._own, checkpoints.commit(self._own, at, written))
        self._kept_at = time.monotonic()
        here.lifetime.checkpoint_took(self._kept_at - began)
        here.faults.at(first, "kept")


#: Where workers keep their own state, in the run's store; of no use to another life of the run.
PRIVATE = "private"
