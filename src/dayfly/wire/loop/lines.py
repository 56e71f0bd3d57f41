"""Lines of virtual time, one number after another: `streams.Line`, to the bit."""

from __future__ import annotations

import math

from dayfly.wire.loop.agenda import push
from dayfly.wire.loop.records import CARRIED, State

_NEVER = math.inf


def wait_for(s: State, line: int, at_s: float, op: int, rest: int) -> None:
    """For a turn, with so many pieces left."""
    at = s.lines[line].room + s.lines[line].asked
    s.asked[at].at_s, s.asked[at].op, s.asked[at].rest = at_s, op, rest
    s.lines[line].asked += 1


def _first_asked(s: State, line: int) -> int:
    """Who asked first; of one moment, the first operation."""
    begin_, count = s.lines[line].room, s.lines[line].asked
    best = begin_
    for at in range(begin_ + 1, begin_ + count):
        if s.asked[at].at_s < s.asked[best].at_s or (
            s.asked[at].at_s == s.asked[best].at_s and s.asked[at].op < s.asked[best].op
        ):
            best = at
    return best


def take_turn(s: State, line: int) -> bool:
    """Whoever asked first has the line; returns whether it is its first piece."""
    at = _first_asked(s, line)
    op, rest = s.asked[at].op, s.asked[at].rest
    s.lines[line].asked -= 1
    last = s.lines[line].room + s.lines[line].asked
    s.asked[at].at_s, s.asked[at].op = s.asked[last].at_s, s.asked[last].op
    s.asked[at].rest = s.asked[last].rest
    s.lines[line].carries, s.lines[line].rest, s.lines[line].busy = op, rest - 1, 1
    return rest == s.ops[op].pieces


def go_on(s: State, line: int) -> float:
    """Carries pieces from now on, until a message ends or the next piece is another message's.

    Returns the moment, in seconds, at which the last of these pieces ends.
    """
    s.lines[line].was_at_s = s.run[0].now_s
    s.lines[line].was_carries, s.lines[line].was_rest = s.lines[line].carries, s.lines[line].rest
    s.lines[line].was_asked = s.lines[line].asked
    for at in range(s.lines[line].room, s.lines[line].room + s.lines[line].asked):
        s.before[at].at_s, s.before[at].op = s.asked[at].at_s, s.asked[at].op
        s.before[at].rest = s.asked[at].rest
    return _turns(s, line, s.run[0].now_s, _NEVER)


def back_to(s: State, line: int) -> float:
    """To the piece that is under way at this moment; returns when it ends."""
    s.lines[line].carries, s.lines[line].rest = s.lines[line].was_carries, s.lines[line].was_rest
    s.lines[line].asked = s.lines[line].was_asked
    for at in range(s.lines[line].room, s.lines[line].room + s.lines[line].asked):
        s.asked[at].at_s, s.asked[at].op = s.before[at].at_s, s.before[at].op
        s.asked[at].rest = s.before[at].rest
    ends_s = _turns(s, line, s.lines[line].was_at_s, s.run[0].now_s)
    s.lines[line].last_s = -_NEVER
    return ends_s


def _turns(s: State, line: int, begins_s: float, until_s: float) -> float:
    op, rest = s.lines[line].carries, s.lines[line].rest
    s.lines[line].last_s = -_NEVER
    ends_s = begins_s + s.ops[op].piece_s
    while rest and ends_s < until_s:
        if s.lines[line].asked:
            at = _first_asked(s, line)
            at_s, other = s.asked[at].at_s, s.asked[at].op
            if at_s < ends_s or (at_s == ends_s and other < op):
                others = s.asked[at].rest
                if others == s.ops[other].pieces:  # none of its pieces was carried
                    break
                s.asked[at].at_s, s.asked[at].op, s.asked[at].rest = ends_s, op, rest
                op, rest = other, others
        rest -= 1
        s.lines[line].last_s = ends_s
        ends_s += s.ops[op].piece_s
    s.lines[line].carries, s.lines[line].rest = op, rest
    return ends_s


def look_at(s: State, line: int, at_s: float) -> None:
    """Then, and not when it was to be looked at before."""
    push(s, at_s, CARRIED, line, 0)
