"""Steps of many workers of several kinds, by closed forms: unequal workers of bsp, and both roles
of hybrid asynchronous ones. See `closed_form`.

bsp    a bucket can be summed once the slowest kind has it, and is by the kind whose link takes
       longest
hap    each role has a round of its own (`k_reduce.hybrid_costs`), and the slower sets the pace
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning import data_parallel
from dayfly.planning.bursts import Bursts
from dayfly.planning.closed_sums import (
    all_reduced_s,
    asked_of,
    passes_s,
    shared_among,
    steps_of_parts,
    sum_of,
    whole_s_of,
)
from dayfly.planning.configuration import Configuration, stage_size, step_samples
from dayfly.planning.function_times import pace, paced
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.summed import Summed
from dayfly.planning.timing import Steps
from dayfly.wire.collectives.cost import Cost
from dayfly.wire.collectives.k_reduce import hybrid_costs
from dayfly.wire.collectives.link import LinkModel


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """Workers of one kind, as slow as the slowest of them.

    Attributes:
        size: of their functions.
        link: theirs.
        bursts: how they use their share of the CPU.
        lags: whether they lag.
        compute_s: seconds of their passes.
        begin_s: when each bucket is whole.
        overhead_s: seconds of a step beside passes and sums.
    """

    size: SizeProfile
    link: LinkModel
    bursts: Bursts
    lags: bool
    compute_s: float
    begin_s: Sequence[float]
    overhead_s: float

    @classmethod
    def of(
        cls, profile: Profile, c: Configuration, means: ChannelModel, kind: int, batch: int
    ) -> _Kind:
        """Of so many samples of all workers."""
        size, ranks = stage_size(profile, c, kind), c.kinds[kind]
        size = paced(size, max(pace(size, rank, c.workers, c.pieces) for rank in ranks))
        mine, buffer = step_samples(c, kind, batch), data_parallel.flat_of(profile, c)
        compute_s = passes_s(size, c, mine)
        return cls(
            size=size,
            link=means.link(size),
            bursts=Bursts.of(size, c.workers, profile.shared_cores),
            lags=c.lags(ranks[0]),
            compute_s=compute_s,
            begin_s=whole_s_of(size.backward, buffer, compute_s, -(-mine // c.pieces)),
            overhead_s=size.apply(sum(layer.trained for layer in profile.layers))
            + size.step_s.value,
        )


def many_unequal(
    profile: Profile, c: Configuration, means: ChannelModel, batch: int
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """Returns a step of so many samples, and what each worker moves: an equal part of its role's.

    Args:
        profile: of the job.
        c: of the run, of bsp or hap, with several kinds of workers.
        means: what workers talk through.
        batch: samples of all workers.
    """
    kinds = [_Kind.of(profile, c, means, kind, batch) for kind in range(len(c.kinds))]
    buckets = data_parallel.buckets_of(profile, c)
    if c.protocol.staleness:
        return _hybrid(kinds, c, means, buckets)
    sums = [
        _longest(
            sum_of(
                c.collective,
                c.aggregators,
                asked_of(c.workers, summed, means, one.size),
            )
            for one in kinds
        )
        for summed in buckets
    ]
    return _lock_step(kinds, sums, c.workers), shared_among(sums, c.workers)


def rounds_s(profile: Profile, c: Configuration, batch: int) -> tuple[float, float]:
    """Returns the seconds of a round of an aggregator, and of the slowest worker that lags.

    Args:
        profile: of the job.
        c: of the run, of hap.
        batch: samples of all workers.
    """
    means = ChannelModel.of(profile)
    kinds = [_Kind.of(profile, c, means, kind, batch) for kind in range(len(c.kinds))]
    found = _Roles.of(kinds, c, means, data_parallel.buckets_of(profile, c))
    return found.steps.step_s, max(found.others_s)


def _longest(costs: object) -> Cost:
    return max(costs, key=lambda one: one.seconds)  # type: ignore[call-overload,no-any-return]


def _lock_step(kinds: Sequence[_Kind], sums: Sequence[Cost], members: int) -> Steps:
    """Of workers that all wait for each other, and so for those that compute longest."""
    begin_s = [max(at) for at in zip(*(one.begin_s for one in kinds), strict=True)]
    compute_s = max(one.compute_s for one in kinds)
    slowest = max(kinds, key=lambda one: one.compute_s + one.overhead_s)
    return steps_of_parts(
        compute_s,
        max(compute_s, all_reduced_s(begin_s, sums)),
        max(one.overhead_s for one in kinds),
        slowest.bursts,
        slowest.link,
        sums,
        members,
    )


def _hybrid(
    kinds: Sequence[_Kind],
    c: Configuration,
    means: ChannelModel,
    buckets: Sequence[Summed],
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """The slower of two rounds, which sets the pace."""
    found, k = _Roles.of(kinds, c, means, buckets), c.aggregators or 0
    steps, ending_s = found.steps, 0.0
    for other_s, read_s in zip(found.others_s, found.read_s, strict=True):
        # The others take the last sum once the aggregators have made it.
        after_s = read_s - sum(cost.phases[-1].length_s for cost in found.summed)
        if other_s > steps.step_s:
            after_s = sum(phase.length_s for phase in found.summed[-1].phases[-4:-1])
        ending_s = max(ending_s, after_s)
    waits_s = max(0.0, max(found.others_s) - steps.step_s)
    breakdown = {**steps.breakdown, "sync": waits_s}
    moved = [*shared_among(found.summed, k), *shared_among(found.taken, c.workers - k)]
    return (
        replace(steps, step_s=steps.step_s + waits_s, breakdown=breakdown, ending_s=ending_s),
        moved,
    )


@dataclass(frozen=True, slots=True)
class _Roles:
    """Rounds of both roles: aggregators wait for each other, and the others for nobody.

    Attributes:
        steps: of the aggregators.
        summed: of them, each bucket's cost.
        others_s: round of each kind of the others, and read_s: of that to take sums.
        taken: costs of what the others put and take.
    """

    steps: Steps
    summed: Sequence[Cost]
    others_s: Sequence[float]
    read_s: Sequence[float]
    taken: Sequence[Cost]

    @classmethod
    def of(
        cls,
        kinds: Sequence[_Kind],
        c: Configuration,
        means: ChannelModel,
        buckets: Sequence[Summed],
    ) -> _Roles:
        k = c.aggregators or 0
        mine, others = ([one for one in kinds if one.lags == lags] for lags in (False, True))
        costs = {
            one: [
                hybrid_costs(
                    asked_of(c.workers, summed, means, one.size),
                    aggregators=k,
                )
                for summed in buckets
            ]
            for one in kinds
        }
        summed = [_longest(costs[one][at][0] for one in mine) for at in range(len(buckets))]
        others_s, reads_s = [], []
        for one in others:
            put_s = all_reduced_s(one.begin_s, [cost for _, cost, _ in costs[one]])
            reads_s.append(sum(cost.seconds for _, _, cost in costs[one]))
            taken = [cost for _, *parts in costs[one] for cost in parts]
            through_s = max(one.compute_s, put_s) + reads_s[-1]
            others_s.append(
                steps_of_parts(
                    one.compute_s,
                    through_s,
                    one.overhead_s,
                    one.bursts,
                    one.link,
                    taken,
                    c.workers - k,
                ).step_s
            )
        return cls(_lock_step(mine, summed, k), summed, others_s, reads_s, taken)
