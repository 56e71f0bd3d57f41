"""Letters: messages from one member of a group to another, as in `dist.send` and `dist.recv`.

    send, recv           return at once; whoever asked is told in a thread of the letters
    a stream             all letters of one (sender, reader, tag), numbered from 0 at both ends
    its sending threads  put the messages of a letter, and those of the next      (`outgoing`)
    its reading thread   gets them in order, some before they are asked for       (`incoming`)

A letter's number is its key's step, so order needs no other word: the n-th receive of a stream gets
what the n-th send had. A large one travels in several messages (`forms`); its reader removes them.
There is a thread for each stream in which something is to be waited for, so that none waits for
another, whatever the order in which receives are asked for; it ends when nothing is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dayfly.closing import Closing
from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Messages
from dayfly.wire.process_group.forms import Form
from dayfly.wire.process_group.incoming import Ahead, Incoming
from dayfly.wire.process_group.outgoing import Outgoing
from dayfly.wire.process_group.post import Done, Post, left_s, letter_key, named, tell
from dayfly.wire.schedule import MOST_CHUNKS, check_rank

#: As `Done`, with the sender; -1 if the error says all that is known.
DoneFrom = Callable[[BaseException | None, int], None]

#: Streams that wait for letters that nobody asked for yet. A store that is asked again and again
#: bills that, and asks less often for what else their senders have to say (see `channels.turns`).
_AHEAD, _AHEAD_ASKING = 8, 2
#: Seconds between two looks for letters from anyone, growing; a look may be billed.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.001, 0.05
_LONGEST_ASKED_S = 1.0


@dataclass(frozen=True, slots=True)
class _FromAnyone:
    into_P: torch.Tensor
    done: DoneFrom
    until_s: float


class Letters(Closing):
    """The letters of one member, over the group's channel, which stays open.

    timeout_s: how long a letter, or room for one, is waited for. check: called meanwhile; may raise
    to end it. All methods may be called from several threads; `done` is called once for each
    letter, from a thread of the letters, and must neither raise nor wait long nor close them.
    Tensors are flat, contiguous and on the CPU, and left alone until then.

    Each raises ValueError for a wrong peer, tag or tensor, and WireError once they are closed.
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
        self._post = Post(channel, rank, timeout_s=timeout_s, check=check)
        self._ahead = Ahead(_AHEAD if channel.abilities.blocks else _AHEAD_ASKING)
        self._lock = threading.Lock()
        self._closed = False
        self._outgoing: dict[tuple[int, int], Outgoing] = {}
        self._incoming: dict[tuple[int, int], Incoming] = {}
        self._from_anyone: dict[int, deque[_FromAnyone]] = {}  # by tag, while somebody waits
        self._last_source = rank

    def send(self, flat_P: torch.Tensor, to: int, tag: int, done: Done) -> None:
        """Send a flat tensor (P,). It is done when it is stored, whether it is read or not."""
        self._check_request(flat_P, to, tag)
        with self._lock:
            self._check_open()
            stream = self._outgoing.get((to, tag))
            if stream is None:
                stream = self._outgoing[to, tag] = Outgoing(self._post, to, tag)
            stream.send(flat_P, self._post.once(done))

    def recv(self, flat_P: torch.Tensor, source: int, tag: int, done: Done) -> None:
        """Receive into a flat tensor (P,) the next letter of this sender and tag."""
        self._check_request(flat_P, source, tag)
        with self._lock:
            self._check_open()
            self._stream_from(source, tag).receive(flat_P, self._post.once(done))

    def recv_any(self, flat_P: torch.Tensor, tag: int, done: DoneFrom) -> None:
        """Receive the next letter with this tag from whoever it comes."""
        self._check_request(flat_P, None, tag)
        asked = _FromAnyone(
            flat_P, self._post.once(done, -1), time.monotonic() + self._post.timeout_s
        )
        with self._lock:
            self._check_open()
            if (waiting := self._from_anyone.get(tag)) is not None:
                waiting.append(asked)
                return
            self._from_anyone[tag] = deque([asked])
            self._post.spawn(lambda: self._receive_from_anyone(tag))

    def close(self) -> None:
        """End what is not done yet, with WireError, and all threads."""
        with self._lock:
            self._closed = True
        self._post.close()

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
                tell(asked.done, named(f"{what}, {Form.of(asked.into_P)}", error), -1)

    def _find_sender(self, asked: _FromAnyone, tag: int) -> None:
        pause_s = _FIRST_LOOK_S
        blocks = self._post.channel.abilities.blocks
        while not self._take_from_anyone(asked, tag):
            if not left_s(asked.until_s):
                raise WaitTimeout(f"nothing came within {self._post.timeout_s:g} s")
            self._post.pause(min(pause_s, left_s(asked.until_s)))
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S if blocks else _LONGEST_ASKED_S)

    def _take_from_anyone(self, asked: _FromAnyone, tag: int) -> bool:
        """Receive from a member of whom there is a letter, if there is one: each in its turn."""
        self._post.check()
        with self._lock:
            n, last = self._world_size, self._last_source
            turns = [(last + distance) % n for distance in range(1, n + 1)]
            streams = {one: self._stream_from(one, tag) for one in turns if one != self._rank}
        numbers = {source: stream.next_number for source, stream in streams.items()}
        here = [source for source, stream in streams.items() if stream.has_next]
        if not here:
            keys = {
                letter_key(number, tag, 0, source, self._rank): source
                for source, number in numbers.items()
            }
            there = self._post.channel.stored(keys)
            here = [source for key, source in keys.items() if key in there]
        for source in here:
            # Somebody may ask for this sender's letter meanwhile, and has it then.
            if streams[source].receive(
                asked.into_P,
                lambda error, source=source: asked.done(error, source),  # type: ignore[misc]
                number=numbers[source],
            ):
                self._last_source = source
                return True
        return False

    def _stream_from(self, source: int, tag: int) -> Incoming:
        stream = self._incoming.get((source, tag))
        if stream is None:
            stream = self._incoming[source, tag] = Incoming(self._post, source, tag, self._ahead)
        return stream

    def _check_request(self, flat_P: torch.Tensor, peer: int | None, tag: int) -> None:
        if peer is not None:
            check_rank(peer, self._world_size)
            if peer == self._rank:
                raise ValueError(f"rank {self._rank} to itself")
        if tag < 0:
            raise ValueError(f"tag {tag}: give 0 or more")
        letter_key(0, tag, MOST_CHUNKS - 1, 0, 1)  # raises ValueError for one that is too long
        if flat_P.dim() != 1 or not flat_P.is_contiguous() or not flat_P.is_cpu:
            raise ValueError(
                f"a letter of {list(flat_P.shape)}, strides {list(flat_P.stride())}, on "
                f"{flat_P.device}: give a flat, contiguous tensor on the CPU"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise WireError(f"the letters of rank {self._rank} are closed")
        self._post.check()
