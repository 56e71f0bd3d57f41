"""Local SGD with an outer optimizer (DiLoCo): what differs from averaging is what is kept.

Parameters and moves of buffers travel, no optimizer's state: of Adam that is a third of the bytes.
Each worker's inner optimizer goes on with its own state, so that

    a run checkpoint has     the model and the outer optimizer's state once, as all have them alike,
                             and of each worker its inner optimizer's state and residual
    a worker that catches up computes its rounds again, and takes the sums from the message log
    other numbers of workers rank j goes on with the inner state of rank j modulo the ranks before,
                             and with the sum of the residuals of the ranks that leave (modulo the
                             ranks from then on); only between rounds, as of any run checkpoint
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.runs.protocols.handing_on import OUTER, STREAMED, own_of, settled, streamed
from dayfly.runs.protocols.local_sgd import LocalSgdRounds
from dayfly.specs.compression import compression
from dayfly.specs.outer import OF_JOB, Outer
from dayfly.training.order import Rounds
from dayfly.training.outer import (
    OuterGradients,
    hyperparameters,
    joined,
    outer_optimizer,
    parted,
    travelling,
)
from dayfly.training.replica import Replica
from dayfly.training.state import Tensors


class OuterRounds(LocalSgdRounds):
    """Rounds of local steps, each with a step of the outer optimizer, the same at all workers."""

    _outer: OuterGradients

    def _make(self, replica: Replica, numbers: int) -> OuterGradients:
        here, task = self.worker, self.worker.task
        assert task.outer is not None, "another protocol is without an outer optimizer"
        # With one worker nothing travels.
        asked = compression(task.compress if task.world_size > 1 else "none")
        optimizer = outer_optimizer(task.outer, here.job, replica.model)
        codec, fed_back = travelling(asked, here.engine.schedule)
        self._outer = self._summing(task.outer)(replica, numbers, optimizer, codec, fed_back)
        return self._outer

    def _summing(self, outer: Outer) -> Callable[..., OuterGradients]:
        """Returns what makes the sum of a round."""
        return OuterGradients

    @staticmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        outer = Outer() if job.outer_optimizer is None else Outer(name=OF_JOB)
        made = OuterGradients(replica, rounds.longest, outer_optimizer(outer, job, replica.model))
        made.try_step()
        return made.data.nbytes

    def shared_state(self) -> tuple[Any, Tensors]:
        tree, tensors, _ = parted(*self.worker.replica.state())
        outer, more = self._outer.shared()
        return {**tree, OUTER: outer}, {**tensors, **more}

    def state(self) -> tuple[Tensors, Tensors]:
        _, _, own = parted(*self.worker.replica.state())
        return {}, {**own, **self._outer.own()}

    def _begin_at(self, tree: Any, tensors: Tensors) -> None:
        here, task = self.worker, self.worker.task
        own = own_of(here, task.rank)
        if (how := streamed(task.outer)) is None or tree.get(STREAMED, how) != how:
            tree, tensors, own = settled(here, tree, tensors, own)
        here.replica.load_state(*joined(tree, tensors, own))
        self._outer.load_shared(tree.get(OUTER), tensors, hyperparameters(task.outer))
        self._begin_from(own, tree, tensors)
        if OUTER in tree and self._outer.own():  # else residuals are of gradients
            residuals: Sequence[Tensors] = (own,)
            if checkpoints.owners(task.checkpoint) != task.world_size:
                where = here.store, task.checkpoint
                residuals = checkpoints.read_own(*where, task.rank, task.world_size)
            self._outer.load_own(residuals)

    def _begin_from(self, own: Tensors, tree: Any, tensors: Tensors) -> None:
        """Take what else a run checkpoint has.

        Args:
            own: of this worker, or of the one whose part it begins with; empty: there is none.
            tree, tensors: shared.
        """
