"""Letters to one reader, of one tag: numbered as they are sent, several under way at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import torch

from dayfly.errors import NoRoom, WaitTimeout
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from dayfly.wire.process_group.forms import Form, Part
from dayfly.wire.process_group.post import Done, Post, left_s, letter_key, named, shaped, tell
from dayfly.wire.tensors import as_bytes

#: Seconds between two tries to store what there was no room for, growing.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


@dataclass(slots=True)
class _Letter:
    number: int
    flat_P: torch.Tensor
    done: Done
    left: int
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """A message of a letter. place: of all messages of the stream, which are put in that order."""

    letter: _Letter
    part: Part
    key: Key
    place: int


class Outgoing:
    """The letters that `post.rank` sends to `to` with a tag.

    The reader takes letters in their order. So where a channel is full, one that came first through
    a faster thread could take the room that an earlier one needs, for ever: the earliest message
    that is not stored takes back what was stored of later letters, which are sent once more. A
    letter is done when it is stored with all before it, so nobody has changed what is sent again.
    """

    def __init__(self, post: Post, to: int, tag: int) -> None:
        self._post = post
        self._to = to
        self._tag = tag
        self._changed = threading.Condition()
        self._pieces: deque[_Piece] = deque()
        self._numbers = 0
        self._places = 0
        self._carriers = 0
        self._refused: set[int] = set()  # places of those that wait for room
        self._front = 0  # the first place that is not over
        self._over: dict[int, _Piece] = {}  # those that are, behind it

    def send(self, flat_P: torch.Tensor, done: Done) -> None:
        """Send a letter, after those before it."""
        parts = self._post.parts(Form.of(flat_P))
        with self._changed:
            letter = _Letter(self._numbers, flat_P, done, len(parts))
            self._numbers += 1
            for c, part in enumerate(parts):
                key = letter_key(letter.number, self._tag, c, self._post.rank, self._to)
                self._pieces.append(_Piece(letter, part, key, self._places))
                self._places += 1
            wanted = min(self._post.at_once, self._carriers + len(parts))
            started, self._carriers = wanted - self._carriers, wanted
        for _ in range(started):
            self._post.spawn(self._carry)

    def _carry(self) -> None:
        while True:
            with self._changed:
                if not self._pieces:
                    self._carriers -= 1
                    return
                piece = self._pieces.popleft()
            letter, error = piece.letter, None
            try:
                # The rest of a letter of which something failed is of no use to its reader.
                if letter.error is None:
                    self._post.check()
                    self._put(piece)
            except BaseException as raised:
                error = self._named(letter, raised)
            for whole in self._finish(piece, error):
                tell(whole.done, whole.error)

    def _finish(self, piece: _Piece, error: BaseException | None) -> list[_Letter]:
        """A message is stored, or failed; returns the letters that are done by that."""
        done = []
        with self._changed:
            piece.letter.error = piece.letter.error or error
            self._over[piece.place] = piece
            while (first := self._over.pop(self._front, None)) is not None:
                self._front += 1
                first.letter.left -= 1
                if not first.letter.left:
                    done.append(first.letter)
        return done

    def _put(self, piece: _Piece) -> None:
        """Store it. None of a full channel's messages may pass one before it that waits for room:

        its reader takes them in their order, and so would never make any.
        """
        tensor = shaped(piece.letter.flat_P, piece.part)
        header = Header(piece.key.operation, tensor.dtype, tuple(tensor.shape))
        until_s, pause_s = time.monotonic() + self._post.timeout_s, _FIRST_PAUSE_S
        why: NoRoom | None = None
        try:
            while True:
                if self._may_try(piece.place):
                    try:
                        self._post.channel.put(piece.key, header, as_bytes(tensor))
                        return
                    except NoRoom as error:
                        why = error
                        self._take_back(piece)
                with self._changed:
                    self._refused.add(piece.place)
                if not left_s(until_s):
                    raise WaitTimeout(
                        f"no room came within {self._post.timeout_s:g} s, as what was sent before "
                        f"is not read: {why or 'a message before it waits for room'}"
                    ) from why
                self._post.pause(min(pause_s, left_s(until_s)))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            with self._changed:
                self._refused.discard(piece.place)

    def _take_back(self, piece: _Piece) -> None:
        """Remove what was stored of later letters, to be sent again, if this piece is the first.

        Nobody has read of them: that would have taken the letter of this piece.
        """
        with self._changed:
            if piece.place != self._front:
                return
            number = piece.letter.number
            later = [one for _, one in sorted(self._over.items()) if one.letter.number > number]
            for one in later:
                del self._over[one.place]
        try:
            self._post.channel.drop([one.key for one in later])
        finally:
            with self._changed:
                self._pieces.extendleft(reversed(later))

    def _may_try(self, place: int) -> bool:
        with self._changed:
            return min(self._refused, default=place) >= place

    def _named(self, letter: _Letter, error: BaseException) -> BaseException:
        what = f"rank {self._post.rank}, sending message {letter.number} of tag {self._tag} to "
        return named(f"{what}rank {self._to}, {Form.of(letter.flat_P)}", error)
