"""The parameter server: a process that the coordinator starts, which adds what workers push to it.

    worker 0 --- grad-part-3 --->  +--------+  --- grad-sum-3 ---> worker 0
    worker 1 --- grad-part-3 --->  | server |  --- grad-sum-3 ---> worker 1
    worker 2 --- grad-part-3 --->  +--------+  --- grad-sum-3 ---> worker 2

CE-scaling's VM-PS (section II, table I), Cirrus, lambda-DNN, and HybridPS (FuncPipe, sections 2.2
and 5.1) are such servers. What is pushed is weighted by sample count already, so the sum is the
mean over the batch; its order is the ranks' (see `sockets.sums`). Any other message is stored and
read as in any channel, so every collective works over it.

Its memory is the server's: it dies with the coordinator, and a sum is freed once every rank has
read it. So nothing can be replayed, and after a death all workers go back to the run checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from dayfly.errors import WaitTimeout, WireError, named
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelFactory, ChannelSpec, Site
from dayfly.wire.channels.kinds import HostPort, ParameterServer
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.sockets.channel import SocketChannel
from dayfly.wire.sockets.client import Address, Client
from dayfly.wire.sockets.mailboxes import Mailboxes, Result, Take
from dayfly.wire.sockets.meeting import Meeting, address_in
from dayfly.wire.sockets.process import ServerProcess, ServerSpec
from dayfly.wire.sockets.protocol import Closed, Unreachable

#: How long a worker waits for the server's address, in seconds.
MEET_S = 30.0


class ParameterServerChannel(SocketChannel):
    """Messages in a server's memory.

    Args:
        site: where the run's addresses and token are.
        address: of the server.
        reader: a worker's rank, or COORDINATOR.
        process: the server's, for the coordinator that started it.
    """

    abilities = ParameterServer.abilities

    def __init__(
        self, site: Site, address: Address, reader: int, process: ServerProcess | None = None
    ) -> None:
        super().__init__(site)
        self._client = Client(address, self._by.handshake, reader)
        self._process = process

    def _at(self, key: Key, question: Callable[[Mailboxes], Result]) -> Result:
        with self._naming(str(key)):
            return question(self._client)

    def _read(self, key: Key, timeout_s: float, take: Take[Result]) -> tuple[Result, float]:
        with self._naming(str(key), timeout_s):
            return self._client.get(key, timeout_s, take)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        with self._naming("stored"):
            found = self._client.stored(keys)
        self.traffic.count()
        return found

    def waiting(self, destination: int) -> Sequence[Key]:
        with self._naming("waiting"):
            return self._client.waiting(destination)

    def drop(self, keys: Iterable[Key]) -> None:
        with self._naming("drop"):
            self._client.drop(keys)

    def trim(self, before_step: int) -> None:
        with self._naming("trim"):
            self._client.trim(before_step)

    def size_bytes(self) -> int:
        with self._naming("size"):
            return self._client.size_bytes()

    def close(self) -> None:
        """The server ends with the coordinator's end; its messages with it."""
        self._client.close()
        if self._process is not None:
            self._process.close()

    @contextmanager
    def _naming(self, what: str, timeout_s: float = 0.0) -> Iterator[None]:
        """Errors name the message, or what was asked, and the server."""
        address = self._client.address
        try:
            yield
        except WaitTimeout as error:
            raise WaitTimeout(
                f"{what} did not arrive within {timeout_s:g} s at the parameter server {address}"
            ) from error
        except Closed as error:
            raise WireError(f"{what}: the channel is closed") from error
        except Unreachable as error:
            how = self._process.ended if self._process is not None else None
            raise WireError(
                f"{what}: the parameter server {address} does not answer ({how or error}), and its "
                "messages are gone with it: all workers go back to the run checkpoint"
            ) from error
        except WireError as error:
            raise named(what, error) from error


class ParameterServerFactory(ChannelFactory):
    """Makes the channels of `ParameterServer`."""

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        place = HostPort.parse(site.url, ParameterServer.usage)
        meeting = Meeting(site.rendezvous, site.namespace)
        if meeting.find(COORDINATOR) is not None:
            raise WireError(f"{site.namespace.run} has a parameter server already")
        audience = meeting.audience("server")
        order = ServerSpec(
            host=place.host,
            port=place.port,
            token=site.token,
            run=site.namespace.run,
            generation=site.namespace.generation,
            audience=audience,
            world_size=spec.senders,
            limit_bytes=spec.budget_bytes,
        )
        process = ServerProcess(order)
        try:
            address = Address(host=process.host, port=process.port, audience=audience)
            channel = ParameterServerChannel(site, address, COORDINATOR, process)
            channel.size_bytes()  # it answers
            record = {"host": address.host, "port": address.port, "audience": audience}
            meeting.announce(COORDINATOR, record)
        except BaseException:
            process.close()
            raise
        return channel

    def open(self, site: Site, reader: int) -> Channel:
        meeting = Meeting(site.rendezvous, site.namespace)
        record = meeting.wait_for(COORDINATOR, MEET_S)
        return ParameterServerChannel(site, address_in(record), reader)

    def remove(self, site: Site) -> None:
        Meeting(site.rendezvous, site.namespace).destroy(site.token)
