"""What a kind of channel tells of itself, and how one of it is made, opened and removed.

coordinator   check the URL -> create -> ... -> destroy, close
worker                          open  -> ... -> close
later         remove: what a coordinator that was killed has left
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dayfly.wire.channels.abilities import Abilities, Cost

if TYPE_CHECKING:
    from dayfly.wire.authentication import Authenticator
    from dayfly.wire.channels.base import Channel, Namespace
    from dayfly.wire.stores.base import Store


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
class Plan:
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


class Ends(ABC):
    """How channels of one kind are made, opened and removed: beside the channel itself."""

    @abstractmethod
    def create(self, site: Site, plan: Plan) -> Channel:
        """Makes a channel and opens the coordinator's end of it.

        Raises:
            WireError: it cannot be made (names where, and what to do), or is there already.
        """

    @abstractmethod
    def open(self, site: Site, reader: int) -> Channel:
        """Opens a channel that was made, for one reader (a rank). Raises WireError."""

    @abstractmethod
    def remove(self, site: Site) -> None:
        """Removes what is left of the run's messages, of any generation; there may be none.

        Raises:
            WireError: the store cannot be reached.
        """


class ChannelKind(ABC):
    """One kind of channel: a file in `kinds`, and an entry of `_BUILT_IN` in `channels`.

    Attributes:
        schemes: of its URLs.
        usage: a URL of it, for help texts.
        abilities: of its channels.
        immediate: as of `Channel`.
    """

    schemes: ClassVar[tuple[str, ...]]
    usage: ClassVar[str]
    abilities: ClassVar[Abilities]
    immediate: ClassVar[bool] = False

    @abstractmethod
    def check(self, url: str) -> None:
        """Checks a URL of this kind, without connecting to anything.

        Raises:
            RequestError: it is none, or needs a package that is not installed; in one sentence.
        """

    @abstractmethod
    def ends(self) -> Ends:
        """Returns what makes and opens its channels.

        It is imported when somebody asks for it: that takes a second, as moving messages needs
        torch, and plans do without.
        """

    def create(self, site: Site, plan: Plan) -> Channel:
        """As `Ends.create`."""
        return self.ends().create(site, plan)

    def open(self, site: Site, reader: int) -> Channel:
        """As `Ends.open`."""
        return self.ends().open(site, reader)

    def remove(self, site: Site) -> None:
        """As `Ends.remove`."""
        self.ends().remove(site)

    @abstractmethod
    def cost(self, nbytes: int) -> Cost:
        """Returns what a message of so many payload bytes costs."""

    def priced_as(self, url: str) -> str | None:
        """Returns the store of the catalogue whose prices requests have; None: they are free."""
        return None

    def room(self, plan: Plan) -> Room:
        """Returns what the log of a channel made for `plan` holds.

        Raises:
            WireError: it is too small.
        """
        return Room(nbytes=plan.budget_bytes)

    def directory(self, url: str) -> Path | None:
        """Returns where on this machine the messages are kept; None: they are not."""
        return None
