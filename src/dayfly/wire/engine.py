"""The engine of a rank: runs collectives over a channel, several at once if need be.

How a schedule is run is in `execution`; `virtual.simulate` runs the same schedules in virtual time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.wire.buffers import Buffer, BufferPool
from dayfly.wire.channels.base import Messages
from dayfly.wire.collectives import Collective
from dayfly.wire.execution import Execution, Setting, Superseded, Watch, stored_names
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import CompiledSchedule, Lane, Name, Op, Schedule, Work, worth_at_once
from dayfly.wire.summation import ADD, Fold


class Engine(Closing):
    """Collectives of one rank, from any threads; all ranks must begin them in the same order.

    Args:
        timeout_s: how long to wait for a message before WaitTimeout names it.
        interrupt: called every now and then while a caller waits; may raise to end the wait.
        observe: called after each operation, in the thread of its lane (for failure tests).
        watch: told where the time goes, in the thread of its lane.
    """

    def __init__(
        self,
        channel: Messages,
        collective: Collective,
        rank: int,
        world_size: int,
        *,
        timeout_s: float,
        interrupt: Callable[[], None] | None = None,
        observe: Callable[[Op], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._channel = channel
        self._collective = collective
        self._rank = rank
        self._world_size = world_size
        self._interrupt = interrupt
        self._given_up: BaseException | None = None
        self._usual: dict[tuple[int, int], CompiledSchedule] = {}  # with nothing stored, by size
        lanes = () if channel.immediate else (Lane.UPLINK, Lane.DOWNLINK)
        self._carriers = {
            lane: ThreadPoolExecutor(
                self.at_once * channel.abilities.in_flight,
                thread_name_prefix=f"dayfly-{lane.value}",
            )
            for lane in lanes
        }
        self._turns = threading.BoundedSemaphore(self.at_once)
        self._setting = Setting(
            channel=channel,
            rank=rank,
            timeout_s=timeout_s,
            check=self.check,
            buffers=BufferPool(),
            observe=observe,
            watch=watch,
            carriers=self._carriers,
        )

    def set_timeout(self, timeout_s: float) -> None:
        """Wait so long for a message in what begins from now on."""
        self._setting = replace(self._setting, timeout_s=timeout_s)

    @property
    def at_once(self) -> int:
        """The most collectives that run at once."""
        return worth_at_once(immediate=self._channel.immediate)

    def schedule(self, like_P: Buffer, stored: Set[Name] | None = None) -> Schedule:
        """This rank's schedule to sum buffers like this one, given what is `stored` already."""
        return self._plan(like_P, stored).schedule

    def stored_sums(self, like_P: Buffer, step: int, operation: str) -> frozenset[Name]:
        """Which of this all-reduce's sums are in the channel: for a worker that starts again."""
        return stored_names(self._channel, step, operation, self.sums(like_P))

    def sums(self, like_P: Buffer) -> tuple[Name, ...]:
        """The messages that together hold the result of an all-reduce of buffers like this one."""
        return self._collective.sums(self._world_size, like_P.numel(), self._chunk(like_P))

    @property
    def keeps_sums(self) -> bool:
        """Whether the collective leaves sums, from which a worker that starts again takes them."""
        return bool(self._collective.sums(self._world_size, 1, 1))

    def all_reduce(
        self,
        buffer_P: Buffer,
        step: int,
        operation: str,
        stored: Set[Name] | None = None,
        packing: Packing | None = None,
        fold: Fold = ADD,
        observe: Callable[[Op], None] | None = None,
    ) -> None:
        """Sum a flat, contiguous CPU buffer (P,) over all ranks, in place, in a fixed order.

        Args:
            stored: from `stored_sums`, when catching up, and None otherwise.
            packing: how the buffer travels; its tail is summed, too; None: as it is.
            fold: what is done instead of adding.
            observe: is called in place of the engine's.

        Raises:
            ValueError: the channel's server, or the codec, does not know the fold.
            WireError: the wire failed; WaitTimeout: a message did not come. Also whatever
                `interrupt` raises.
        """
        if fold is not ADD and (self._collective.server or packing is not None):
            what = "a server that sums" if self._collective.server else "a codec"
            raise ValueError(f"{what} only adds: give another collective, or no codec, for {fold}")
        setting = self._setting if observe is None else replace(self._setting, observe=observe)
        with self._turns:
            while True:
                plan = self._plan(buffer_P, stored)
                own = (name for name in self.sums(buffer_P) if name.source == self._rank)
                execution = Execution(
                    setting,
                    plan,
                    buffer_P,
                    step,
                    operation,
                    unmade=[name for name in own if name not in (stored or ())],
                    catching_up=stored is not None,
                    packing=packing,
                    fold=fold,
                )
                try:
                    return execution.run()
                except Superseded:
                    # Its sum is among the stored ones now, so this happens once a sum.
                    stored = self.stored_sums(buffer_P, step, operation)

    def run(
        self,
        schedule: Schedule | CompiledSchedule,
        buffer_P: Buffer,
        step: int,
        operation: str,
        *,
        fold: Fold = ADD,
        compute: Callable[[Work], None] | None = None,
    ) -> None:
        """Run another schedule on a flat buffer (P,); as `all_reduce`.

        Args:
            compute: does the work of its COMPUTE operations, in the caller's thread.
        """
        plan = schedule if isinstance(schedule, CompiledSchedule) else CompiledSchedule(schedule)
        with self._turns:
            Execution(
                self._setting, plan, buffer_P, step, operation, fold=fold, compute=compute
            ).run()

    def give_up(self, error: BaseException) -> None:
        """End what other threads are waiting for, with WireError; for good."""
        self._given_up = error

    def check(self) -> None:
        """Raise if waiting is of no use any more."""
        if (why := self._given_up) is not None:
            raise WireError(f"given up, as the step failed: {type(why).__name__}: {why}") from why
        if self._interrupt is not None:
            self._interrupt()

    def close(self) -> None:
        """End the lanes' threads."""
        for pool in self._carriers.values():
            pool.shutdown(wait=True, cancel_futures=True)

    def _plan(self, like_P: Buffer, stored: Set[Name] | None) -> CompiledSchedule:
        shape = like_P.numel(), self._chunk(like_P)
        if stored:
            return self._make(*shape, stored)
        if shape not in self._usual:
            self._usual[shape] = self._make(*shape, frozenset())
        return self._usual[shape]

    def _make(self, length: int, chunk: int, stored: Set[Name]) -> CompiledSchedule:
        return CompiledSchedule(
            self._collective.schedule(self._rank, self._world_size, length, stored, chunk=chunk)
        )

    def _chunk(self, like_P: Buffer) -> int:
        return max(1, self._channel.abilities.chunk_bytes // like_P.itemsize)
