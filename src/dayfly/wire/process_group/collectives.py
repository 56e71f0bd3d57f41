"""Runs the collectives of one group: in their order, by their schedules, with their clean-up.

All members ask for the same collectives in the same order; number k runs in lane k modulo the
number of lanes, one at a time in each. So whoever has begun k is done with all before it in its
lane, and whoever completes k, in which all members meet, knows that of every member: what it has
stored for all to read in those before can be dropped.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import torch

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.threads import Failed, guarded, start_thread
from dayfly.wire.buffers import Buffer, JoinedBuffer
from dayfly.wire.channels.base import Messages
from dayfly.wire.collectives import COLLECTIVES, collective, default_collective
from dayfly.wire.collectives.base import MakeOther
from dayfly.wire.collectives.exchange import broadcast, exchange
from dayfly.wire.collectives.k_reduce import at_everyone, barrier
from dayfly.wire.collectives.reduce_scatter import all_gather, reduce, reduce_scatter
from dayfly.wire.engine import Engine
from dayfly.wire.execution import message_key
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.schedule import CompiledSchedule, Kind, Name, Schedule, Span
from dayfly.wire.summation import ADD, Fold

#: A collective to be run, given its number.
Job = Callable[[int], None]


class Order:
    """Threads of lanes, each started when it is first needed.

    Args:
        failed: told what a job raises, which is to catch all that it expects; the lane goes on.
    """

    def __init__(self, lanes: int, name: str, failed: Failed) -> None:
        self._failed = failed
        self.lanes = lanes
        self._name = name
        self._queues: list[SimpleQueue[tuple[Job, int] | None]] = []
        self._threads: list[threading.Thread] = []
        self._number = 0
        self._closed = False
        self._lock = threading.Lock()

    @property
    def number(self) -> int:
        """Of the next collective."""
        return self._number

    def add(self, job: Job, *after: Job) -> None:
        """Run it in its turn, then those `after` it in the same lane, with the same number.

        Raises RuntimeError if it is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the group {self._name} was destroyed")
            number, self._number = self._number, self._number + 1
            lane = number % self.lanes
            if lane == len(self._queues):
                self._start_lane(lane)
            for one in (job, *after):
                self._queues[lane].put((one, number))

    def close(self, timeout_s: float | None = None) -> bool:
        """Run what was added, and end the threads; whether they ended in time.

        May be called again.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            if not self._closed:
                self._closed = True
                for queue in self._queues:
                    queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _start_lane(self, lane: int) -> None:
        queue: SimpleQueue[tuple[Job, int] | None] = SimpleQueue()
        # A daemon: a script that ends without destroying its groups must not hang.
        thread = start_thread(
            lambda: self._run(queue), name=f"dayfly-{self._name}-{lane}", failed=self._failed
        )
        self._threads.append(thread)
        self._queues.append(queue)

    def _run(self, queue: SimpleQueue[tuple[Job, int] | None]) -> None:
        while (item := queue.get()) is not None:
            job, number = item
            guarded(partial(job, number), self._failed)()


#: Where no more than this comes to each member in all, it is latency that counts, not bytes.
_FEW_BYTES = 2**14
#: Schedules that a group keeps, as most steps of a program are like the one before.
_MOST_PLANS = 256
#: How the barrier is named by which all have read a broadcast: as a part of it, with its number.
SETTLE = "broadcast-settle"
#: What the members can do together, as messages name it; the longer of two that begin alike first.
_NAMES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "reduce",
    "broadcast",
    "gather",
    "scatter",
    "barrier",
)
#: When a wait is first suspected to be for nothing, as the members are out of step, in seconds.
_SUSPECT_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A schedule that is ready to run.

    Attributes:
        plan: the compiled schedule.
        left: this member's messages that stay, as all members read them.
    """

    plan: CompiledSchedule
    left: tuple[Name, ...]


class Collectives(Closing):
    """Of one member; numbers are those of `order.Order`, in whose threads they run.

    Args:
        lanes: of the order.
        at_server: whether sums of the whole group can be made by the channel.
    """

    def __init__(
        self,
        channel: Messages,
        rank: int,
        size: int,
        *,
        timeout_s: float,
        lanes: int,
        at_server: bool,
    ) -> None:
        self._channel = channel
        self._rank = rank
        self._size = size
        self._lanes = lanes
        abilities = channel.abilities
        usual = default_collective(
            sums=abilities.sums and at_server,
            direct=abilities.direct,
            immediate=channel.immediate,
        )
        self._usual = collective(usual, None, size)
        # A server only adds.
        self._otherwise = COLLECTIVES["overlapped"] if self._usual.server else self._usual
        self._engine = Engine(
            channel, self._otherwise, rank, size, timeout_s=timeout_s, interrupt=self._check
        )
        self._plans: dict[tuple[object, ...], _Prepared] = {}
        self._left: dict[int, list[Key]] = defaultdict(list)  # by lane
        self._running: dict[int, tuple[str, float, float]] = {}
        self._lock = threading.Lock()

    def all_reduce(self, flat_P: torch.Tensor, number: int, fold: Fold) -> None:
        """Reduce (P,) over all members, in place, in the order of their ranks."""
        algorithm = self._usual if fold is ADD else self._otherwise
        few = (self._size - 1) * flat_P.nbytes <= _FEW_BYTES and not algorithm.server
        make = at_everyone if few else algorithm.schedule
        self._run(number, "all-reduce", flat_P, make, (fold is ADD,), fold)

    def reduce(self, flat_P: torch.Tensor, number: int, fold: Fold, root: int) -> None:
        """Reduce (P,) to the root; what others have in theirs is not defined afterwards."""
        self._run(number, "reduce", flat_P, reduce(root), (root,), fold)

    def broadcast(self, flat_P: torch.Tensor, number: int, root: int) -> None:
        """Everyone gets the root's (P,). The members do not meet."""
        self._run(number, "broadcast", flat_P, broadcast(root), (root,), meet=False)

    def reduce_scatter(self, blocks: JoinedBuffer, number: int, fold: Fold) -> None:
        """Reduces `size` equal blocks; only this member's own block changes."""
        self._run(number, "reduce-scatter", blocks, reduce_scatter, fold=fold)

    def all_gather(self, blocks: Buffer, number: int, name: str = "all-gather") -> None:
        """Of `size` equal blocks, this member has its own, and gets the others."""
        self._run(number, name, blocks, all_gather)

    def barrier(self, number: int, name: str = "barrier") -> None:
        """Nobody is through before all have come."""
        self._run(number, name, torch.empty(0, dtype=torch.uint8), barrier)

    def exchange(
        self,
        name: str,
        pieces: JoinedBuffer,
        number: int,
        sends: Mapping[int, Span],
        receives: Mapping[int, Span],
        *,
        meet: bool,
    ) -> None:
        """Send pieces to members, and get others from them.

        Args:
            meet: whether from all of them.
        """

        def make(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
            return exchange(rank, world_size, sends, receives, chunk=chunk)

        form = (*sends.items(), None, *receives.items())
        self._run(number, name, pieces, make, form, meet=meet)

    @property
    def left(self) -> list[Key]:
        """This member's messages that stay until all are known to have read them."""
        return [key for keys in self._left.values() for key in keys]

    def set_timeout(self, timeout_s: float) -> None:
        """Wait so long for a message in what begins from now on."""
        self._engine.set_timeout(timeout_s)

    def give_up(self, error: BaseException) -> None:
        """End what is under way, for good."""
        self._engine.give_up(error)
        self._channel.wake()

    def close(self) -> None:
        """End the engine's threads; nothing may be under way."""
        self._engine.close()

    def _run(
        self,
        number: int,
        name: str,
        buffer: Buffer,
        make: MakeOther,
        form: tuple[object, ...] = (),
        fold: Fold = ADD,
        *,
        meet: bool = True,
    ) -> None:
        """Run the schedule that `make` makes.

        Args:
            number: of the collective, see `Order`.
            name: of its messages.
            buffer: to run it on.
            make: makes it.
            form: what it depends on beside the buffer's size.
            fold: how two terms become one.
            meet: whether it is over only once all members have begun it.
        """
        prepared = self._prepared((name, buffer.numel(), buffer.itemsize, *form), buffer, make)
        now = time.monotonic()
        with self._lock:
            self._running[number] = name, now, now + _SUSPECT_AFTER_S
        try:
            self._engine.run(prepared.plan, buffer, number, name, fold=fold)
        finally:
            with self._lock:
                del self._running[number]
        left = self._left[number % self._lanes]
        if meet:
            self._channel.drop(left)
            left.clear()
        left += [message_key(number, name, one) for one in prepared.left]

    def _prepared(self, form: tuple[object, ...], buffer: Buffer, make: MakeOther) -> _Prepared:
        with self._lock:
            prepared = self._plans.get(form)
        if prepared is None:
            # In memory chunks would be work, and gain nothing.
            whole = self._channel.immediate
            wanted = self._channel.abilities.chunk_bytes // buffer.itemsize
            length = buffer.numel()
            chunk = length + 1 if whole else max(1, wanted)
            schedule = make(self._rank, self._size, length, chunk=chunk)
            left = tuple(
                op.name
                for op in schedule
                if op.kind is Kind.PUT and op.name is not None and op.name.destination == EVERYONE
            )
            prepared = _Prepared(CompiledSchedule(schedule), left)
            with self._lock:
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.pop(next(iter(self._plans)))
                self._plans[form] = prepared
        return prepared

    def _check(self) -> None:
        """While waiting: raise WireError if a member does something else at the same place."""
        now = time.monotonic()
        with self._lock:
            suspects = {
                number: name for number, (name, _, due) in self._running.items() if now > due
            }
            for number in suspects:
                name, began, _ = self._running[number]
                # Each time a request to the store, or several: less and less often.
                self._running[number] = name, began, now + (now - began)
        if not suspects:
            return
        for key in (*self._channel.waiting(self._rank), *self._channel.waiting(EVERYONE)):
            ours = _kind(f"{suspects.get(key.step, '')}-")
            theirs = _kind(key.operation)
            if ours and theirs not in ("", ours):
                raise WireError(
                    f"the members are out of step: collective {key.step} is {ours} on member "
                    f"{self._rank} and {theirs} on member {key.source}"
                )


def _kind(operation: str) -> str:
    """The collective to which a message belongs, by the beginning of its name."""
    return next((name for name in _NAMES if operation.startswith(f"{name}-")), "")
