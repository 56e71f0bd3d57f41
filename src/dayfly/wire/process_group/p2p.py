"""Messages from one member of a group to another, as in `dist.send` and `dist.recv`.

    send, recv           return at once; the caller is told in a thread of this module
    a stream             all messages of one (sender, reader, tag), numbered from 0 at both ends
    its sending threads  put the chunks of a message, and those of the next      (`Outgoing`)
    its reading thread   gets them in order, some before they are asked for      (`p2p_incoming`)

A message's number is its key's step, so order needs no other word: the n-th receive of a stream
gets what the n-th send had. A large message travels in several chunks (`BufferForm`); its reader
removes them. There is a thread for each stream in which something is to be waited for, so that none
waits for another, whatever the order in which receives are asked for; it ends when nothing is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dayfly.closing import Closing
from dayfly.errors import NoRoom, WaitTimeout, WireError
from dayfly.wire.channels.base import Messages
from dayfly.wire.keys import Key
from dayfly.wire.message import Header, as_bytes
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
from dayfly.wire.process_group.p2p_incoming import Ahead, IncomingMessages
from dayfly.wire.schedule import MOST_CHUNKS, check_rank

#: Seconds between two tries to store what there was no room for, growing.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


@dataclass(slots=True)
class _Message:
    number: int
    flat_P: torch.Tensor
    done: Done
    left: int
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _PlacedChunk:
    """A chunk of a message.

    Args:
        index: among all chunks of the stream, which are put in that order.
    """

    message: _Message
    part: Chunk
    key: Key
    index: int


class Outgoing:
    """The messages that `context.rank` sends to `to` with a tag.

    The reader takes messages in their order. So where a channel is full, a later chunk that a
    faster thread put could keep the room that an earlier one needs, for ever. Therefore the
    earliest chunk that is not stored removes what was stored of later messages, which are sent once
    more. A message is done when it is stored with all before it, so nobody has changed what is sent
    again.
    """

    def __init__(self, context: P2PContext, to: int, tag: int) -> None:
        self._context = context
        self._to = to
        self._tag = tag
        self._lock = threading.Lock()
        self._chunks: deque[_PlacedChunk] = deque()  # not sent yet
        self._next_message = 0
        self._next_index = 0
        self._senders = 0  # threads that send
        self._refused: set[int] = set()  # indices of chunks that wait for room
        self._front = 0  # the first chunk that is not finished
        self._finished: dict[int, _PlacedChunk] = {}  # chunks after it that are

    def send(self, flat_P: torch.Tensor, done: Done) -> None:
        """Send a message, after those before it."""
        parts = self._context.parts(BufferForm.of(flat_P))
        with self._lock:
            message = _Message(self._next_message, flat_P, done, len(parts))
            self._next_message += 1
            for c, part in enumerate(parts):
                key = p2p_key(message.number, self._tag, c, self._context.rank, self._to)
                self._chunks.append(_PlacedChunk(message, part, key, self._next_index))
                self._next_index += 1
            wanted = min(self._context.at_once, self._senders + len(parts))
            started, self._senders = wanted - self._senders, wanted
        for _ in range(started):
            self._context.spawn(self._carry)

    def _carry(self) -> None:
        while True:
            with self._lock:
                if not self._chunks:
                    self._senders -= 1
                    return
                chunk = self._chunks.popleft()
            message, error = chunk.message, None
            try:
                # The rest of a message of which something failed is of no use to its reader.
                if message.error is None:
                    self._context.check()
                    self._put(chunk)
            except BaseException as raised:
                error = self._named(message, raised)
            for whole in self._finish(chunk, error):
                tell(whole.done, whole.error)

    def _finish(self, chunk: _PlacedChunk, error: BaseException | None) -> list[_Message]:
        """Notes that a chunk is stored, or failed; returns the messages that are done by that."""
        done = []
        with self._lock:
            chunk.message.error = chunk.message.error or error
            self._finished[chunk.index] = chunk
            while (first := self._finished.pop(self._front, None)) is not None:
                self._front += 1
                first.message.left -= 1
                if not first.message.left:
                    done.append(first.message)
        return done

    def _put(self, chunk: _PlacedChunk) -> None:
        """Stores it, after all chunks before it that wait for room.

        The reader takes them in their order, and so would never make room for an earlier one.
        """
        tensor = shaped(chunk.message.flat_P, chunk.part)
        header = Header(chunk.key.operation, tensor.dtype, tuple(tensor.shape))
        until_s, pause_s = time.monotonic() + self._context.timeout_s, _FIRST_PAUSE_S
        why: NoRoom | None = None
        try:
            while True:
                if self._may_try(chunk.index):
                    try:
                        self._context.channel.put(chunk.key, header, as_bytes(tensor))
                        return
                    except NoRoom as error:
                        why = error
                        self._take_back(chunk)
                with self._lock:
                    self._refused.add(chunk.index)
                if not left_s(until_s):
                    raise WaitTimeout(
                        f"no room came within {self._context.timeout_s:g} s, as what was sent "
                        f"before is not read: {why or 'a message before it waits for room'}"
                    ) from why
                self._context.pause(min(pause_s, left_s(until_s)))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            with self._lock:
                self._refused.discard(chunk.index)

    def _take_back(self, chunk: _PlacedChunk) -> None:
        """Remove what was stored of later messages, to be sent again, if this chunk is the first.

        Nobody has read of them: that would have taken the message of this chunk.
        """
        with self._lock:
            if chunk.index != self._front:
                return
            number = chunk.message.number
            finished = [self._finished[index] for index in sorted(self._finished)]
            later = [one for one in finished if one.message.number > number]
            for one in later:
                del self._finished[one.index]
        try:
            self._context.channel.drop([one.key for one in later])
        finally:
            with self._lock:
                self._chunks.extendleft(reversed(later))

    def _may_try(self, index: int) -> bool:
        with self._lock:
            return min(self._refused, default=index) >= index

    def _named(self, message: _Message, error: BaseException) -> BaseException:
        what = f"rank {self._context.rank}, sending message {message.number} of tag {self._tag} to "
        return named(f"{what}rank {self._to}, {BufferForm.of(message.flat_P)}", error)


#: As `Done`, with the sender; -1 if the error says all that is known.
DoneFrom = Callable[[BaseException | None, int], None]

#: Streams that wait for messages that nobody asked for yet. A store that is asked again and again
#: bills that, and asks less often for what else their senders have to say (see `channels.turns`).
_AHEAD, _AHEAD_ASKING = 8, 2
#: Seconds between two looks for messages from anyone, growing; a look may be billed.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.001, 0.05
_LONGEST_ASKED_S = 1.0


@dataclass(frozen=True, slots=True)
class _FromAnyone:
    into_P: torch.Tensor
    done: DoneFrom
    until_s: float


class PointToPoint(Closing):
    """The messages of one member, over the group's channel, which stays open.

    All methods may be called from several threads; `done` is called once for each message, from
    another thread, and must neither raise nor wait long nor close this. Tensors are flat,
    contiguous and on the CPU, and left alone until then.

    Args:
        channel: of the group.
        rank: of the member.
        world_size: members of the group.
        timeout_s: longest wait for a message, or for room for one.
        check: called meanwhile; may raise to end it.

    Each method raises ValueError for a wrong peer, tag or tensor, and WireError once it is closed.
    """

    def __init__(
        self,
        channel: Messages,
        rank: int,
        world_size: int,
        *,
        timeout_s: float,
        check: Callable[[], None],
    ) -> None:
        check_rank(rank, world_size)
        self._rank = rank
        self._world_size = world_size
        self._context = P2PContext(channel, rank, timeout_s=timeout_s, check=check)
        self._ahead = Ahead(_AHEAD if channel.abilities.blocks else _AHEAD_ASKING)
        self._lock = threading.Lock()
        self._closed = False
        self._outgoing: dict[tuple[int, int], Outgoing] = {}
        self._incoming: dict[tuple[int, int], IncomingMessages] = {}
        self._from_anyone: dict[int, deque[_FromAnyone]] = {}  # by tag, while somebody waits
        self._last_source = rank

    def set_timeout(self, timeout_s: float) -> None:
        """Wait so long in what begins from now on."""
        self._context.timeout_s = timeout_s

    def send(self, flat_P: torch.Tensor, to: int, tag: int, done: Done) -> None:
        """Send a flat tensor (P,). It is done when it is stored, whether it is read or not."""
        self._check_request(flat_P, to, tag)
        with self._lock:
            self._check_open()
            stream = self._outgoing.get((to, tag))
            if stream is None:
                stream = self._outgoing[to, tag] = Outgoing(self._context, to, tag)
            stream.send(flat_P, self._context.once(done))

    def recv(self, flat_P: torch.Tensor, source: int, tag: int, done: Done) -> None:
        """Receive into a flat tensor (P,) the next message of this sender and tag."""
        self._check_request(flat_P, source, tag)
        with self._lock:
            self._check_open()
            self._stream_from(source, tag).receive(flat_P, self._context.once(done))

    def recv_any(self, flat_P: torch.Tensor, tag: int, done: DoneFrom) -> None:
        """Receive the next message with this tag from whoever it comes."""
        self._check_request(flat_P, None, tag)
        asked = _FromAnyone(
            flat_P, self._context.once(done, -1), time.monotonic() + self._context.timeout_s
        )
        with self._lock:
            self._check_open()
            if (waiting := self._from_anyone.get(tag)) is not None:
                waiting.append(asked)
                return
            self._from_anyone[tag] = deque([asked])
            self._context.spawn(lambda: self._receive_from_anyone(tag))

    def close(self) -> None:
        """End what is not done yet, with WireError, and all threads."""
        with self._lock:
            self._closed = True
        self._context.close()

    def _receive_from_anyone(self, tag: int) -> None:
        """All that wait for this tag, in their order."""
        while True:
            with self._lock:
                if not self._from_anyone[tag]:
                    del self._from_anyone[tag]
                    return
                asked = self._from_anyone[tag].popleft()
            try:
                self._find_sender(asked, tag)
            except BaseException as error:
                what = f"rank {self._rank}, receiving with tag {tag} from anyone"
                tell(asked.done, named(f"{what}, {BufferForm.of(asked.into_P)}", error), -1)

    def _find_sender(self, asked: _FromAnyone, tag: int) -> None:
        pause_s = _FIRST_LOOK_S
        blocks = self._context.channel.abilities.blocks
        while not self._take_from_anyone(asked, tag):
            if not left_s(asked.until_s):
                raise WaitTimeout(f"nothing came within {self._context.timeout_s:g} s")
            self._context.pause(min(pause_s, left_s(asked.until_s)))
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S if blocks else _LONGEST_ASKED_S)

    def _take_from_anyone(self, asked: _FromAnyone, tag: int) -> bool:
        """Receive from a member of whom there is a message, if there is one: each in its turn."""
        self._context.check()
        with self._lock:
            n, last = self._world_size, self._last_source
            turns = [(last + distance) % n for distance in range(1, n + 1)]
            streams = {one: self._stream_from(one, tag) for one in turns if one != self._rank}
        numbers = {source: stream.next_number for source, stream in streams.items()}
        here = [source for source, stream in streams.items() if stream.has_next]
        if not here:
            keys = {
                p2p_key(number, tag, 0, source, self._rank): source
                for source, number in numbers.items()
            }
            there = self._context.channel.stored(keys)
            here = [source for key, source in keys.items() if key in there]
        for source in here:
            # Somebody may ask for this sender's message meanwhile, and has it then.
            if streams[source].receive(
                asked.into_P,
                lambda error, source=source: asked.done(error, source),  # type: ignore[misc]
                number=numbers[source],
            ):
                self._last_source = source
                return True
        return False

    def _stream_from(self, source: int, tag: int) -> IncomingMessages:
        stream = self._incoming.get((source, tag))
        if stream is None:
            stream = self._incoming[source, tag] = IncomingMessages(
                self._context, source, tag, self._ahead
            )
        return stream

    def _check_request(self, flat_P: torch.Tensor, peer: int | None, tag: int) -> None:
        if peer is not None:
            check_rank(peer, self._world_size)
            if peer == self._rank:
                raise ValueError(f"rank {self._rank} to itself")
        if tag < 0:
            raise ValueError(f"tag {tag}: give 0 or more")
        p2p_key(0, tag, MOST_CHUNKS - 1, 0, 1)  # raises ValueError for one that is too long
        if flat_P.dim() != 1 or not flat_P.is_contiguous() or not flat_P.is_cpu:
            raise ValueError(
                f"a message of {list(flat_P.shape)}, strides {list(flat_P.stride())}, on "
                f"{flat_P.device}: give a flat, contiguous tensor on the CPU"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise WireError(f"the messages of rank {self._rank} are closed")
        self._context.check()
