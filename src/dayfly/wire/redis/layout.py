"""What stands where in Redis, and the two scripts that keep it consistent.

    dayfly:{run}                                     hash: generation -> life
    dayfly:{run}:000000:<life>:boxes                 hash: mailbox -> bytes in it
    dayfly:{run}:000000:<life>:to-0                  hash: name -> "<bytes> <put>"
    dayfly:{run}:000000:<life>:to-0:<name>           stream: the message

A life is a random word that whoever makes the channel gives it: puts of those who opened an earlier
one are refused. The braces keep all keys of a run on one server of a cluster. Every key expires, so
that a coordinator that was killed leaves nothing for ever.

A message is a stream, as that can be waited for and read again. Its entries are its pieces, in one
transaction, so they are there together or not at all. The last one always has the same number, and
streams only grow: once a message is there, no piece of another can be added to it.

    one piece       1-999999
    three pieces    1-999997  1-999998  1-999999

It is received straight into the memory of its reader:

    XREAD BLOCK .. STREAMS s 0   ->   [[s, [[1-999998, [m, header + payload]],
                                            [1-999999, [m, the rest of the payload]]]]]
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from dayfly.errors import WireError
from dayfly.wire.keys import HEADER_BYTES, Key
from dayfly.wire.message import Header, Opener, header_of_bytes
from dayfly.wire.redis.connection import Connection
from dayfly.wire.redis.resp import CommandPart, ProtocolError, Reader, ReplyError, command, short

#: What is longer is sent in pieces: a byte of a long value takes Redis several times as long.
PIECE_BYTES = 2**20
_LAST = 999_999
#: Seconds for which a key is kept after it was last written.
EXPIRES_S = 24 * 3600

#: After a message's stream was written: notes it, or removes it if the run is over.
#: KEYS: stream, lives, mailbox, mailboxes.
#: ARGV: generation, life, mailbox, seconds, name, note, bytes.
#: 1: stored by this put. 0: another was first. -1: the life is over. -2: it was not written.
_NOTE = """
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then
  redis.call('DEL', KEYS[1])
  return -1
end
if redis.call('XLEN', KEYS[1]) == 0 then return -2 end
redis.call('EXPIRE', KEYS[1], ARGV[4])
if redis.call('HSETNX', KEYS[3], ARGV[5], ARGV[6]) == 0 then
  return redis.call('HGET', KEYS[3], ARGV[5]) == ARGV[6] and 1 or 0
end
redis.call('HINCRBY', KEYS[4], ARGV[3], ARGV[7])
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('EXPIRE', KEYS[3], ARGV[4])
redis.call('EXPIRE', KEYS[4], ARGV[4])
return 1
""".strip()

#: KEYS: mailboxes, mailbox, streams. ARGV: mailbox, names.
_DROP = """
local freed = 0
for i = 3, #KEYS do
  local note = redis.call('HGET', KEYS[2], ARGV[i - 1])
  if note then
    freed = freed + tonumber(string.match(note, '^%d+'))
    redis.call('HDEL', KEYS[2], ARGV[i - 1])
  end
  redis.call('UNLINK', KEYS[i])
end
if freed > 0 then redis.call('HINCRBY', KEYS[1], ARGV[1], -freed) end
return freed
""".strip()

STORED, SECOND, OVER, UNWRITTEN = 1, 0, -1, -2


@dataclass(frozen=True, slots=True)
class KeyNames:
    """Names of the keys of one life of a generation of a run."""

    run: str
    generation: int
    life: str

    @property
    def lives(self) -> str:
        """Where the run's generations are noted."""
        return lives_of(self.run)

    @property
    def noted(self) -> str:
        """The generation, as it is noted there."""
        return generation_name(self.generation)

    @property
    def mailboxes(self) -> str:
        """Where the mailboxes are noted, and the bytes in each."""
        return f"{self._prefix}:boxes"

    def mailbox(self, mailbox: str) -> str:
        """Where a mailbox's messages are noted."""
        return f"{self._prefix}:{mailbox}"

    @property
    def _prefix(self) -> str:
        return f"{self.lives}:{self.noted}:{self.life}"

    def stream(self, mailbox: str, name: str) -> str:
        """Where a message is."""
        return f"{self._prefix}:{mailbox}:{name}"

    def put(self, key: Key, header: bytes, payload: memoryview, put: str) -> Put:
        """The commands that store a message, in pieces if it is long.

        Args:
            put: a word that no other put has, the same at each try.
        """
        mailbox, name = key.mailbox, key.name
        stream = short(self.stream(mailbox, name))
        size, count = len(header) + payload.nbytes, pieces(payload.nbytes)
        out: list[CommandPart] = [_MULTI]
        for number in range(count):
            piece = payload[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
            before = b"" if number else header
            length, entry = len(before) + piece.nbytes, _entry(number, count)
            add = b"%b%b%b$%d\r\n%b" % (_XADD, stream, entry, length, before)
            out += [add, piece, b"\r\n"]
        note = short(name, f"{size} {put}", size)
        out.append(b"%b%b%b%b%b" % (_EVAL_NOTE, stream, _usual(self, mailbox), note, _EXEC))
        return Put(out, size, count + 3, stored_replies(count))

    def drop(self, mailbox: str, names: Sequence[str]) -> tuple[str | int, ...]:
        """The command that removes messages of a mailbox."""
        keys = (
            self.mailboxes,
            self.mailbox(mailbox),
            *(self.stream(mailbox, name) for name in names),
        )
        return ("EVAL", _DROP, len(keys), *keys, mailbox, *names)


_MULTI = command("MULTI")
_EXEC = command("EXEC")
_XADD = b"*5\r\n" + short("XADD")
_EVAL_NOTE = b"*14\r\n" + short("EVAL", _NOTE, 4)


@dataclass(frozen=True, slots=True)
class Put:
    """The commands of a put, and what they are answered.

    Args:
        parts: the bytes to be sent.
        size: of the message.
        replies: one to each command, the last of which is that of the transaction, in whose list
            the last item tells what came of it.
        stored: the bytes of all replies if the message was stored.
    """

    parts: list[CommandPart]
    size: int
    replies: int
    stored: bytes


@lru_cache(maxsize=64)
def stored_replies(count: int) -> bytes:
    """What a put of so many pieces is answered if it stored its message."""
    queued = b"+OK\r\n" + (count + 1) * b"+QUEUED\r\n"
    added = b"".join(short(_number(number, count)) for number in range(count))
    return b"%b*%d\r\n%b:%d\r\n" % (queued, count + 1, added, STORED)


def pieces(nbytes: int) -> int:
    """Returns the number of pieces of a message whose payload has `nbytes` bytes."""
    return max(1, -(-nbytes // PIECE_BYTES))


@lru_cache(maxsize=64)
def piece_begins(number: int, count: int) -> bytes:
    """What comes before the length of a piece, when its stream is read."""
    return b"*2\r\n%b*2\r\n%b" % (short(_number(number, count)), short("m"))


@lru_cache(maxsize=64)
def _entry(number: int, count: int) -> bytes:
    """What stands before the length of a piece, when it is added to its stream."""
    return short(_number(number, count), "m")


def _number(number: int, count: int) -> str:
    """The number in its stream of one of so many pieces, counted from 0."""
    return f"1-{_LAST + 1 - count + number}"


@lru_cache(maxsize=256)
def _usual(layout: KeyNames, mailbox: str) -> bytes:
    """What the notes of all messages to a mailbox have in common; see `_NOTE`."""
    keys = (layout.lives, layout.mailbox(mailbox), layout.mailboxes)
    return short(*keys, layout.noted, layout.life, mailbox, EXPIRES_S)


def stream_begins(stream: str) -> bytes:
    """What comes before the number of entries, when a stream is read."""
    return b"*1\r\n*2\r\n%b" % short(stream)


def lives_of(run: str) -> str:
    """Where a run's generations are noted."""
    return f"dayfly:{{{run}}}"


def generation_name(generation: int) -> str:
    """A generation as it stands in names."""
    return f"{generation:06d}"


class Sink(ABC):
    """Takes the bytes of one message.

    Attributes:
        size: bytes that have arrived, header included.
    """

    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self.size = 0

    @abstractmethod
    def begin(self, raw: bytes, pieces: int) -> tuple[Header, memoryview]:
        """Reads the header of a message.

        Returns:
            What is to follow in so many pieces: the header of it, and memory for its bytes.

        Raises:
            WireError: the header is not as expected; says what was expected and found.
        """


class Into(Sink):
    """A message whose header is known, for memory of its size."""

    def __init__(self, opener: Opener, expected: Header, into: memoryview) -> None:
        super().__init__(opener)
        self._expected = expected
        self._into = into

    def begin(self, raw: bytes, pieces: int) -> tuple[Header, memoryview]:
        return self._expected, self._into


class Bytes(Sink):
    """A message of bytes, of any size."""

    def __init__(self, opener: Opener) -> None:
        super().__init__(opener)
        self._content = bytearray()

    def begin(self, raw: bytes, pieces: int) -> tuple[Header, memoryview]:
        header = header_of_bytes(raw, self.opener.key.operation)
        if header.nbytes > pieces * PIECE_BYTES:
            raise WireError(f"expected {header}, found it cut short")
        self._content = bytearray(header.nbytes)
        return header, memoryview(self._content)

    def content(self) -> bytes:
        """The payload, once it was read."""
        return bytes(self._content)


Some = TypeVar("Some", bound=Sink)


def read_message(
    connection: Connection, stream: str, wait_ms: int, sink: Some
) -> tuple[Some, float] | None:
    """Ask for a message, and let the server wait for it so long; None if it did not come.

    Returns the sink, and when the message was there. Raises WireError for one that is not what the
    sink expects.
    """
    block: tuple[str | int, ...] = ("BLOCK", wait_ms) if wait_ms else ()  # 0 would be for ever
    connection.allow(wait_ms / 1000)
    connection.send([command("XREAD", *block, "STREAMS", stream, "0")])
    reader = connection.reader
    if not reader.begins(stream_begins(stream)):
        streams = reader.count()
        if isinstance(streams, ReplyError):
            connection.check(streams)
            raise connection.refused(streams)
        if streams is None:
            return None
        raise ProtocolError("another stream than the one asked for")
    there_s = time.monotonic()
    pieces = reader.count()
    if not isinstance(pieces, int) or not pieces:
        raise ProtocolError("a stream without entries")
    _read_pieces(reader, pieces, sink)
    return sink, there_s


def _read_pieces(reader: Reader, pieces: int, sink: Sink) -> None:
    size = _begin_piece(reader, 0, pieces)
    raw = bytearray(min(size, HEADER_BYTES))
    reader.fill(memoryview(raw))
    expected, left = sink.begin(bytes(raw), pieces)
    checking = sink.opener.begin(raw, expected)
    sink.size, size = HEADER_BYTES + len(left), size - HEADER_BYTES
    for number in range(pieces):
        if number:
            size = _begin_piece(reader, number, pieces)
        if size > len(left):
            raise WireError(f"expected {expected}, found {size - len(left)} bytes more")
        piece, left = left[:size], left[size:]
        reader.finish(piece)
        checking.update(piece)
    if len(left):
        raise WireError(f"expected {expected}, found it cut short")
    checking.finish()


def _begin_piece(reader: Reader, number: int, pieces: int) -> int:
    """Returns how many bytes a piece has, which come next."""
    if not reader.begins(piece_begins(number, pieces)):
        # None of ours, as its header or its AES-GMAC will tell.
        _due(reader.count(), 2)
        reader.value()
        _due(reader.count(), 2)
        reader.value()
    return reader.length()


def _due(found: int | ReplyError | None, due: int) -> None:
    if found != due:
        raise ProtocolError(f"a list of another length than {due}")
