"""What channels over sockets have in common: messages that are sealed, put, and read in pieces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch

from dayfly.errors import WireError, named
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import Site
from dayfly.wire.keys import HEADER_BYTES, Key
from dayfly.wire.message import Header, Opener, as_bytes
from dayfly.wire.sockets.mailboxes import Mailboxes, Receive, Result, Take, receive_unknown
from dayfly.wire.sockets.meeting import Meeting
from dayfly.wire.sockets.protocol import Unreachable

#: A payload is received, copied and checked in pieces that stay in the processor's cache.
_RECEIVED_BYTES = 2**19


class SocketChannel(Channel):
    """The end of one party."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.namespace)
        self._meeting = Meeting(site.rendezvous, site.namespace)
        self._token = site.token
        self._by = self._meeting.authenticator(site.token)

    @abstractmethod
    def _at(self, key: Key, question: Callable[[Mailboxes], Result]) -> Result:
        """Asks the server that keeps a message; errors name the message."""

    @abstractmethod
    def _read(self, key: Key, timeout_s: float, take: Take[Result]) -> tuple[Result, float]:
        """Waits for a message and reads it, as `Mailboxes.get`; errors name the message."""

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        sealed = header.seal(payload, key, self._by)
        won = self._at(key, lambda server: server.put(key, sealed, payload))
        self.traffic.count(up=(HEADER_BYTES + payload.nbytes) * self.copies(key) if won else 0)
        return won

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        _, there_s = self._read(key, timeout_s, _into_tensor(Opener(key, self._by), into))
        self.traffic.count(down=HEADER_BYTES + into.nbytes)
        return there_s

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        def take(receive: Receive, length: int) -> bytes:
            return Opener(key, self._by).plain(receive_unknown(receive, length))

        data, _ = self._read(key, timeout_s, _naming(key, take))
        self.traffic.count(down=HEADER_BYTES + len(data))
        return data

    def destroy(self) -> None:
        self._meeting.destroy(self._token)


def _into_tensor(opener: Opener, into: torch.Tensor) -> Take[None]:
    """Reads a message into a contiguous CPU tensor.

    It raises WireError, with the key, if the message is not as expected.
    """
    expected = Header(opener.key.operation, into.dtype, tuple(into.shape))
    target = as_bytes(into)

    def take(receive: Receive, length: int) -> None:
        head = bytearray(min(length, HEADER_BYTES))
        receive(memoryview(head))
        checking = opener.begin(head, expected, length)
        for start in range(0, target.nbytes, _RECEIVED_BYTES):
            piece = target[start : start + _RECEIVED_BYTES]
            receive(piece)
            checking.update(piece)
        checking.finish()

    return _naming(opener.key, take)


def _naming(key: Key, take: Take[Result]) -> Take[Result]:
    def taken(receive: Receive, length: int) -> Result:
        try:
            return take(receive, length)
        except Unreachable:
            raise
        except WireError as error:
            raise named(key, error) from error

    return taken
