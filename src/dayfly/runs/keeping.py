"""An attempt's part of run checkpoints: when it wants one, what it writes, and room in the log.

training thread    | step k          | step k + 1      | step k + 2      |
the sum of step k             '-- any worker wants a checkpoint: all write one
beside                                == the part ==|'- told to the coordinator
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from dayfly.closing import Closing
from dayfly.life import checkpoints
from dayfly.life.checkpoints import Writer
from dayfly.life.faults import Faults
from dayfly.life.heartbeats import Heartbeats
from dayfly.life.lifetimes import Lifetime
from dayfly.life.reports import STOP, Reporter, trimmed
from dayfly.runs.protocols.base import Protocol
from dayfly.runs.spans import Spans
from dayfly.runs.staging import CUT
from dayfly.runs.task import StepTask
from dayfly.training.replica import Wishes
from dayfly.training.state import Tensors, state_digests
from dayfly.wire.channels.base import Channel
from dayfly.wire.execution import wait_patiently
from dayfly.wire.stores.base import Store


class Keeping(Closing):
    """One attempt's checkpoints. Close it to end its thread.

    Args:
        task: of the attempt.
        began: when the attempt did, by `time.monotonic()`.
        heartbeats: of the attempt.
        check_share: called with step, tensors, and the rank's own, before they are written; may
            raise.

    Attributes:
        last_step: of the checkpoint that was written last, or read.
        trimmed_step: the log before it is gone, as far as this attempt knows.
    """

    def __init__(
        self,
        task: StepTask,
        store: Store,
        channel: Channel,
        faults: Faults,
        lifetime: Lifetime,
        reporter: Reporter,
        spans: Spans,
        *,
        began: float,
        heartbeats: Heartbeats,
        check_share: Callable[[int, Tensors, Tensors], None] = lambda step, share, own: None,
    ) -> None:
        self._task = task
        self._store = store
        self._channel = channel
        self._faults = faults
        self._lifetime = lifetime
        self._reporter = reporter
        self._spans = spans
        self._check_share = check_share
        self._heartbeats = heartbeats
        self.last_step = task.checkpoint.step
        self.trimmed_step = task.trimmed_step
        self._written_at = time.monotonic() - task.checkpoint_age_s
        self._look_at = began + task.pace.first_look_s(task.rank)
        # A second thread for the digest of the state, beside the upload.
        self._writer = ThreadPoolExecutor(2, thread_name_prefix="dayfly-checkpoint")
        self._part: Future[None] | None = None

    def wishes(self, rounds: int, *, ahead: bool = False) -> Wishes:
        """What this worker wants done after the round that is being taken.

        Args:
            rounds: since the last checkpoint, with the one under way.
            ahead: a checkpoint is wanted in any case.
        """
        task, now = self._task, time.monotonic()
        log_fills = task.log_rounds is not None and rounds >= max(1, task.log_rounds // 2)
        time_is_up = task.rank == 0 and now - self._written_at > task.checkpoint_every_s
        wishes = Wishes(checkpoint=log_fills or time_is_up or ahead or self._lifetime.due())
        # A wish of one is a wish of all, so few look for all.
        if now >= self._look_at:
            self._look_at = now + task.pace.look_s
            wishes.stop = self._channel.told(STOP)
        return wishes

    def wait_for_room(self, rounds: int) -> None:
        """Wait until the log has room for another round: until the latest checkpoint counts.

        Args:
            rounds: that the log holds.
        """
        if self._task.log_rounds is None or rounds < self._task.log_rounds:
            return
        self.wait_until_it_counts("room in the message log")
        self.trimmed_step = self.last_step

    def wait_until_it_counts(self, what: str) -> None:
        """Wait until the checkpoint that was written last counts, and those before are gone.

        Args:
            what: is waited for, for errors.
        """
        key = trimmed(self.last_step)
        wait_patiently(
            lambda some_s: self._channel.get_bytes(key, some_s),
            self._task.wait_timeout_s,
            self.check,
            f"rank {self._task.rank} for {what} ({key})",
        )

    def write(
        self,
        step: int,
        protocol: Protocol,
        more: Mapping[str, Any],
        then: str | None,
        tensors: Tensors | None = None,
    ) -> None:
        """Write this worker's part of the checkpoint before `step`.

        It is written beside the steps that follow. What they change is copied now, unless the
        protocol waits with that.

        Args:
            protocol: whose replica is kept, and what is its own.
            more: of the tree, beside the replica.
            then: how the run ends after this checkpoint, if it does.
            tensors: of which `more` speaks, equal on all workers; nobody changes them.
        """
        self.wait()
        began, at = time.monotonic(), time.time()
        self._faults.at(step, "checkpoint")
        with self._spans.during("checkpoint"):
            replica, writer = protocol.worker.replica, self._task.writer
            state = protocol.shared_state()
            told: Future[dict[str, Any]] | None = None
            # No step follows that would change it. CPUs of other types may compute other bits.
            if then is not None and not self._task.allow_other_cpu:
                told = self._writer.submit(told_of, protocol, self._task, state)
            cut = [] if (line := self._task.pipelining) is None else list(line.cut)
            tree = {"replica": state[0], CUT: cut, **more}
            shared, mine = protocol.state()
            whole = {**state[1], **shared, **(tensors or {})}
            settled = replica.settled(whole) if protocol.steps_when_written else ()
            share = checkpoints.share_of(writer, whole, settled)
            own = checkpoints.share_of(Writer(), mine)

        def write() -> None:
            self._check_share(step, share, own)
            parts = checkpoints.write_share(self._store, step, writer, tree, share, own)
            self._faults.at(step, "written")
            self._lifetime.checkpoint_took(time.monotonic() - began)
            self._reporter.add(
                "part",
                urgent=True,
                step=step,
                parts=[asdict(part) for part in parts],
                then=then,
                **({} if told is None else told.result()),
                began=at,
                seconds=time.monotonic() - began,
            )
            self._faults.at(step, "told")

        self._part = self._writer.submit(write)
        self.last_step = step
        self._written_at = time.monotonic()

    def wait(self) -> None:
        """Wait until this worker's part of a checkpoint is written; raises what hindered it."""
        if self._part is not None:
            self._part.result()

    def wait_in_step(self) -> None:
        """As `wait`, in the middle of a step."""
        if self._part is None or self._part.done():
            self.wait()
        else:
            with self._spans.during("checkpoint"):
                self.wait()

    def check(self) -> None:
        """While waiting: raise HandOver if it is time to, Fenced, or what hindered a checkpoint."""
        self._lifetime.check()
        self._heartbeats.check()
        if self._part is not None and self._part.done():
            self._part.result()

    def close(self) -> None:
        """Waits until the checkpoint that is being written is finished, and ends the thread."""
        self._writer.shutdown(wait=True)


def told_of(
    protocol: Protocol,
    task: StepTask,
    state: tuple[Any, Tensors] | None = None,
    *,
    waited: bool = False,
) -> dict[str, Any]:
    """Returns what an attempt tells of the state of its replica: digests; empty within a round.

    Args:
        protocol: whose replica it is.
        task: of the attempt.
        state: of `protocol.shared_state`; None: that is asked for.
        waited: whether sums waited in the checkpoint that it comes from. Where they were applied
            as it was loaded, CPUs of other types may have computed other bits.
    """
    if not protocol.equal or (waited and task.allow_other_cpu):
        return {}
    digest, sums = state_digests(*(state or protocol.shared_state()))
    told = {"digest": digest, "holds": task.holds}
    if not protocol.complete:
        return told
    cut = () if task.pipelining is None else task.pipelining.cut
    return {**told, "sums": sums, "cut": list(cut), "stage": task.stage_rank.stage}
