"""RESP, the protocol of Redis and Valkey, in its version 2: commands out, replies in.

    command   *<n>\\r\\n and n times  $<bytes>\\r\\n<argument>\\r\\n
    reply     +<text>   -<error>   :<number>   $<bytes>\\r\\n<value>   *<n>, and n replies
              $-1 and *-1 are None

Nothing that the other side says makes this one set more memory aside than it has received, save
where the caller knows how much is to come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dayfly.errors import DayflyError

#: A part of a command or of an argument; they are sent one after another.
CommandPart = bytes | memoryview

_BUFFER_BYTES = 16 * 1024
#: The longest value that `Reader.value` takes, and the deepest nesting. Messages, which are longer,
#: are read by their own reader into memory of their own.
_VALUE_BYTES = 2**20
_DEPTH = 8
_END = b"\r\n"
#: More digits than any length, count or number has.
_DIGITS = 20


class ProtocolError(DayflyError):
    """What came is no reply of a Redis server. The text never repeats what it was."""


@dataclass(frozen=True, slots=True)
class ReplyError:
    """An error that the server replied, such as `OOM command not allowed`."""

    text: str

    @property
    def code(self) -> str:
        """Its first word, such as `OOM`."""
        return self.text.partition(" ")[0]


#: Receives into memories, one after another, and says how many bytes; `whole`: waits for all.
Receive = Callable[[Sequence[memoryview], bool], int]

Value = bytes | str | int | None | ReplyError | list["Value"]


def command(*arguments: bytes | str | int) -> bytes:
    """A command of short arguments."""
    return b"*%d\r\n%b" % (len(arguments), short(*arguments))


def short(*arguments: bytes | str | int) -> bytes:
    """Some of a command's arguments, short ones, as they are sent."""
    raws = [one if isinstance(one, bytes) else str(one).encode() for one in arguments]
    return b"".join([b"$%d\r\n%b\r\n" % (len(raw), raw) for raw in raws])


class Reader:
    """Reads replies that `receive` receives; it may return fewer bytes than it was asked for.

    Raises ProtocolError for what is no reply, and EOFError at the end of what comes; then, and
    after what `receive` raises, the reader is of no more use.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive_into = receive
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    def begins(self, known: bytes) -> bool:
        """Reads these bytes if they are what comes next; else it reads nothing.

        Most replies are known but for the payload: comparing is many times as fast as reading them
        item by item. No more is waited for than it takes to tell.
        """
        if len(known) > _BUFFER_BYTES:
            return False
        while True:
            there = min(len(known), self._end - self._start)
            if self._view[self._start : self._start + there] != known[:there]:
                return False
            if there == len(known):
                self._start += there
                return True
            self._more()

    def value(self, depth: int = 0) -> Value:
        """A whole reply. Errors are values, also within lists."""
        line = self._line()
        kind, rest = line[:1], line[1:]
        match kind:
            case b"+":
                return rest.decode("utf-8", "replace")
            case b"-":
                return ReplyError(rest.decode("utf-8", "replace"))
            case b":":
                return _number(rest)
            case b"$":
                size = _number(rest)
                if size == -1:
                    return None
                if not 0 <= size <= _VALUE_BYTES:
                    raise ProtocolError(f"a value of {size} bytes where a short one is due")
                return self._bulk(size)
            case b"*":
                count = _number(rest)
                if count == -1:
                    return None
                if count < 0 or depth == _DEPTH:
                    raise ProtocolError("a list of a wrong length, or nested too deep")
                return [self.value(depth + 1) for _ in range(count)]
        raise ProtocolError("no reply of a Redis server")

    def count(self) -> int | ReplyError | None:
        """The beginning of a list: how many replies follow as its items. An error, or None."""
        line = self._line()
        if line[:1] == b"-":
            return ReplyError(line[1:].decode("utf-8", "replace"))
        count = self._sized(line, b"*")
        return None if count == -1 else count

    def length(self) -> int:
        """The beginning of a value: how many bytes follow, to be read by `fill`, then `finish`."""
        return self._sized(self._line(), b"$", least=0)

    def fill(self, into: memoryview) -> None:
        """Read bytes of a value straight into memory, all of it."""
        self._fill(into, self._view[:0])

    def finish(self, into: memoryview) -> None:
        """Read the last bytes of a value straight into memory, and the value's end."""
        end = memoryview(bytearray(len(_END)))
        self._fill(into, end)
        if end != _END:
            raise ProtocolError("a value that is longer than was said")

    def _fill(self, *views: memoryview) -> None:
        left = [view for view in views if len(view)]
        while left:
            done = min(len(left[0]), self._end - self._start)
            if done:
                left[0][:done] = self._view[self._start : self._start + done]
                self._start += done
            else:
                done = self._receive(left, whole=True)
            while left and done >= len(left[0]):
                done -= len(left.pop(0))
            if done:
                left[0] = left[0][done:]

    def _sized(self, line: bytes, kind: bytes, least: int = -1) -> int:
        if line[:1] != kind:
            raise ProtocolError(f"a reply that does not begin with {kind.decode()}")
        size = _number(line[1:])
        if size < least or size < -1:
            raise ProtocolError(f"a length of {size}")
        return size

    def _bulk(self, size: int) -> bytes:
        # Piece by piece: what was said to come may never come.
        pieces = []
        for start in range(0, size, _BUFFER_BYTES):
            pieces.append(self._short(min(_BUFFER_BYTES, size - start)))
        self.finish(self._view[:0])
        return b"".join(pieces)

    def _line(self) -> bytes:
        seen = 0
        while True:
            at = self._buffer.find(b"\r\n", self._start + max(0, seen - 1), self._end)
            if at >= 0:
                line = bytes(self._view[self._start : at])
                self._start = at + 2
                return line
            seen = self._end - self._start
            self._more()

    def _short(self, size: int) -> bytes:
        """So many bytes, which fit into the buffer."""
        while self._end - self._start < size:
            self._more()
        found = bytes(self._view[self._start : self._start + size])
        self._start += size
        return found

    def _more(self) -> None:
        """Receive something behind what is in the buffer."""
        if self._start:
            left = self._end - self._start
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._start, self._end = 0, left
        if self._end == _BUFFER_BYTES:
            raise ProtocolError(f"a line of more than {_BUFFER_BYTES} bytes")
        self._end += self._receive([self._view[self._end :]])

    def _receive(self, into: Sequence[memoryview], whole: bool = False) -> int:
        received = self._receive_into(into, whole)
        if not received:
            raise EOFError("the connection was closed")
        return received


def _number(digits: bytes) -> int:
    bare = digits[1:] if digits[:1] == b"-" else digits
    if not bare.isdigit() or len(bare) > _DIGITS:
        raise ProtocolError("a number that is none")
    return int(digits)
