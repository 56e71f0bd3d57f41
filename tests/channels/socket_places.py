"""Places of channels over sockets, for the conformance suite; see `places.Place`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance import TOKEN
from dayfly.wire.channels.direct import DirectChannel
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.channels.kinds import Direct, ParameterServer
from dayfly.wire.channels.spread import server_of, sites
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.sockets.client import Client
from dayfly.wire.sockets.mailboxes import receive_unknown
from dayfly.wire.sockets.meeting import Meeting, address_in
from dayfly.wire.sockets.server import Server
from dayfly.wire.stores.files import FileStore


@dataclass(frozen=True)
class SocketPlace:
    """A store in which the servers of a channel of sockets leave their addresses.

    senders: ranks that may send.
    """

    root: Path
    senders: int
    url: ClassVar[str]
    asks_each: ClassVar[bool] = False

    def site(self, namespace: Namespace) -> Site:
        """With a free port at the loopback address."""
        store = FileStore(self.root / namespace.run)
        return Site(url=self.url, namespace=namespace, rendezvous=store, token=TOKEN)

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        with self._client(namespace, key) as client:
            return client.get(key, 0, receive_unknown)[0]

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        with self._client(namespace, key) as client:
            assert client.put(key, raw)

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        """They always do: a get waits at the server."""

    def _client(self, namespace: Namespace, key: Key) -> Client:
        """A client of the server that keeps a message; what it reads counts as unread."""
        meeting = Meeting(self.site(namespace).rendezvous, namespace)
        coordinator = meeting.wait_for(COORDINATOR, 0)
        home = self._home(key)
        record = coordinator if home == COORDINATOR else meeting.wait_for(home, 0)
        return Client(address_in(record), meeting.authenticator(TOKEN).handshake, COORDINATOR)

    def _home(self, key: Key) -> int:
        return COORDINATOR


class ParameterServerPlace(SocketPlace):
    """A parameter server a namespace."""

    url = "ps://"

    def make(self, namespace: Namespace) -> Channel:
        plan = ChannelSpec(senders=self.senders, budget_bytes=64 * 2**20, ahead_bytes=2**18)
        return ParameterServer().create(self.site(namespace), plan)

    def open(self, namespace: Namespace, reader: int) -> Channel:
        return ParameterServer().open(self.site(namespace), reader)


class ParameterServersPlace(ParameterServerPlace):
    """Two parameter servers a namespace, which share the keys."""

    url = "ps://127.0.0.1,127.0.0.1"
    servers: ClassVar[int] = 2

    def _client(self, namespace: Namespace, key: Key) -> Client:
        each = sites(self.site(namespace), ParameterServer().servers(self.url))
        meeting = Meeting(each[server_of(key, len(each))].rendezvous, namespace)
        record = meeting.wait_for(COORDINATOR, 0)
        return Client(address_in(record), meeting.authenticator(TOKEN).handshake, COORDINATOR)


@dataclass(frozen=True)
class DirectPlace(SocketPlace):
    """An outbox a rank, in the process that made it, which all channels of the rank there share.

    So a channel may be opened as often as the suite likes, though a rank has one attempt at a time.
    In other processes it has no outbox, and sends what it puts to the rank's.
    """

    url = "tcp://"
    outboxes: dict[Namespace, dict[int, Server]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[DirectPlace], tuple[Path, int]]:
        return DirectPlace, (self.root, self.senders)

    @contextmanager
    def make(self, namespace: Namespace) -> Iterator[Channel]:
        site, kind = self.site(namespace), Direct()
        plan = ChannelSpec(senders=self.senders, budget_bytes=64 * 2**20, ahead_bytes=2**18)
        with ExitStack() as stack:
            coordinators = stack.enter_context(kind.create(site, plan))
            ends = {COORDINATOR: coordinators}
            for rank in range(self.senders):
                ends[rank] = stack.enter_context(kind.open(site, rank))
            servers = {rank: end._server for rank, end in ends.items()}
            for server in servers.values():
                stack.callback(server.close)  # first: nobody is to wait for readers
            self.outboxes[namespace] = servers
            yield coordinators

    def open(self, namespace: Namespace, reader: int) -> Channel:
        site = self.site(namespace)
        record = Meeting(site.rendezvous, namespace).wait_for(COORDINATOR, 0)
        return DirectChannel(
            site,
            reader,
            world_size=record["world_size"],
            server=self.outboxes.get(namespace, {}).get(reader),
            owned=False,
        )

    def _home(self, key: Key) -> int:
        return COORDINATOR if key.source < 0 or key.destination == COORDINATOR else key.source


@contextmanager
def sockets_in(kind: type[SocketPlace], senders: int) -> Iterator[SocketPlace]:
    """A place whose addresses are kept in a private directory."""
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm") as root:
        yield kind(Path(root), senders)
