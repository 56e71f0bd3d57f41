"""A process's end of the wire, from which its process groups are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dayfly.errors import DayflyError
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.group import left_key
from dayfly.wire.process_group import functional
from dayfly.wire.process_group.group import DayflyGroup
from dayfly.wire.process_group.member import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A process's end of the wire.

    Attributes:
        channel: open, shaped if the function's link is limited; its ranks are the world's.
        wait_timeout_s: longest wait for a message, whatever timeout a group asks for; None: the
            group's timeout alone counts.
    """

    channel: Channel
    rank: int
    world_size: int
    wait_timeout_s: float | None = None


class _Joined:
    """An endpoint, and the groups that were made from it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.groups: list[DayflyGroup] = []
        self.made: Counter[tuple[str, tuple[int, ...]]] = Counter()


_joined: list[_Joined] = []


def join(endpoint: Endpoint) -> None:
    """Make it this process's, from which groups are made. Raises ValueError if it has one."""
    if _joined:
        raise ValueError("this process has an endpoint already")
    _joined.append(_Joined(endpoint))


def leave() -> None:
    """End all groups, tell the others, and forget the endpoint, if there is one.

    Its owner closes the channel.
    """
    while _joined:
        here = _joined.pop()
        for group in here.groups:
            group.shutdown()
        with suppress(DayflyError):  # the store may be gone
            here.endpoint.channel.tell(left_key(here.endpoint.rank))


def joined() -> Endpoint | None:
    """This process's endpoint, if it has joined one."""
    return _joined[0].endpoint if _joined else None


def new_group(name: str, ranks: Sequence[int], timeout_s: float) -> DayflyGroup:
    """A group of some ranks of the joined endpoint's world; all of them make it alike.

    Args:
        name: torch's.
        timeout_s: how long to wait for a message.
    """
    functional.register()
    here = _joined[0]
    known = name, tuple(ranks)
    here.made[known] += 1
    limit_s, endpoint = here.endpoint.wait_timeout_s, here.endpoint
    member = Member(
        endpoint.channel,
        name,
        ranks,
        ranks.index(endpoint.rank),
        whole_world=len(ranks) == endpoint.world_size,
        incarnation=here.made[known],
        timeout_s=timeout_s if limit_s is None else min(timeout_s, limit_s),
    )
    here.groups = [one for one in here.groups if not (one.closed and one.tidy())]
    group = DayflyGroup(member)
    here.groups.append(group)
    return group
