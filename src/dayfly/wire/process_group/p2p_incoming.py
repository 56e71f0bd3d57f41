"""Messages from one sender, of one tag: read in order, some before they are asked for.

    asked for      |0          |1        |2        |3           recv
    downloaded     |0    |1    |2    |         |3   |4          by one thread, 2 ahead at most

A schedule that asks for a message just before it needs it (as torch's GPipe does) finds it in
memory: its download went on beside the computing. The next message is expected to have the form of
the last. If it has another, its first chunk tells so and stays unread until somebody asks for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.execution import LOOK_UP_S
from dayfly.wire.keys import Key
from dayfly.wire.process_group.p2p_context import (
    BufferForm,
    Chunk,
    Done,
    P2PContext,
    left_s,
    named,
    p2p_key,
    shaped,
    tell,
)

#: Messages of a stream that are read before anybody asks, at most; each takes memory.
MOST_AHEAD = 2
#: How long the next one is waited for before anybody asks: where a store is asked again and again,
#: each time may cost.
AHEAD_S = 60.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """Where somebody wants a message, whom to tell, and until when it may be waited for."""

    into_P: torch.Tensor
    done: Done
    until_s: float


@dataclass(slots=True)
class _Message:
    """A message that is read.

    Attributes:
        asked: who wants it; None: nobody yet.
        own_P: memory into which it is read until somebody asks.
        begun: whether its first chunk came.
        over: whether all of it is there, or an `error`.
    """

    number: int
    asked: _Asked | None = None
    own_P: torch.Tensor | None = None
    begun: bool = False
    over: bool = False
    error: BaseException | None = None


class _NotAhead(Exception):
    """The message is not there, or is another; nobody has asked for it yet, so it can wait."""


class Ahead:
    """Which streams may wait for what nobody asked for: `most`, those that were used last.

    So tags of which each is used once leave no threads waiting.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._streams: dict[IncomingMessages, None] = {}

    def enter(self, stream: IncomingMessages) -> bool:
        """Whether it may now; if not, the one that was used longest ago makes place for another."""
        with self._lock:
            if self._streams.pop(stream, self) is self and len(self._streams) >= self._most:
                next(iter(self._streams)).rest()
                return False
            self._streams[stream] = None
            return True

    def leave(self, stream: IncomingMessages) -> None:
        """It waits no more."""
        with self._lock:
            self._streams.pop(stream, None)


class IncomingMessages:
    """The messages that `context.rank` gets from `source` with a tag.

    Args:
        ahead: of all its streams.
    """

    def __init__(self, context: P2PContext, source: int, tag: int, ahead: Ahead) -> None:
        self._context = context
        self._source = source
        self._tag = tag
        self._those_ahead = ahead
        self._lock = threading.Lock()
        self._asked: deque[_Message] = deque()  # asked for, and not begun
        self._ahead: deque[_Message] = deque()  # begun, or over, and not asked for
        self._next = 0
        self._reading = False
        self._rests = False
        self._usual: BufferForm | None = None
        self._ahead_until_s = 0.0

    @property
    def next_number(self) -> int:
        """Of the next message that is asked for."""
        return self._next

    @property
    def has_next(self) -> bool:
        """Whether that one has come already, as far as is known."""
        with self._lock:
            return bool(self._ahead) and self._ahead[0].begun

    def receive(self, into_P: torch.Tensor, done: Done, *, number: int | None = None) -> bool:
        """Ask for the next message; False if that is not the one with this number."""
        asked = _Asked(into_P, done, time.monotonic() + self._context.timeout_s)
        with self._lock:
            if number is not None and number != self._next:
                return False
            if self._ahead:
                message = self._ahead.popleft()
                message.asked = asked
                if message.over:
                    self._context.spawn(lambda: self._hand_over(message, asked))
            else:
                self._asked.append(_Message(self._next, asked))
            self._next += 1
            if not self._reading:
                self._reading = True
                self._rests = False
                self._context.spawn(self._read)
        return True

    def rest(self) -> None:
        """Wait no longer for what nobody asked for, until somebody has asked for another."""
        self._rests = True

    def _read(self) -> None:
        while (message := self._take()) is not None:
            try:
                self._fetch(message)
            except _NotAhead:
                continue
            except BaseException as error:
                message.error = error
            with self._lock:
                message.over = True
                asked = message.asked
            if asked is not None:
                self._hand_over(message, asked)

    def _take(self) -> _Message | None:
        """The next message to be read; None if there is none, and nobody reads from now on."""
        with self._lock:
            if self._asked:
                return self._asked.popleft()
            if self._usual is None or not self._may_read_ahead():
                self._reading = False
                self._those_ahead.leave(self)
                return None
            own_P = self._context.buffers.take(self._usual.dtype, self._usual.length)
            message = _Message(self._next + len(self._ahead), own_P=own_P)
            self._ahead.append(message)
            return message

    def _may_read_ahead(self) -> bool:
        return (
            self._context.reads_ahead
            and len(self._ahead) < MOST_AHEAD
            and not any(message.error for message in self._ahead)
            and self._may_wait_ahead()
            and self._those_ahead.enter(self)
        )

    def _may_wait_ahead(self) -> bool:
        return not self._rests and left_s(self._ahead_until_s) > 0

    def _fetch(self, message: _Message) -> None:
        """Read all of a message. Raises _NotAhead, having forgotten it."""
        into_P = self._fetch_first(message)
        form = BufferForm.of(into_P)
        parts = self._context.parts(form)
        if parts[1:]:
            self._context.side_by_side(
                lambda c: self._fetch_other(message, into_P, c, parts[c]), range(1, len(parts))
            )
        self._context.drop([self._key(message, c) for c in range(len(parts))])
        with self._lock:
            self._usual = form
            self._ahead_until_s = time.monotonic() + AHEAD_S

    def _fetch_first(self, message: _Message) -> torch.Tensor:
        """Wait for the first chunk of a message; returns where it is read to.

        That is right to its place, if somebody has asked for it by now.
        """
        while True:
            asked = message.asked
            into_P = message.own_P if asked is None else asked.into_P
            assert into_P is not None
            try:
                self._context.check()
                there = self._try(message, into_P, 0, self._context.parts(BufferForm.of(into_P))[0])
            except WireError:
                if asked is not None:
                    raise
                # It has another form, most likely; whoever asks for it says which, or hears why.
                self._forget(message, with_form=True)
                continue
            if there:
                message.begun = True
                if asked is not None and message.own_P is not None:
                    self._context.buffers.give(message.own_P)
                    message.own_P = None
                return into_P
            if message.asked is None and not self._may_wait_ahead():
                self._forget(message)
            if asked is not None and not left_s(asked.until_s):
                raise self._late()

    def _fetch_other(self, message: _Message, into_P: torch.Tensor, c: int, part: Chunk) -> None:
        """Wait for another chunk of a message whose first one came: it is on its way."""
        until_s = time.monotonic() + self._context.timeout_s
        while not self._try(message, into_P, c, part):
            self._context.check()
            if message.asked is not None and not left_s(max(until_s, message.asked.until_s)):
                raise self._late()

    def _try(self, message: _Message, into_P: torch.Tensor, c: int, part: Chunk) -> bool:
        """Whether a message came, within a moment."""
        some_s = LOOK_UP_S
        if message.asked is not None:
            some_s = min(some_s, left_s(message.asked.until_s))
        try:
            self._context.channel.get(self._key(message, c), shaped(into_P, part), some_s)
        except WaitTimeout:
            return False
        return True

    def _forget(self, message: _Message, *, with_form: bool = False) -> None:
        """Leave it unread, and raise _NotAhead, unless somebody has asked for it meanwhile."""
        with self._lock:
            if with_form:
                self._usual = None
            if message.asked is not None:
                return
            self._ahead.remove(message)
        if message.own_P is not None:
            self._context.buffers.give(message.own_P)
        raise _NotAhead

    def _hand_over(self, message: _Message, asked: _Asked) -> None:
        """All of it is there, or an error: whoever asked for it is told."""
        error, wanted = message.error, BufferForm.of(asked.into_P)
        if message.own_P is not None:
            found = BufferForm.of(message.own_P)
            if error is None and found != wanted:
                error = WireError(f"expected {wanted}, found {found}")
            if error is None:
                error = _copied(message.own_P, asked.into_P)
            self._context.buffers.give(message.own_P)
        if error is not None:
            what = (
                f"rank {self._context.rank}, receiving message {message.number} of tag {self._tag} "
            )
            error = named(f"{what}from rank {self._source}, {wanted}", error)
        tell(asked.done, error)

    def _late(self) -> WaitTimeout:
        return WaitTimeout(
            f"nothing came within {self._context.timeout_s:g} s; is that worker alive?"
        )

    def _key(self, message: _Message, c: int) -> Key:
        return p2p_key(message.number, self._tag, c, self._source, self._context.rank)


def _copied(own_P: torch.Tensor, into_P: torch.Tensor) -> BaseException | None:
    """The error, if torch refuses: whoever waits for the message is to hear of it."""
    try:
        into_P.copy_(own_P)
    except RuntimeError as error:
        return error
    return None
