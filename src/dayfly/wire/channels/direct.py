"""The direct channel: workers that can reach each other, as Hydrozoa's containers do.

    rank 0                              rank 1
    outbox: messages from rank 0  <---  get, over a connection to rank 0
    get, to rank 1  ----------------->  outbox: messages from rank 1

To put is to copy a message into one's own outbox, which serves it to whoever asks; to get is to ask
its source, wait there, and receive into the tensor. So a reader takes no memory but its tensor, and
a sender no more than its outbox: a message to one rank is freed when that rank has read it, one to
everyone when all others have. A put into a full outbox waits for readers. Messages to the
coordinator are sent to it at once, and outlive the worker; those that it sends, such as the wish to
stop, are asked of it.

Nothing survives the death of its sender, and nothing can be read twice: after a death all workers
go back to the run checkpoint. Addresses meet in the run's store (see `sockets.meeting`).
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from dayfly.errors import MessagesRemoved, WaitTimeout, WireError, named
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelFactory, ChannelSpec, Site
from dayfly.wire.channels.kinds import Direct, HostPort
from dayfly.wire.keys import COORDINATOR, EVERYONE, SERVER, Key, party_name
from dayfly.wire.sockets.channel import SocketChannel
from dayfly.wire.sockets.mailboxes import Mailboxes, Result, Take
from dayfly.wire.sockets.meeting import Absent, Meeting, Peers
from dayfly.wire.sockets.server import Server
from dayfly.wire.sockets.table import MessageTable

#: How long a worker waits for the coordinator's address, in seconds.
MEET_S = 30.0
#: How long a put waits for readers to make room in the outbox, in seconds.
ROOM_S = 60.0
#: How long a worker that ends waits for readers of its last messages, in seconds.
LINGER_S = 10.0
#: An outbox holds so much at least, in bytes.
_LEAST_OUTBOX_BYTES = 64 * 2**20
_POLL_S = 0.05
_LOOK_S = 0.2
#: Messages that were read and not dropped yet, of which it is known that they are gone.
_REMEMBERED = 2**12


class DirectChannel(SocketChannel):
    """The end of one party.

    Args:
        site: where the run's addresses and token are.
        rank: a worker's rank, or COORDINATOR.
        world_size: number of workers.
        server: serves its outbox; None: in this process it has none.
        owned: whether the server is closed with the channel.
    """

    abilities = Direct.abilities

    def __init__(
        self,
        site: Site,
        rank: int,
        *,
        world_size: int,
        server: Server | None,
        owned: bool = True,
    ) -> None:
        super().__init__(site)
        self._rank = rank
        self._world_size = world_size
        self._peers = Peers(self._meeting, self._by.handshake, rank)
        self._server = server
        self._owned = owned
        self._lock = threading.Lock()
        self._taken: dict[Key, None] = {}
        self._closed = False

    def copies(self, key: Key) -> int:
        """Each reader gets it from here."""
        return max(1, self._world_size - 1) if key.destination == EVERYONE else 1

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        homes = self._by_home(keys)
        found = self._each(homes, lambda home, server: server.stored(homes[home]))
        self.traffic.count()
        return frozenset().union(*found)

    def waiting(self, destination: int) -> Sequence[Key]:
        homes = [COORDINATOR] if destination == COORDINATOR else self._homes()
        return sorted(chain(*self._each(homes, lambda _, server: server.waiting(destination))))

    def drop(self, keys: Iterable[Key]) -> None:
        with self._lock:
            # Freed when they were read: that needs no request.
            left = [key for key in keys if self._taken.pop(key, self) is self]
        homes = self._by_home(left)
        self._each(homes, lambda home, server: server.drop(homes[home]))

    def trim(self, before_step: int) -> None:
        self._each(self._homes(), lambda _, server: server.trim(before_step))

    def size_bytes(self) -> int:
        return sum(self._each(self._homes(), lambda _, server: server.size_bytes()))

    def close(self) -> None:
        """Waits until peers have read this worker's last messages, for LINGER_S at most."""
        if self._closed:
            return
        self._closed = True
        if self._server is not None and self._owned:
            if self._rank != COORDINATOR:
                self._linger(self._server.table)
            self._server.close()
        self._peers.close()

    def _linger(self, table: MessageTable) -> None:
        until = time.monotonic() + LINGER_S
        while not table.wait_until_read(_LOOK_S) and time.monotonic() < until:
            try:
                self._peers.ask(COORDINATOR, lambda client: client.size_bytes())
            except WireError:
                return  # the run is over

    def _ask(self, home: int, question: Callable[[Mailboxes], Result]) -> Result:
        """Asks the outbox of a party, which may be this one's own. Raises Absent."""
        if self._server is not None and home == self._rank:
            return question(self._server.table)
        return self._peers.ask(home, question)

    def _each(
        self, homes: Iterable[int], question: Callable[[int, Mailboxes], Result]
    ) -> list[Result]:
        """Asks parties one after another.

        A worker that is not there has no messages; the coordinator has to be.
        """
        found = []
        for home in homes:
            try:
                found.append(self._ask(home, partial(question, home)))
            except Absent:
                if home == COORDINATOR:
                    raise
        return found

    def _at(self, key: Key, question: Callable[[Mailboxes], Result]) -> Result:
        home = self._home(key)
        try:
            return self._ask(home, question)
        except WireError as error:
            raise named(key, error) from error

    def _read(self, key: Key, timeout_s: float, take: Take[Result]) -> tuple[Result, float]:
        """Wait for a message, in the own outbox or at its source, also for one that is to come."""
        home, until, why = self._home(key), time.monotonic() + timeout_s, ""

        def left_s() -> float:
            return max(0.0, until - time.monotonic())

        try:
            while True:
                try:
                    taken = self._ask(home, lambda server: server.get(key, left_s(), take))
                    self._note_taken(key)
                    return taken
                except WaitTimeout:
                    break
                except Absent as error:
                    why = f": {error}"
                    if self._peers.over():
                        raise MessagesRemoved("the run's messages were removed") from error
                    if not (pause_s := min(_POLL_S, left_s())):
                        break
                time.sleep(pause_s)
        except WireError as error:
            raise named(key, error) from error
        raise WaitTimeout(f"{key} did not arrive within {timeout_s:g} s{why}")

    def _note_taken(self, key: Key) -> None:
        if 0 <= key.source == self._home(key) and key.destination == self._rank:
            with self._lock:
                self._taken[key] = None
                if len(self._taken) > _REMEMBERED:
                    del self._taken[next(iter(self._taken))]

    def _home(self, key: Key) -> int:
        """Whose server keeps a message: its source's; that to or from the coordinator, its own."""
        if key.destination == SERVER or key.source == SERVER:
            raise WireError(f"{key}: workers that talk directly have no parameter server")
        if key.source >= self._world_size:
            raise WireError(f"{key}: no rank {key.source} was planned for")
        return COORDINATOR if key.source < 0 or key.destination == COORDINATOR else key.source

    def _homes(self) -> list[int]:
        return [COORDINATOR, *range(self._world_size)]

    def _by_home(self, keys: Iterable[Key]) -> dict[int, list[Key]]:
        homes: dict[int, list[Key]] = {}
        for key in keys:
            homes.setdefault(self._home(key), []).append(key)
        return homes


class DirectFactory(ChannelFactory):
    """Makes the channels of `Direct`."""

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        meeting = Meeting(site.rendezvous, site.namespace)
        if meeting.find(COORDINATOR) is not None:
            raise WireError(f"{site.namespace.run} has its addresses in {site.rendezvous}")
        table = MessageTable(
            lambda key: None, limit_bytes=spec.budget_bytes, full="raise --log-budget to keep more"
        )
        host = HostPort.parse(site.url, Direct.usage).host
        own = {
            "world_size": spec.senders,
            "outbox_bytes": max(_LEAST_OUTBOX_BYTES, 2 * spec.ahead_bytes),
        }
        server = _serve(meeting, site, COORDINATOR, table, host, own)
        return DirectChannel(site, COORDINATOR, world_size=spec.senders, server=server)

    def open(self, site: Site, reader: int) -> Channel:
        """`reader` announces its own address, in place of that of an earlier attempt."""
        meeting = Meeting(site.rendezvous, site.namespace)
        met = meeting.wait_for(COORDINATOR, MEET_S)
        world_size = int(met["world_size"])

        def readers(key: Key) -> set[int] | None:
            everyone = set(range(world_size)) - {key.source}
            return everyone if key.destination == EVERYONE else {key.destination}

        table = MessageTable(
            readers,
            owner=reader,
            limit_bytes=int(met["outbox_bytes"]),
            patience_s=ROOM_S,
            full="are those workers alive?",
        )
        host = _address_towards(str(met["host"]))
        server = _serve(meeting, site, reader, table, host, {})
        return DirectChannel(site, reader, world_size=world_size, server=server)

    def remove(self, site: Site) -> None:
        Meeting(site.rendezvous, site.namespace).destroy(site.token)


def _serve(
    meeting: Meeting,
    site: Site,
    party: int,
    table: MessageTable,
    host: str,
    more: Mapping[str, Any],
) -> Server:
    # An attempt's own name: an address that another has taken over is not mistaken for it.
    audience = meeting.audience(f"{party_name(party)}/{secrets.token_hex(8)}")
    token = meeting.authenticator(site.token).handshake
    server = Server(table, host=host, token=token, audience=audience)
    try:
        place = {"host": server.host, "port": server.port, "audience": audience}
        meeting.announce(party, {**place, **more})
    except BaseException:
        server.close()
        raise
    return server


def _address_towards(host: str) -> str:
    """This machine's own address on its way to another one, or to itself; nothing is sent."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise WireError(
            f"there is no way to the coordinator at {host}: {error.strerror}"
        ) from error
