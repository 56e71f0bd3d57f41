"""A process group's channel: a group's whose members may leave, and whose puts wait for room."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from dayfly.errors import NoRoom, WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.group import GroupChannel
from dayfly.wire.keys import COORDINATOR, FOREVER, Key
from dayfly.wire.message import Header

#: Longest pause between two looks for room in a channel, in seconds.
_LOOK_FOR_ROOM_S = 0.05


#: Pauses between two looks whether a member that is waited for has left, in seconds.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.5, 10.0

Result = TypeVar("Result")


def left_key(rank: int) -> Key:
    """The message by which a rank of the world says that nothing more will come from it.

    It lies with the coordinator, so that its sender need not wait until it is read.
    """
    return Key(FOREVER, "left", rank, COORDINATOR)


def group_name(name: str, ranks: Sequence[int], incarnation: int) -> str:
    """A short name that all members make alike: `g` and 8 hexadecimal digits.

    incarnation: how many groups of this name and these ranks there were before in this process.
    """
    text = f"{name}/{','.join(map(str, ranks))}/{incarnation}"
    return f"g{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class MembersChannel(GroupChannel):
    """The channel of a group of processes, any of which may leave; see `GroupChannel`."""

    def __init__(
        self,
        world: Channel,
        name: str,
        ranks: Sequence[int],
        member: int,
        *,
        whole_world: bool,
    ) -> None:
        super().__init__(world, name, ranks, member, whole_world=whole_world)
        self._gone: set[int] = set()
        self._looks: dict[int, tuple[float, float]] = {}

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


class RoomyChannel(MembersChannel):
    """The same for collectives, whose puts wait for room: members read each lane by itself.

    Letters wait for themselves, as they are read in their order. timeout_s: the longest wait.
    check: called while it waits; may raise.
    """

    def __init__(
        self,
        world: Channel,
        name: str,
        ranks: Sequence[int],
        member: int,
        *,
        whole_world: bool,
        timeout_s: float,
        check: Callable[[], None],
    ) -> None:
        super().__init__(world, name, ranks, member, whole_world=whole_world)
        self._timeout_s = timeout_s
        self._check = check

    def _put(self, there: Key, header: Header, payload: memoryview) -> bool:
        began, pause_s = time.monotonic(), 0.001
        while True:
            try:
                return super()._put(there, header, payload)
            except NoRoom as error:
                self._check()
                if time.monotonic() - began > self._timeout_s:
                    named = str(there).replace(self._prefix, "")
                    raise WireError(
                        f"{named}: no room came within {self._timeout_s:g} s, as the members do "
                        f"not read what was sent before, or it is too little: {error}"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_FOR_ROOM_S)
