"""Runs a schedule on real bytes, over a channel: uplink, downlink and compute side by side.

The uplink and the downlink are a thread each, which live as long as the engine; the caller's
thread is the compute lane. Over a channel in memory, where a transfer is nothing but work of this
processor, the caller's thread does it all in the order of the list: threads would only take turns.
`virtual.simulate` runs the same schedules in virtual time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch

from dayfly.closing import Closing
from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.collectives import Collective
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.message import Header
from dayfly.wire.schedule import Kind, Lane, Name, Op, Schedule, Span
from dayfly.wire.tensors import as_bytes

#: Longest wait for a message between two calls of `interrupt`, in seconds.
_LOOK_UP_S = 0.2

Result = TypeVar("Result")
#: Told of what an all-reduce did: "upload", "download" or "wait" (for a message that was not
#: there yet), from when to when, by `time.monotonic()`.
Watch = Callable[[str, float, float], None]


class Engine(Closing):
    """All-reduces of one rank. One thread uses an engine at a time.

    timeout_s: how long to wait for a message before WaitTimeout names it.
    interrupt: called every now and then while waiting for a message; may raise to end the wait.
    observe: called after each operation, in the thread of its lane (for failure tests).
    watch: told where the time goes, in the thread of its lane.
    """

    def __init__(
        self,
        channel: Channel,
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
        self._timeout_s = timeout_s
        self._interrupt = interrupt
        self._observe = observe
        self._watch = watch
        self._given_up: BaseException | None = None
        self._scratch: torch.Tensor | None = None
        self._usual: dict[tuple[int, int], Schedule] = {}  # with nothing stored, by size
        self._pools = {
            lane: ThreadPoolExecutor(1, thread_name_prefix=f"dayfly-{lane.value}")
            for lane in (() if channel.immediate else (Lane.UPLINK, Lane.DOWNLINK))
        }

    def schedule(self, like_P: torch.Tensor, stored: Set[Name] | None = None) -> Schedule:
        """This rank's schedule to sum buffers like this one, given what is `stored` already."""
        shape = like_P.numel(), self._chunk(like_P)
        if stored:
            return self._make(*shape, stored)
        if shape not in self._usual:
            self._usual[shape] = self._make(*shape, frozenset())
        return self._usual[shape]

    def stored_sums(self, like_P: torch.Tensor, step: int, operation: str) -> frozenset[Name]:
        """Which of this all-reduce's sums are in the channel: for a worker that starts again."""
        names = {_key(step, operation, name): name for name in self.sums(like_P)}
        return (
            frozenset(names[key] for key in self._channel.stored(names)) if names else frozenset()
        )

    def sums(self, like_P: torch.Tensor) -> tuple[Name, ...]:
        """The messages that together hold the result of an all-reduce of buffers like this one."""
        return self._collective.sums(self._world_size, like_P.numel(), self._chunk(like_P))

    @property
    def keeps_sums(self) -> bool:
        """Whether the channel keeps what a worker that starts again needs."""
        return bool(self._collective.sums(self._world_size, 1, 1))

    def _chunk(self, like_P: torch.Tensor) -> int:
        return max(1, self._channel.abilities.chunk_bytes // like_P.itemsize)

    def _make(self, length: int, chunk: int, stored: Set[Name]) -> Schedule:
        return self._collective.schedule(self._rank, self._world_size, length, stored, chunk=chunk)

    def all_reduce(
        self, buffer_P: torch.Tensor, step: int, operation: str, stored: Set[Name] | None = None
    ) -> None:
        """Sum a flat, contiguous CPU buffer (P,) over all ranks, in place, in rank order.

        stored: from `stored_sums`, when catching up, and None otherwise. Raises WireError
        (WaitTimeout for a message that did not come), and whatever `interrupt` raises.
        """
        while True:
            schedule = self.schedule(buffer_P, stored)
            try:
                return _Execution(self, schedule, buffer_P, step, operation, stored).run()
            except _Superseded:
                # Its sum is among the stored ones now, so this happens once an operation.
                stored = self.stored_sums(buffer_P, step, operation)

    def give_up(self, error: BaseException) -> None:
        """End what another thread is waiting for, with WireError; for good."""
        self._given_up = error

    def check(self) -> None:
        """Raise if waiting is of no use any more."""
        if self._given_up is not None:
            raise WireError("given up, as the step failed") from self._given_up
        if self._interrupt is not None:
            self._interrupt()

    def scratch(self, like: torch.Tensor) -> torch.Tensor:
        """Memory of the type and length of a flat tensor (n,), the same at every call."""
        if self._scratch is None or self._scratch.nbytes < like.nbytes:
            self._scratch = torch.empty(like.nbytes, dtype=torch.uint8)
        return self._scratch[: like.nbytes].view(like.dtype)

    def close(self) -> None:
        """End the lanes' threads."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)


class _Superseded(Exception):
    """An earlier attempt of this rank, taken for dead, stored the sum that this one works on.

    It dropped the contributions, too, so there is nothing left to wait for. What was downloaded
    into the buffer by then is sums that are stored, and the rest is this rank's own contribution:
    the buffer is fit for another try.
    """


class _Execution:
    """One schedule being run."""

    def __init__(
        self,
        engine: Engine,
        schedule: Schedule,
        buffer_P: torch.Tensor,
        step: int,
        operation: str,
        stored: Set[Name] | None,
    ) -> None:
        self._engine = engine
        self._schedule = schedule
        self._buffer_P = buffer_P
        self._step = step
        self._operation = operation
        # This rank's sums as long as they are for this attempt to make.
        self._unmade = {
            self._key(name)
            for name in engine.sums(buffer_P)
            if name.source == engine._rank and name not in (stored or ())
        }
        self._catching_up = stored is not None
        self._held: dict[Name, torch.Tensor] = {}
        self._done = [False] * len(schedule)
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def run(self) -> None:
        if self._engine._pools:
            self._run_lanes()
        else:
            for op in self._schedule:
                self._perform(op)

    def _run_lanes(self) -> None:
        lanes: list[Future[None]] = []
        try:
            for lane, pool in self._engine._pools.items():
                if any(op.lane is lane for op in self._schedule):
                    lanes.append(pool.submit(self._run_lane, lane))
            self._run_lane(Lane.COMPUTE)
            wait(lanes)
        except BaseException as error:
            # A signal's, such as Ctrl-C: no lane may touch the buffer once the caller has it back.
            self._fail(error)
            wait(lanes)
        if self._error is not None:
            raise self._error

    def _run_lane(self, lane: Lane) -> None:
        try:
            for position, op in enumerate(self._schedule):
                if op.lane is not lane:
                    continue
                with self._changed:
                    self._changed.wait_for(lambda op=op: self._may_start(op))  # type: ignore[misc]
                if self._error is not None:
                    return
                self._perform(op)
                with self._changed:
                    self._done[position] = True
                    self._changed.notify_all()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End all lanes; the first error is the one that is raised."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _may_start(self, op: Op) -> bool:
        return self._error is not None or all(self._done[earlier] for earlier in op.after)

    def _perform(self, op: Op) -> None:
        match op.kind:
            case Kind.PUT:
                self._put(_named(op), op)
            case Kind.GET:
                self._get(_named(op), self._view(op.span))
            case Kind.HOLD:
                self._hold(_named(op), op.span)
            case Kind.REDUCE:
                self._reduce(op)
            case Kind.DROP:
                keys = [self._key(name) for name in op.terms if name is not None]
                self._engine._channel.drop(keys)
        if self._engine._observe is not None:
            self._engine._observe(op)

    def _put(self, name: Name, op: Op) -> None:
        view, key = self._view(op.span), self._key(name)
        header = Header(key.operation, view.dtype, tuple(view.shape))
        self._unmade.discard(key)
        began = time.monotonic()
        won = self._engine._channel.put(key, header, as_bytes(view))
        self._spent("upload", began, time.monotonic())
        if not won and name.destination == EVERYONE:
            # The first put wins: an earlier attempt's sum is what the peers read, so use it too.
            self._get(name, view)
        elif won and op.feeds is not None and self._catching_up:
            # An earlier attempt's contribution may have been summed and dropped meanwhile.
            late = self._engine._channel.stored([self._key(op.feeds)])
            self._engine._channel.drop([key] if late else [])

    def _get(self, name: Name, into: torch.Tensor) -> None:
        key = self._key(name)
        key = self._key(name)
        began = time.monotonic()
        there = self._patiently(key, lambda some_s: self._engine._channel.get(key, into, some_s))
        self._spent("wait", began, there)
        self._spent("download", there, time.monotonic())

    def _hold(self, name: Name, span: Span) -> None:
        key = self._key(name)
        header = Header(key.operation, self._buffer_P.dtype, (len(span),))
        began = time.monotonic()
        self._held[name], there = self._patiently(
            key, lambda some_s: self._engine._channel.hold(key, header, some_s)
        )
        self._spent("wait", began, there)
        self._spent("download", there, time.monotonic())

    def _patiently(self, key: Key, read: Callable[[float], Result]) -> Result:
        what = f"rank {self._engine._rank} for the {key}"
        return wait_patiently(read, self._engine._timeout_s, self._check, what)

    def _spent(self, what: str, began: float, ended: float) -> None:
        if self._engine._watch is not None:
            self._engine._watch(what, began, ended)

    def _check(self) -> None:
        if self._error is not None:
            raise WireError("given up, as another lane failed") from self._error
        self._engine.check()
        if self._unmade and self._engine._channel.stored(self._unmade):
            raise _Superseded

    def _reduce(self, op: Op) -> None:
        """Sum in the order of the terms. What is held may be the message itself: only read."""
        view = self._view(op.span)
        own_ahead = None in op.terms
        total: torch.Tensor | None = None
        for name in op.terms:
            term = view if name is None else self._held.pop(name)
            own_ahead = own_ahead and name is not None
            if total is None:
                total = term
            else:
                # Beside the buffer's span as long as its own content is still to be added.
                total = torch.add(
                    total, term, out=self._engine.scratch(view) if own_ahead else view
                )
        if total is not None and total is not view:
            view.copy_(total)

    def _view(self, span: Span) -> torch.Tensor:
        return self._buffer_P[span.start : span.stop]

    def _key(self, name: Name) -> Key:
        return _key(self._step, self._operation, name)


def wait_patiently(
    wait: Callable[[float], Result], timeout_s: float, check: Callable[[], None], what: str
) -> Result:
    """Wait for a message: `wait(some_s)` again and again, with `check`, which may raise, between.

    Raises WaitTimeout naming `what` waits after `timeout_s`.
    """
    until = time.monotonic() + timeout_s
    while True:
        left = max(0.0, until - time.monotonic())
        try:
            return wait(min(left, _LOOK_UP_S))
        except WaitTimeout as error:
            check()
            if left <= _LOOK_UP_S:
                raise WaitTimeout(
                    f"{what}: nothing came within {timeout_s:g} s; is that worker alive?"
                ) from error


def _key(step: int, operation: str, name: Name) -> Key:
    return Key(step, f"{operation}-{name.phase}", name.source, name.destination)


def _named(op: Op) -> Name:
    assert op.name is not None, f"{op} needs a message's name"
    return op.name
