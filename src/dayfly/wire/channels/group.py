"""A channel as the members of one group see it: their own ranks and their own names.

    member 1 of a group of ranks 2, 5     all-reduce-part of step 7 from 1 to 0
    the channel                           g4c1d09a2-all-reduce-part of step 7 from 5 to 2

Members of a process group may leave, and the puts of its collectives wait for room
(`MembersChannel`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from dayfly.errors import NoRoom, WaitTimeout, WireError
from dayfly.wire.channels.base import Channel, Messages
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, Key
from dayfly.wire.message import Header

Result = TypeVar("Result")


class GroupChannel(Messages):
    """The channel of a group, over the world's, which stays open.

    Where messages go from worker to worker, a sender keeps what is for everyone until all ranks
    have read it. So what is for everyone in a smaller group is sent to each of its members.

    Args:
        name: the group's, such as `s1`; it goes before the names of operations.
        ranks: in the world, of each member.
        member: this one.
        whole_world: whether all ranks are members.
    """

    def __init__(
        self,
        world: Channel,
        name: str,
        ranks: Sequence[int],
        member: int,
        *,
        whole_world: bool,
    ) -> None:
        self.abilities = world.abilities
        self.immediate = world.immediate
        self.zero_copy = world.zero_copy
        self.traffic = world.traffic
        self._world = world
        self._prefix = f"{name}-"
        self._ranks = tuple(ranks)
        self._member = member
        self._one_each = world.abilities.direct and not whole_world
        self._members = {rank: member for member, rank in enumerate(ranks)}

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        won = [self._put(there, header, payload) for there in self._sent(key)]
        return all(won)

    def _put(self, there: Key, header: Header, payload: memoryview) -> bool:
        return self._world.put(there, replace(header, operation=there.operation), payload)

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        return self._read(key, lambda: self._world.get(self._there(key), into, timeout_s))

    def fetch(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        there = self._there(key)
        wanted = Header(there.operation, expected.dtype, expected.shape)
        return self._read(key, lambda: self._world.fetch(there, wanted, timeout_s))

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        return self._read(key, lambda: self._world.get_bytes(self._there(key), timeout_s))

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        asked = {there: key for key in keys for there in self._sent(key)}
        return frozenset(asked[there] for there in self._world.stored(asked))

    def waiting(self, destination: int) -> Sequence[Key]:
        """As `Messages.waiting`, of the group's own messages."""
        rank = destination if destination < 0 else self._ranks[destination]
        here = (self._here(key) for key in self._world.waiting(rank))
        return sorted(key for key in here if key is not None)

    def drop(self, keys: Iterable[Key]) -> None:
        self._world.drop([there for key in keys for there in self._sent(key)])

    def copies(self, key: Key) -> int:
        return sum(self._world.copies(there) for there in self._sent(key))

    def wake(self) -> None:
        self._world.wake()

    def _read(self, key: Key, read: Callable[[], Result]) -> Result:
        """What all reading goes through; errors name operations as members know them."""
        try:
            return read()
        except WaitTimeout:
            raise
        except WireError as error:
            raise WireError(str(error).replace(self._prefix, "")) from error

    def _sent(self, key: Key) -> list[Key]:
        """The keys in the world's channel of what this member sends, or has to read."""
        if self._one_each and key.destination == EVERYONE and key.source == self._member:
            others = [member for member in range(len(self._ranks)) if member != self._member]
            return [self._there(replace(key, destination=member)) for member in others]
        return [self._there(key)]

    def _there(self, key: Key) -> Key:
        """The key in the world's channel of what this member has to read."""
        if self._one_each and key.destination == EVERYONE:
            key = replace(key, destination=self._member)
        return Key(
            key.step,
            self._prefix + key.operation,
            self._rank(key.source),
            self._rank(key.destination),
        )

    def _rank(self, party: int) -> int:
        return party if party < 0 else self._ranks[party]

    def _here(self, key: Key) -> Key | None:
        """The group's key of one in the world's channel; None if it is none of its messages."""
        ours = key.operation.startswith(self._prefix) and key.source in self._members
        if not ours:
            return None
        destination = self._members.get(key.destination, key.destination)
        operation = key.operation.removeprefix(self._prefix)
        return Key(key.step, operation, self._members[key.source], destination)


#: Longest pause between two looks for room in a channel, in seconds.
_LOOK_FOR_ROOM_S = 0.05


#: Pauses between two looks whether a member that is waited for has left, in seconds.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.5, 10.0


def left_key(rank: int) -> Key:
    """The message by which a rank of the world says that nothing more will come from it.

    It lies with the coordinator, so that its sender need not wait until it is read.
    """
    return Key(FOREVER, "left", rank, COORDINATOR)


def group_name(name: str, ranks: Sequence[int], incarnation: int) -> str:
    """A short name that all members make alike: `g` and 8 hexadecimal digits.

    Args:
        incarnation: how many groups of this name and these ranks there were before in this process.
    """
    text = f"{name}/{','.join(map(str, ranks))}/{incarnation}"
    return f"g{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class MembersChannel(GroupChannel):
    """The channel of a group of processes, any of which may leave; see `GroupChannel`.

    Args:
        world, name, ranks, member, whole_world: as of `GroupChannel`.
        check: called while a put waits for room, as those of collectives do, whose lanes are read
            each by itself; may raise. None: a put does not wait, and raises NoRoom.
        timeout_s: longest wait for room.
    """

    def __init__(
        self,
        world: Channel,
        name: str,
        ranks: Sequence[int],
        member: int,
        *,
        whole_world: bool,
        check: Callable[[], None] | None = None,
        timeout_s: float = 0.0,
    ) -> None:
        super().__init__(world, name, ranks, member, whole_world=whole_world)
        self._check = check
        self._timeout_s = timeout_s
        self._gone: set[int] = set()
        self._looks: dict[int, tuple[float, float]] = {}

    def _put(self, there: Key, header: Header, payload: memoryview) -> bool:
        began, pause_s = time.monotonic(), 0.001
        while True:
            try:
                return super()._put(there, header, payload)
            except NoRoom as error:
                if self._check is None:
                    raise
                self._check()
                if time.monotonic() - began > self._timeout_s:
                    named = str(there).replace(self._prefix, "")
                    raise WireError(
                        f"{named}: no room came within {self._timeout_s:g} s, as the members do "
                        f"not read what was sent before, or it is too little: {error}"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_FOR_ROOM_S)

    def _read(self, key: Key, read: Callable[[], Result]) -> Result:
        """Raises WireError if the source has left without sending the message."""
        try:
            return super()._read(key, read)
        except WaitTimeout:
            # What it sent before it left was there before it said so, so this read had found it.
            if key.source in self._gone:
                rank = self._rank(key.source)
                raise WireError(
                    f"nothing more comes from rank {rank}: its process has ended, or left the "
                    "group, while others still wait for it; do all ranks take as many steps?"
                ) from None
            self._look_for(key.source)
            raise

    def _look_for(self, source: int) -> None:
        """Now and then, see whether a member that is waited for is still there."""
        now = time.monotonic()
        due, pause_s = self._looks.get(source, (now + _FIRST_LOOK_S, _FIRST_LOOK_S))
        if now >= due:
            if self._world.told(left_key(self._rank(source))):
                self._gone.add(source)
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
            due = now + pause_s
        self._looks[source] = due, pause_s
