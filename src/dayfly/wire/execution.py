"""One schedule being run on real bytes.

    uplink     put   put  put ...
    downlink   fetch get  get ...     each beside the others; see `lanes`
    compute    reduce  drop  ...

Over a channel in memory, where a transfer is nothing but work of this processor, the caller's
thread does it all in the order of the list: threads would only take turns.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.buffers import Buffer, BufferPool
from dayfly.wire.channels.base import Messages
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.lanes import Lanes
from dayfly.wire.message import Header, as_bytes
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import (
    CompiledSchedule,
    Kind,
    Lane,
    Name,
    Op,
    Span,
    Work,
    width,
)
from dayfly.wire.summation import ADD, Fold, Summation
from dayfly.wire.tree_summation import TreeSummation

#: Longest wait between two looks whether waiting is still of use, in seconds.
LOOK_UP_S = 0.2
#: The same of a carrier at a store that is asked; `Channel.wake` ends its wait when it is in vain.
_ASKED_LOOK_UP_S = 5.0
Result = TypeVar("Result")
#: Told of what was done: "upload", "download" or "wait" (for a message that was not there yet),
#: from when to when, by `time.monotonic()`.
Watch = Callable[[str, float, float], None]


class Superseded(Exception):
    """An earlier attempt of this rank, taken for dead, stored a sum that this one works on.

    It dropped the contributions, too, so there is nothing left to wait for. What was downloaded
    into the buffer by then is sums that are stored, what was summed up is stored before this is
    raised, and the rest is this rank's own contribution: the buffer is fit for another try.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a rank runs its schedules with; see `Engine`.

    Args:
        check: raises if waiting is of no use.
    """

    channel: Messages
    rank: int
    timeout_s: float
    check: Callable[[], None]
    buffers: BufferPool
    observe: Callable[[Op], None] | None
    watch: Watch | None
    carriers: Mapping[Lane, Executor]


class Execution:
    """Runs a schedule once.

    Args:
        unmade: this rank's sums that are for this attempt to make.
        packing: how the buffer travels; None: as it is.
        compute: does the work of COMPUTE operations, in the caller's thread.
    """

    def __init__(
        self,
        setting: Setting,
        plan: CompiledSchedule,
        buffer_P: Buffer,
        step: int,
        operation: str,
        *,
        unmade: Iterable[Name] = (),
        catching_up: bool = False,
        packing: Packing | None = None,
        fold: Fold = ADD,
        compute: Callable[[Work], None] | None = None,
    ) -> None:
        self._setting = setting
        self._channel = setting.channel
        self._buffers = setting.buffers
        self._plan = plan
        self._ops = plan.schedule.ops
        self._buffer_P = buffer_P
        self._step = step
        self._operation = operation
        self._unmade = {self._key(name) for name in unmade}
        self._catching_up = catching_up
        self._packing = packing
        self._fold = fold
        self._work = compute
        self._sums: dict[int, Sequence[Summation | TreeSummation]] = {}
        self._done = [False] * len(self._ops)
        self._began = self._look_at = time.monotonic()
        self._lock = threading.Lock()
        self._lanes: Lanes | None = None
        if setting.carriers:
            self._lanes = Lanes(
                plan,
                {lane: self._width(lane) for lane in plan.lanes},
                setting.carriers,
                perform=self._perform,
                look=self._look,
                look_s=LOOK_UP_S,
                wake=self._channel.wake,
            )

    def run(self) -> None:
        """To the end. Raises WireError, Superseded, and whatever `check` or `observe` raise."""
        try:
            if self._lanes is not None:
                self._lanes.run()
            else:
                for at in range(len(self._ops)):
                    self._perform(at)
        except Superseded:
            self._store_own_sums()
            raise
        finally:
            self._lanes = None  # it refers back to this, and the buffer would be held by both

    def _width(self, lane: Lane) -> int:
        """Operations of a lane under way at once: fewer if they are so large that few fill it."""
        if lane not in self._setting.carriers:
            return 1
        sizes = (len(self._ops[at].span) for at in self._plan.lanes[lane])
        largest = self._buffer_P.itemsize * max(sizes, default=0)
        abilities = self._channel.abilities
        return width(abilities.in_flight, abilities.chunk_bytes, largest)

    def _perform(self, at: int) -> None:
        op = self._ops[at]
        match op.kind:
            case Kind.PUT:
                self._put(op)
            case Kind.GET:
                self._get(_named(op), op.span)
            case Kind.FETCH:
                self._hold(_named(op), op.span)
            case Kind.REDUCE:
                for one in self._sum(at):
                    one.finish()
                with self._lock:
                    self._sums.pop(at)
            case Kind.DROP:
                self._channel.drop([self._key(name) for name in op.terms if name is not None])
            case Kind.COMPUTE:
                assert self._work is not None, f"{op}: nobody does its work"
                assert op.work is not None, f"{op}: needs its work"
                self._work(op.work)
        if self._setting.observe is not None:
            self._setting.observe(op)
        self._done[at] = True

    def _put(self, op: Op) -> None:
        name, parts = _named(op), self._parts(op.span)
        key, total = self._key(name), name.destination == EVERYONE
        travelling = parts[0]
        if self._packing is not None:
            travelling = self._packing.pack(parts, op.span, total=total)
        header = Header(key.operation, travelling.dtype, tuple(travelling.shape))
        self._unmade.discard(key)
        began = time.monotonic()
        won = self._channel.put(key, header, as_bytes(travelling))
        self._spent("upload", began, time.monotonic())
        if not won and total:
            # The first put wins: an earlier attempt's sum is what the peers read, so use it too.
            self._get(name, op.span)
        elif self._packing is not None and total:
            self._packing.unpack(travelling, parts)  # what the peers read
        elif won and op.feeds is not None and self._catching_up:
            # An earlier attempt's contribution may have been summed and dropped meanwhile.
            late = self._channel.stored([self._key(op.feeds)])
            self._channel.drop([key] if late else [])

    def _get(self, name: Name, span: Span) -> None:
        parts = self._parts(span)
        if self._packing is not None:
            self._unpack(self._packing, name, parts)
        else:
            self._read(self._key(name), parts[0])

    def _hold(self, name: Name, span: Span) -> None:
        dtype = self._buffer_P.dtype
        if self._packing is not None:
            held = [self._buffers.take(dtype, len(part)) for part in self._parts(span)]
            self._unpack(self._packing, name, held)
        else:
            held = [self._held(name, (dtype, (len(span),)))]
        for one, term in zip(self._sum(self._plan.sums[name]), held, strict=True):
            one.add(name, term)

    def _unpack(self, packing: Packing, name: Name, into: Sequence[torch.Tensor]) -> None:
        form = packing.form(into)
        travelled = self._plain(name) if form is None else self._held(name, form)
        try:
            packing.unpack(travelled, into)
        except WireError as error:
            raise WireError(f"the {self._key(name)}: {error}") from error
        if form is not None:
            self._give_back(travelled)

    def _plain(self, name: Name) -> torch.Tensor:
        """A message (N,) uint8 whose size is not known, in memory of its own."""
        key = self._key(name)
        began = time.monotonic()
        raw = self._wait(key, lambda some_s: self._channel.get_bytes(key, some_s))
        self._spent("wait", began, time.monotonic())
        return torch.from_numpy(np.frombuffer(bytearray(raw), np.uint8))

    def _held(self, name: Name, form: tuple[torch.dtype, tuple[int, ...]]) -> torch.Tensor:
        """A message beside the buffer: lent by the channel, or in memory of our own."""
        key = self._key(name)
        if not self._channel.zero_copy:
            dtype, shape = form
            held = self._buffers.take(dtype, math.prod(shape)).view(shape)
            self._read(key, held)
            return held
        header = Header(key.operation, *form)
        began = time.monotonic()
        held, there = self._wait(key, lambda some_s: self._channel.fetch(key, header, some_s))
        self._spent("wait", began, there)
        self._spent("download", there, time.monotonic())
        return held

    def _give_back(self, held: torch.Tensor) -> None:
        if not self._channel.zero_copy:
            self._buffers.give(held.view(-1))

    def _read(self, key: Key, into: torch.Tensor) -> None:
        began = time.monotonic()
        there = self._wait(key, lambda some_s: self._channel.get(key, into, some_s))
        self._spent("wait", began, there)
        self._spent("download", there, time.monotonic())

    def _sum(self, at: int) -> Sequence[Summation | TreeSummation]:
        """The sums of a REDUCE: of its elements, and of the tail that they have."""
        with self._lock:
            if at not in self._sums:
                self._sums[at] = self._begin_sum(self._ops[at])
            return self._sums[at]

    def _begin_sum(self, op: Op) -> Sequence[Summation | TreeSummation]:
        into, buffers, fold = self._parts(op.span), self._buffers, self._fold
        ours = self._packing is not None or not self._channel.zero_copy
        if not op.nodes:
            return [Summation(op.terms, part, buffers, ours=ours, fold=fold) for part in into]
        (into_P,) = into
        own_P = [into_P if span == op.span else self._view(span) for span in op.own]
        return [TreeSummation(op.terms, op.nodes, own_P, into_P, buffers, ours=ours, fold=fold)]

    def _wait(self, key: Key, read: Callable[[float], Result]) -> Result:
        what = f"rank {self._setting.rank} for the {key}"
        check, look_s = self._look, LOOK_UP_S
        if self._lanes is not None:
            check = self._check_others
            look_s = LOOK_UP_S if self._channel.abilities.blocks else _ASKED_LOOK_UP_S
        return wait_patiently(read, self._setting.timeout_s, check, what, look_s, key.source)

    def _look(self) -> None:
        self._check_others()
        self._setting.check()
        # Rarely so, and a request to the store each time: less and less often.
        now = time.monotonic()
        if self._unmade and now > self._look_at:
            self._look_at = now + 2 * (now - self._began)
            if self._channel.stored(set(self._unmade)):
                raise Superseded

    def _check_others(self) -> None:
        if self._lanes is not None and self._lanes.error is not None:
            raise WireError("given up, as another lane failed") from self._lanes.error

    def _store_own_sums(self) -> None:
        """Stores finished sums, as the buffer no longer holds the contributions."""
        for at, op in enumerate(self._ops):
            reduced = any(
                self._ops[earlier].kind is Kind.REDUCE and self._done[earlier]
                for earlier in op.after
            )
            if op.kind is Kind.PUT and reduced and not self._done[at]:
                self._put(op)

    def _spent(self, what: str, began: float, ended: float) -> None:
        if self._setting.watch is not None:
            self._setting.watch(what, began, ended)

    def _parts(self, span: Span) -> tuple[torch.Tensor, ...]:
        """Returns what the message of a span carries: its elements, then its part of the tail."""
        if self._packing is not None:
            return self._packing.parts(self._buffer_P, span)
        return (self._view(span),)

    def _view(self, span: Span) -> torch.Tensor:
        return self._buffer_P[span.start : span.stop]

    def _key(self, name: Name) -> Key:
        return message_key(self._step, self._operation, name)


def wait_patiently(
    read: Callable[[float], Result],
    timeout_s: float,
    check: Callable[[], None],
    what: str,
    look_up_s: float = LOOK_UP_S,
    source: int | None = None,
) -> Result:
    """Wait for a message: `read(some_s)` again and again, with `check`, which may raise, between.

    Raises WaitTimeout naming `what` waits, and the message's source, after `timeout_s`.
    """
    until = time.monotonic() + timeout_s
    while True:
        left = max(0.0, until - time.monotonic())
        try:
            return read(min(left, look_up_s))
        except WaitTimeout as error:
            check()
            if left <= look_up_s:
                late = WaitTimeout(
                    f"{what}: nothing came within {timeout_s:g} s; is that worker alive?"
                )
                late.source = source
                raise late from error


def message_key(step: int, operation: str, name: Name) -> Key:
    """The key of a collective's message."""
    return Key(step, f"{operation}-{name.phase}", name.source, name.destination)


def stored_names(
    channel: Messages, step: int, operation: str, names: Sequence[Name]
) -> frozenset[Name]:
    """Those of a collective's messages that are in the channel."""
    keys = {message_key(step, operation, name): name for name in names}
    return frozenset(keys[key] for key in channel.stored(keys)) if keys else frozenset()


def _named(op: Op) -> Name:
    assert op.name is not None, f"{op} needs a message's name"
    return op.name
