"""What closed forms of steps are made of: sums, when buckets are summed, passes, messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dayfly.batches import share
from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning.affine import Affine
from dayfly.planning.bursts import Bursts
from dayfly.planning.configuration import ITEM_BYTES, Configuration, Flat
from dayfly.planning.function_times import cut_backward, passed
from dayfly.planning.profile import SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.summed import Summed
from dayfly.planning.timing import Steps
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.cost import AllReduce, Cost
from dayfly.wire.collectives.link import LinkModel
from dayfly.wire.collectives.virtual_cost import cost_of
from dayfly.wire.pipelines.step import Layout
from dayfly.wire.streams import HostLink

#: Of `Cost`: what all members move.
MOVED = ("puts", "gets", "bytes_up", "bytes_down")


def sum_of(
    algorithm: str,
    aggregators: int | None,
    asked: AllReduce,
    virtual_workers: int | None = None,
) -> Cost:
    """Returns what an all-reduce takes.

    Args:
        algorithm: name of the collective.
        aggregators: of k-reduce.
        asked: who sums what over which link.
        virtual_workers: of the run.

    Raises:
        RequestError: the algorithm is not known, or states no cost and has too many members.
    """
    how = collective(algorithm, aggregators, asked.members, virtual_workers)
    return cost_of(algorithm, how, asked)


def asked_of(
    members: int,
    summed: Summed,
    means: ChannelModel,
    size: SizeProfile,
    itemsize: int = ITEM_BYTES,
    groups: int = 1,
    first: int = 0,
) -> AllReduce:
    """Returns the all-reduce whose cost a collective is to state, on functions of one size."""
    part_bytes = sum_bytes = None
    if summed.compress != "none":
        part_bytes, sum_bytes = (
            summed.travelling_bytes(members, total=total) for total in (False, True)
        )
    return AllReduce(
        members=members,
        length=summed.length,
        link=means.link(size),
        itemsize=itemsize,
        travelling_bytes=part_bytes,
        sum_bytes=sum_bytes,
        groups=groups,
        first=first,
    )


def whole_s_of(
    backward: Sequence[Affine], buffer: Flat, compute_s: float, samples: int
) -> list[float]:
    """Returns when each bucket is whole: a piece of the backward pass after the one before it.

    Args:
        backward: seconds of each layer's backward pass, by samples.
        buffer: that the worker fills.
        compute_s: when it has computed.
        samples: of its last pass; 0: it has none.
    """
    if not samples:
        return [compute_s] * len(buffer.buckets)
    pieces = cut_backward(backward, samples, buffer.whole_after)
    return [compute_s - sum(pieces[number + 1 :]) for number in range(len(buffer.buckets))]


def all_reduced_s(begin: Sequence[float], sums: Sequence[Cost]) -> float:
    """When all buckets are summed: their bytes go one after another over one link, while one's
    latencies are another's transfers, and one's uploads another's downloads.

    Args:
        begin: when each bucket is whole.
        sums: of each.
    """
    reduced_s = later_s = 0.0
    for whole_s, one in zip(reversed(begin), reversed(sums), strict=True):
        reduced_s = max(reduced_s, whole_s + one.seconds, whole_s + one.carried_s + later_s)
        later_s += one.busiest_s
    return reduced_s


def _carried_s(begun: Sequence[tuple[float, float]]) -> float:
    """When one link has carried all: when each may begin, rising, and how long it takes; 0: there
    is nothing, as of stages that a lone replica has."""
    return max(
        (
            begin_s + sum(each_s for _, each_s in begun[number:])
            for number, (begin_s, _) in enumerate(begun)
        ),
        default=0.0,
    )


def hosts_s(
    host: HostLink,
    layout: Layout,
    begin: Sequence[Sequence[float]],
    sums: Sequence[Sequence[Cost]],
) -> float:
    """Returns the seconds after which each host's link has carried the sums of all stages on it.

    The sums of one stage take as long as if it were alone on the host. Those of several stages
    share the link, so their times on it are added.
    """
    workers, functions = layout.world_size, host.functions
    on_hosts = {
        tuple(sorted(Counter(layout.stage_rank(rank).stage for rank in range(first, last)).items()))
        for first in range(0, workers, functions)
        for last in [min(workers, first + functions)]
    }

    def link_s(one: Cost, stage: int, count: int) -> float:
        moved = (one.bytes_up + one.bytes_down) * count / layout.replicas_of(stage)
        return min(one.carried_s, moved / host.bytes_per_s)

    return max(
        _carried_s(
            sorted(
                (whole_s, link_s(one, stage, count))
                for stage, count in on_host
                for whole_s, one in zip(begin[stage], sums[stage], strict=True)
            )
        )
        for on_host in on_hosts
    )


def passes_s(size: SizeProfile, c: Configuration, mine: int) -> float:
    """Returns the seconds in which a worker computes so many samples of its own."""
    micros = [len(share(mine, part, c.pieces)) for part in range(c.pieces)]
    return sum(
        size.data(n) + passed(size.forward, n) + passed(size.backward, n) for n in micros if n
    )


def steps_of_parts(
    compute_s: float,
    reduced_s: float,
    overhead_s: float,
    bursts: Bursts,
    link: LinkModel,
    sums: Sequence[Cost],
    members: int,
) -> Steps:
    """Returns a step: passes, waiting for its all-reduces, then overhead.

    Args:
        compute_s: of its passes.
        reduced_s: from its beginning until its all-reduces are done.
        overhead_s: of the optimizer's step and what surrounds it, which come then.
        bursts: of the workers; times before are those of a share that is spread evenly.
        link: of the workers.
        sums: that they make.
        members: workers that share them.
    """
    burst_s, begin_s = compute_s + overhead_s, begun_s(link, sums)
    step_s = bursts.step_s(
        reduced_s + overhead_s,
        burst_s,
        min(begin_s, reduced_s - compute_s),
        burst_s + begin_s + handled_s(link, sums, members),
    )
    left = 1 - bursts.saved * min(1.0, bursts.period_s / burst_s) if burst_s else 1.0
    return Steps(
        step_s=step_s,
        breakdown={
            "compute": left * compute_s,
            "overhead": left * overhead_s,
            "transfer": max(0.0, step_s - left * burst_s),
            "sync": 0.0,
        },
    )


def begun_s(link: LinkModel, sums: Sequence[Cost]) -> float:
    """Returns the seconds that a member's CPU takes to begin these all-reduces; 0 for a member
    without others, as nothing is sent."""
    return link.begin_s * sum(one.puts + one.gets > 0 for one in sums)


def handled_s(link: LinkModel, sums: Sequence[Cost], members: int) -> float:
    """Returns the seconds that the CPU of each member takes for its part of the messages of these
    all-reduces."""
    whole = (sum(getattr(one, what) for one in sums) for what in MOVED)
    return link.handled_s(*(of / members for of in whole))


def shared_among(sums: Sequence[Cost], members: int) -> list[StoreTraffic]:
    """Returns each member's part of the requests and bytes of some sums, as equal as can be.

    Args:
        sums: what each costs all members together.
        members: how many there are.
    """
    wholes = [sum(getattr(one, what) for one in sums) for what in MOVED]
    found = []
    for member in range(members):
        puts, gets, up, down = (len(share(whole, member, members)) for whole in wholes)
        found.append(
            StoreTraffic(puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down)
        )
    return found
