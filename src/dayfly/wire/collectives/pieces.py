"""Rows of messages that share a line in pieces: when the first of them is through.

Messages that take longer than a piece (`Direction.piece_s`) take turns, so those that are under way
together end together, and what waits for the first of them waits for nearly all:

    message by message   |1 1 1 1|2 2 2 2|3 3 3 3|       the first after c = 4 pieces
    in pieces            |1|2|3|1|2|3|1|2|3|1|2|3|       after c (w (p - 1) + 1) / p = 10

c: time of a message alone, p: its pieces, w: messages under way at once.

A row whose messages come a piece apart, as from such a row before it, has its first one alone with
the line at first. Then each of its pieces waits for twice as many others as the one before, until
all w are there: it takes the sum of min(2^j, w) pieces, j from 0 to p - 1.
"""

from __future__ import annotations

import math

from dayfly.elementwise import by_value, least
from dayfly.wire.collectives.link import DirectionModel
from dayfly.wire.keys import HEADER_BYTES


def pieces_of(line: DirectionModel, nbytes: float) -> int:
    """Returns in how many pieces a message goes; elementwise.

    Args:
        line: that carries it.
        nbytes: payload of the message.
    """
    way = line.direction
    if way.piece_s == math.inf:
        return 1

    def of(size: float) -> int:
        return max(1, math.ceil(way.occupied_s(HEADER_BYTES + size) / line.part / way.piece_s))

    found: int = by_value(of, nbytes)
    return found


def first_s(line: DirectionModel, nbytes: float, count: int, each_s: float) -> float:
    """Returns when the first of a row of messages that begin together is carried; elementwise.

    Args:
        line: that carries them.
        nbytes: payload of each message.
        count: messages.
        each_s: time of a message alone, in seconds.
    """
    pieces, wide = pieces_of(line, nbytes), line.under_way(nbytes, count)
    return each_s * (wide * (pieces - 1) + 1) / pieces


def first_of_late_s(line: DirectionModel, nbytes: float, count: int, each_s: float) -> float:
    """Returns how long the first of a row takes whose messages come a piece apart; elementwise.

    Args:
        line: that carries them.
        nbytes: payload of each message.
        count: messages.
        each_s: time of a message alone, in seconds.
    """
    pieces, wide = pieces_of(line, nbytes), line.under_way(nbytes, count)
    doubling = least(pieces, by_value(lambda many: int(many).bit_length(), wide))
    taken = 2.0**doubling - 1 + wide * (pieces - doubling)
    found: float = each_s * taken / pieces
    return found
