"""Successors of all workers that are warm before lifetimes end: whether a run has them, and when.

    lifetime    |start|----------- trains -----------|ends|      |
    successor                               |start, waits|----------- trains ...
                                            '---- ahead -------->'

A lifetime then costs the end in order and no start. The rule is that of `life.generation`.
"""

from __future__ import annotations

from dayfly.planning.configuration import Configuration
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import channel_of
from dayfly.specs.pace import MOST_SHARE, SHORTEST_RENEWED_S, warm_ahead_s


def renews(profile: Profile, c: Configuration) -> bool:
    """Returns whether lifetimes, protocol and channel allow it.

    Args:
        profile: whose channel the run has.
        c: what runs.
    """
    long = c.lifetime_s is not None and c.lifetime_s >= SHORTEST_RENEWED_S
    if not long or c.protocol.hands_over_within:
        return False
    kind = channel_of(profile.channel)
    return "://" not in profile.channel or kind.two_at_once(profile.channel)


def ahead_of(
    profile: Profile, c: Configuration, start_s: float, hears_s: float, end_s: float
) -> float | None:
    """Returns how long before the end of a lifetime successors of all workers start.

    None: there are none, or they would start so early that workers hand over one by one.

    Args:
        profile, c: as of `renews`.
        start_s, hears_s, end_s: as of `specs.pace.warm_ahead_s`.
    """
    if c.lifetime_s is None or not renews(profile, c):
        return None
    found = warm_ahead_s(start_s, hears_s, end_s)
    return found if found < MOST_SHARE * c.lifetime_s else None
