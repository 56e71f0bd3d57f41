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

    url: as the user gave it, without secrets. rendezvous: a store in which processes that dayfly
    starts, and workers that reach each other directly, leave their addresses. token: of the
    coordinator, see `authentication`. password: of the store. Neither is ever written anywhere.
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

    senders: ranks 0 to senders - 1 send. budget_bytes: bound of its messages, with all that it
    takes to keep them. ahead_bytes: what a rank sends in a step, about.
    """

    senders: int
    budget_bytes: int
    ahead_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a channel of a given budget holds: bytes of messages, and messages of one sender.

    messages: None: any number.
    """

    nbytes: int
    messages: int | None = None


class Ends(ABC):
    """How channels of one kind are made, opened and removed: beside the channel itself."""

    @abstractmethod
    def create(self, site: Site, plan: Plan) -> Channel:
        """Make a channel and open the coordinator's end of it.

        Raises WireError if it cannot be made (naming where, and what to do), or is there already.
        """

    @abstractmethod
    def open(self, site: Site, reader: int) -> Channel:
        """Open a channel that was made, for one reader (a rank). Raises WireError."""

    @abstractmethod
    def remove(self, site: Site) -> None:
        """Remove what is left of the run's messages, of any generation; there may be none.

        Raises WireError if the store cannot be reached.
        """


class ChannelKind(ABC):
    """One kind of channel: a file in `kinds`, and a line in `CHANNELS`.

    schemes: of its URLs. usage: a URL of it, for help texts. abilities: of its channels.
    immediate: as `Channel.immediate`.
    """

    schemes: ClassVar[tuple[str, ...]]
    usage: ClassVar[str]
    abilities: ClassVar[Abilities]
    immediate: ClassVar[bool] = False

    @abstractmethod
    def check(self, url: str) -> None:
        """Raise RequestError, in one sentence, unless the URL is one of this kind.

        Nothing is connected to. What the URL needs and is not installed is refused, too.
        """

    @abstractmethod
    def ends(self) -> Ends:
        """What makes and opens its channels.

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
        """What a message of so many payload bytes costs."""

    def room(self, plan: Plan) -> Room:
        """What the log of a channel made for `plan` holds. Raises WireError if it is too small."""
        return Room(nbytes=plan.budget_bytes)

    def directory(self, url: str) -> Path | None:
        """Where on this machine the messages are kept, if anywhere: for its free space."""
        return None
