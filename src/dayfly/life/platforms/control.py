"""Messages between the coordinator, the zygote and the functions: JSON in frames, and descriptors.

A frame is its body's length in bytes (4, big endian) and the body, over a unix stream socket.
Nothing is unpickled. File descriptors travel beside the first bytes of a frame.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

#: Payloads and results are at most this long unless a function's limits say otherwise, as JSON, in
#: bytes (Lambda's synchronous limit).
PAYLOAD_LIMIT_BYTES = 6 * 2**20

_HEADER = struct.Struct("!I")
_READ_BYTES = 2**16
_MOST_FDS = 4


def encode(value: Any, what: str, limit_bytes: int | None = None) -> bytes:
    """`value`, a JSON object, as bytes.

    Raises ValueError if it is no JSON object (NaN and infinity are not JSON) or is longer than
    `limit_bytes` (None: PAYLOAD_LIMIT_BYTES); `what` names it in the message.
    """
    most_bytes = PAYLOAD_LIMIT_BYTES if limit_bytes is None else limit_bytes
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be a JSON object (a dict), not {type(value).__name__}")
    try:
        body = json.dumps(dict(value), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    if len(body) > most_bytes:
        raise ValueError(
            f"{what} has {len(body)} bytes, at most {most_bytes} can travel: "
            "put large data into the channel and send its key"
        )
    return body


def send(to: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message, blocking, with `fds` beside it."""
    send_encoded(to, json.dumps(message).encode(), fds)


def send_encoded(to: socket.socket, body: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message that is JSON already."""
    data = memoryview(_HEADER.pack(len(body)) + body)
    sent = socket.send_fds(to, [data], fds) if fds else 0
    to.sendall(data[sent:])


class Receiver:
    """Cuts what arrives on a socket into messages.

    Attributes:
        ended: the other side is closed.
        fds: descriptors that came and were not taken yet, close on exec; whoever takes them out of
            the list owns them.
    """

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = bytearray()
        self.fds: list[int] = []
        self.ended = False

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._source.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """All messages that are complete; on a blocking socket it waits for the first bytes."""
        blocking = self._source.getblocking()
        while not self.ended:
            try:
                data, ancillary, _, _ = self._source.recvmsg(
                    _READ_BYTES,
                    socket.CMSG_SPACE(_MOST_FDS * array.array("i").itemsize),
                    socket.MSG_CMSG_CLOEXEC,
                )
            except BlockingIOError:
                break
            except ConnectionResetError:
                data, ancillary = b"", []
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds = array.array("i")
                    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                    self.fds.extend(fds)
            self._buffer += data
            self.ended = not data
            if blocking:
                break
        return self._cut()

    def close(self) -> None:
        """Close the socket, and the descriptors that nobody took."""
        self._source.close()
        while self.fds:
            os.close(self.fds.pop())

    def _cut(self) -> list[dict[str, Any]]:
        messages = []
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(json.loads(self._buffer[_HEADER.size : end]))
            del self._buffer[:end]
        return messages
