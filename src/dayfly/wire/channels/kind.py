"""Interface of a kind of channel: its abilities and costs, and the factory of its channels.

    coordinator   check the URL -> create -> ... -> destroy, close
    worker                          open  -> ... -> close
    later         remove: what a coordinator that was killed has left

Plans need abilities and costs alone, so this module does without torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

from dayfly.wire.keys import HEADER_BYTES

if TYPE_CHECKING:
    from dayfly.wire.authentication import Authenticator
    from dayfly.wire.channels.base import Channel, Namespace
    from dayfly.wire.stores.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a kind of channel can do, so that the engine, protocols and plans can choose.

    Args:
        largest_bytes: largest payload of a message; None: any.
        blocks: a get waits at the store; else it polls, and each time is a request.
        replays: messages can be read again until they are dropped or trimmed, also by a worker that
            starts again.
        sums: it adds the messages that are pushed to `keys.SERVER`.
        direct: messages go from worker to worker, so one to everyone leaves its sender once a
            reader.
        in_flight: requests at once, each way, with which one worker uses its link well.
        chunk_bytes: smallest message that is worth its request.
        list_every_s: least time between two listings of a mailbox that nothing calls for, as a
            store may bill them.
        authenticated: others can write to where messages are, so each carries AES-GMAC (see
            `wire.authentication`); else a checksum.
    """

    largest_bytes: int | None = None
    blocks: bool = True
    replays: bool = True
    sums: bool = False
    direct: bool = False
    in_flight: int = 1
    chunk_bytes: int = 64 * 1024
    list_every_s: float = 0.0
    authenticated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCost:
    """What one message costs to put, and to get once: requests to the store, and bytes moved.

    Requests that ask for a message that is not there yet come on top where gets do not block. Its
    time is (a latency + bytes / rate) each way, whatever the channel: see `virtual.Link`.
    """

    puts: int
    gets: int
    bytes_up: int
    bytes_down: int


def one_request(nbytes: int) -> MessageCost:
    """Returns the cost of a message of so many payload bytes that is one request each way."""
    whole = HEADER_BYTES + nbytes
    return MessageCost(puts=1, gets=1, bytes_up=whole, bytes_down=whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a channel is: what its two ends need to meet.

    Args:
        url: as the user gave it, without secrets.
        namespace: whose messages.
        rendezvous: a store in which processes that dayfly starts, and workers that reach each other
            directly, leave their addresses.
        token: of the coordinator, see `authentication`; never written anywhere.
        password: of the store; never written anywhere.
    """

    url: str
    namespace: Namespace
    rendezvous: Store
    token: str = field(repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def authenticator(self) -> Authenticator:
        """Of the messages of the namespace."""
        # Here, as plans have no messages.
        from dayfly.wire.authentication import Authenticator

        return Authenticator(self.token, self.namespace.run, self.namespace.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """What a channel is made for.

    Args:
        senders: ranks 0 to senders - 1 send.
        budget_bytes: bound of its messages, with all that it takes to keep them.
        ahead_bytes: bytes that a rank sends in a step, about.
    """

    senders: int
    budget_bytes: int
    ahead_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a channel of a given budget holds.

    Args:
        nbytes: bytes of messages.
        messages: messages of one sender; None: any number.
    """

    nbytes: int
    messages: int | None = None


class ChannelFactory(ABC):
    """Makes, opens and removes the channels of one kind."""

    @abstractmethod
    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        """Makes a channel and opens the coordinator's end of it.

        Args:
            site: where it is, and of which run and generation.
            spec: how large it is to be.

        Raises:
            WireError: it cannot be made (names where, and what to do), or is there already.
        """

    @abstractmethod
    def open(self, site: Site, reader: int) -> Channel:
        """Opens a channel that was made.

        Args:
            site: where it is, and of which run and generation.
            reader: rank that reads from it.

        Raises:
            WireError: it is not there, or cannot be reached.
        """

    @abstractmethod
    def remove(self, site: Site) -> None:
        """Removes what is left of the run's messages, of any generation; there may be none.

        Raises:
            WireError: the store cannot be reached.
        """


#: Makes channels over several servers.
_SPREAD = "dayfly.wire.channels.spread:SpreadFactory"


class ChannelKind(ABC):
    """One kind of channel: a class in `kinds`, and an entry of `_BUILT_IN` in `channels`.

    Attributes:
        schemes: of its URLs.
        usage: a URL of it, for help texts.
        abilities: of its channels.
        immediate, zero_copy: as of `Channel`.
        stores: stores of the catalogue that it stands for, as patterns of their names.
        factory_path: its `ChannelFactory`, as `module:Class`, which takes no arguments. It is
            imported at its first use: moving messages needs torch, which takes a second to import,
            and plans do without.
    """

    schemes: ClassVar[tuple[str, ...]]
    usage: ClassVar[str]
    abilities: ClassVar[Abilities]
    immediate: ClassVar[bool] = False
    zero_copy: ClassVar[bool] = False
    stores: ClassVar[tuple[str, ...]] = ()
    factory_path: ClassVar[str]

    @abstractmethod
    def check(self, url: str) -> None:
        """Checks a URL of this kind, without connecting to anything.

        Raises:
            RequestError: it is none, or needs a package that is not installed; in one sentence.
        """

    def factory(self) -> ChannelFactory:
        """Returns the factory of its channels, imported by `factory_path`."""
        made: ChannelFactory = resolve_name(self.factory_path)()
        return made

    def servers(self, url: str) -> tuple[str, ...]:
        """Returns the URLs of the servers that share the messages, each a channel of this kind."""
        return (url,)

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        """As `ChannelFactory.create`."""
        return self._factory_of(site.url).create(site, spec)

    def open(self, site: Site, reader: int) -> Channel:
        """As `ChannelFactory.open`."""
        return self._factory_of(site.url).open(site, reader)

    def remove(self, site: Site) -> None:
        """As `ChannelFactory.remove`."""
        self._factory_of(site.url).remove(site)

    def _factory_of(self, url: str) -> ChannelFactory:
        servers = self.servers(url)
        if len(servers) == 1:
            return self.factory()
        made: ChannelFactory = resolve_name(_SPREAD)(self.factory(), servers)
        return made

    def carries(self, store: str) -> bool:
        """Whether it stands for a store of the catalogue, or for several servers `NAME:COUNT`."""
        name = store.partition(":")[0]
        return any(fnmatchcase(name, pattern) for pattern in self.stores)

    def cost(self, nbytes: int) -> MessageCost:
        """Returns what a message of so many payload bytes costs: by default a request each way."""
        return one_request(nbytes)

    @property
    def message(self) -> Callable[[int], MessageCost]:
        """`cost`, or `one_request` itself, which need not be asked for each size."""
        return one_request if type(self).cost is ChannelKind.cost else self.cost

    def priced_as(self, url: str) -> str | None:
        """Returns the store of the catalogue whose prices requests have; None: they are free."""
        return None

    def room(self, spec: ChannelSpec) -> Room:
        """Returns what the log of a channel made for `spec` holds.

        Raises:
            WireError: it is too small.
        """
        return Room(nbytes=spec.budget_bytes)

    def two_at_once(self, url: str) -> bool:
        """Returns whether a run can have two channels there at once, of two generations."""
        return True

    def directory(self, url: str) -> Path | None:
        """Returns where on this machine the messages are kept; None: they are not."""
        return None
