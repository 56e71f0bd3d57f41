"""What closed forms of steps are made of: sums, when buckets can begin, passes, and messages."""

from __future__ import annotations

from collections.abc import Sequence

from dayfly.batches import share
from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning.configuration import ITEM_BYTES, Configuration, Flat
from dayfly.planning.function_times import cut_backward, passed
from dayfly.planning.profile import SizeProfile
from dayfly.planning.ranks import ChannelModel, travelling_bytes
from dayfly.planning.timing import Steps
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.cost import AllReduce, Cost
from dayfly.wire.collectives.virtual_cost import cost_of


def sum_of(
    algorithm: str,
    aggregators: int | None,
    members: int,
    length: int,
    means: ChannelModel,
    size: SizeProfile,
    codec: str = "none",
    itemsize: int = ITEM_BYTES,
    groups: int = 1,
    first: int = 0,
    virtual_workers: int | None = None,
) -> Cost:
    """Returns what the all-reduce of `length` elements takes, on functions of one size.

    Raises:
        RequestError: the algorithm is not known, or states no cost and has too many members.
    """
    asked = asked_of(members, length, means, size, codec, itemsize, groups, first)
    how = collective(algorithm, aggregators, members, virtual_workers)
    return cost_of(algorithm, how, asked)


def asked_of(
    members: int,
    length: int,
    means: ChannelModel,
    size: SizeProfile,
    codec: str = "none",
    itemsize: int = ITEM_BYTES,
    groups: int = 1,
    first: int = 0,
) -> AllReduce:
    """Returns the all-reduce of `length` elements on functions of one size, as costs are asked."""
    part_bytes = sum_bytes = None
    if codec != "none":
        part_bytes, sum_bytes = (
            travelling_bytes(codec, members, length, total) for total in (False, True)
        )
    return AllReduce(
        members=members,
        length=length,
        link=means.link(size),
        itemsize=itemsize,
        travelling_bytes=part_bytes,
        sum_bytes=sum_bytes,
        groups=groups,
        first=first,
    )


def buckets_whole_s(size: SizeProfile, buffer: Flat, compute_s: float, samples: int) -> list[float]:
    """Returns when each bucket is whole, of a worker that has computed after so many seconds.

    Args:
        size: of its function.
        buffer: that it fills.
        compute_s: seconds of its passes.
        samples: of the last one.
    """
    pieces = cut_backward(size.backward, samples, buffer.whole_after)
    return begins_s(compute_s, pieces, len(buffer.buckets))


def begins_s(compute_s: float, pieces: Sequence[float], buckets: int) -> list[float]:
    """Returns when each bucket is whole: a piece of the backward pass after the one before it."""
    return [compute_s - sum(pieces[number + 1 :]) for number in range(buckets)]


def summed_s(begin: Sequence[float], sums: Sequence[Cost]) -> float:
    """When all buckets are summed: their bytes go one after another over one link, while one's
    latencies are another's transfers, and one's uploads another's downloads.

    Args:
        begin: when each bucket is whole.
        sums: of each.
    """
    reduced_s = later_s = 0.0
    for at_s, one in zip(reversed(begin), reversed(sums), strict=True):
        reduced_s = max(reduced_s, at_s + one.seconds, at_s + one.carried_s + later_s)
        later_s += one.busiest_s
    return reduced_s


def passes_s(size: SizeProfile, c: Configuration, mine: int) -> float:
    """Returns the seconds in which a worker computes so many samples of its own."""
    micros = [len(share(mine, part, c.pieces)) for part in range(c.pieces)]
    return sum(
        size.data(n) + passed(size.forward, n) + passed(size.backward, n) for n in micros if n
    )


def steps_of_parts(compute_s: float, reduced_s: float, overhead_s: float) -> Steps:
    """Returns a step that has its sums after so many seconds, and then has overhead."""
    return Steps(
        step_s=reduced_s + overhead_s,
        breakdown={
            "compute": compute_s,
            "overhead": overhead_s,
            "transfer": reduced_s - compute_s,
            "sync": 0.0,
        },
    )


def shared_out(sums: Sequence[Cost], members: int) -> list[StoreTraffic]:
    """Each member's part of what all move, as equal as can be."""
    wholes = [
        sum(getattr(one, what) for one in sums)
        for what in ("puts", "gets", "bytes_up", "bytes_down")
    ]
    found = []
    for member in range(members):
        puts, gets, up, down = (len(share(whole, member, members)) for whole in wholes)
        found.append(
            StoreTraffic(puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down)
        )
    return found
