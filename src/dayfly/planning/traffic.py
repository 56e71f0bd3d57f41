"""What a rank's streams put into the channel and get out of it, as channels count it."""

from __future__ import annotations

from collections.abc import Iterable

from dayfly.catalogue.metering import Moved
from dayfly.planning.channels import Means
from dayfly.planning.prediction import Volume
from dayfly.wire.channels.kind import Cost
from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Op
from dayfly.wire.streams import Rank, Stream


def moved_by(rank: Rank, means: Means) -> Moved:
    """Of all its streams, headers included."""
    puts = gets = up = down = 0
    costs: dict[int, Cost] = {}  # by size: most messages have one of few
    for stream in rank.streams:
        if stream.name is None:
            continue
        for op in stream.plan.schedule:
            if op.name is None:
                continue
            nbytes = _nbytes(stream, op)
            cost = costs.get(nbytes)
            if cost is None:
                cost = costs[nbytes] = means.kind.cost(nbytes)
            if op.kind is Kind.PUT:
                copies, alone = _copies(stream, op, means)
                puts += cost.puts * (1 if alone else copies)
                up += cost.bytes_up * copies
            else:
                gets += cost.gets
                down += cost.bytes_down
    return Moved(puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down)


def times(moved: Moved, count: int) -> Moved:
    """The same, so many times."""
    return Moved(
        puts=moved.puts * count,
        gets=moved.gets * count,
        requests=moved.requests * count,
        bytes_up=moved.bytes_up * count,
        bytes_down=moved.bytes_down * count,
    )


def together(several: Iterable[Moved]) -> Moved:
    """The sum."""
    found = list(several)
    return Moved(
        puts=sum(one.puts for one in found),
        gets=sum(one.gets for one in found),
        requests=sum(one.requests for one in found),
        bytes_up=sum(one.bytes_up for one in found),
        bytes_down=sum(one.bytes_down for one in found),
    )


def volume(several: Iterable[Moved], parts: int = 1) -> Volume:
    """Of all workers; of one of so many equal parts."""
    whole = together(several)
    return Volume(
        puts=round(whole.puts / parts),
        gets=round(whole.gets / parts),
        bytes_up=round(whole.bytes_up / parts),
        bytes_down=round(whole.bytes_down / parts),
    )


def _nbytes(stream: Stream, op: Op) -> int:
    length = len(op.span)
    return length * stream.itemsize if stream.travelling is None else stream.travelling(length)


def _copies(stream: Stream, op: Op, means: Means) -> tuple[int, bool]:
    """How often a message leaves its sender, and whether that is one put.

    Directly to all ranks it is one; to those of a smaller group, one each.
    """
    assert op.name is not None, f"{op} has no message"
    if not means.direct or op.name.destination != EVERYONE:
        return 1, True
    return stream.members - 1, not stream.group
