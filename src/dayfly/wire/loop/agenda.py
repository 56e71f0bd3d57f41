"""The events to come in virtual time: a binary heap in an array, by moment, then by number.

A line or a processor has one entry at most, and `State.places` says where it is: where its next
event is to be at another moment, the entry moves.
"""

from __future__ import annotations

from typing import Any

from dayfly.wire.loop.records import CARRIED, COMPUTED, NONE, State


def push(s: State, at_s: float, what: int, which: int, of: int) -> None:
    """Adds an event; that of a line or a processor takes the place of the one that it had."""
    s.run[0].pushed += 1
    at, place = NONE, _place(s, what, which)
    if place != NONE:
        at = s.places[place]
    if at == NONE:
        at = s.run[0].events
        s.run[0].events += 1
    # Those of the same moment stay before it: their numbers are less.
    while at and s.events[(at - 1) // 2].at_s > at_s:
        _move(s, at, s.events[(at - 1) // 2])
        at = (at - 1) // 2
    _sink(s, at, at_s, s.run[0].pushed, what, which, of)


def pop(s: State) -> None:
    """Removes the first event."""
    place = _place(s, s.events[0].what, s.events[0].which)
    if place != NONE:
        s.places[place] = NONE
    s.run[0].events -= 1
    if s.run[0].events:
        last = s.events[s.run[0].events]
        _sink(s, 0, last.at_s, last.number, last.what, last.which, last.of)


def _place(s: State, what: int, which: int) -> int:
    if what == CARRIED:
        return which
    return len(s.lines) + which if what == COMPUTED else NONE


def _sink(s: State, at: int, at_s: float, number: int, what: int, which: int, of: int) -> None:
    """Puts an entry at this position, or further down, behind all that come before it."""
    while 2 * at + 1 < s.run[0].events:
        below = 2 * at + 1
        if below + 1 < s.run[0].events:
            one, other = s.events[below], s.events[below + 1]
            if other.at_s < one.at_s or (other.at_s == one.at_s and other.number < one.number):
                below += 1
        first = s.events[below]
        if at_s < first.at_s or (at_s == first.at_s and number < first.number):
            break
        _move(s, at, first)
        at = below
    _put(s, at, at_s, number, what, which, of)


def _move(s: State, at: int, entry: Any) -> None:
    _put(s, at, entry.at_s, entry.number, entry.what, entry.which, entry.of)


def _put(s: State, at: int, at_s: float, number: int, what: int, which: int, of: int) -> None:
    s.events[at].at_s, s.events[at].number = at_s, number
    s.events[at].what, s.events[at].which, s.events[at].of = what, which, of
    place = _place(s, what, which)
    if place != NONE:
        s.places[place] = at
