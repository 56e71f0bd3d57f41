"""Validation of a cut model, as schedules for virtual time: rounds of blocks that flow forward.

See `runs.protocols.staged_validation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dayfly.batches import validation_rounds
from dayfly.planning.configuration import Configuration
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import ChannelModel, chain
from dayfly.planning.staged import stage_workers
from dayfly.wire.pipelines.step import StageRank
from dayfly.wire.processor import SharedProcessor
from dayfly.wire.simulation import ends
from dayfly.wire.streams import ALONE, Rank, Shared, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRound:
    """A round of a validation.

    Args:
        ranks: all workers.
        count: how often it comes.
        alike: of each replica, the first that validates as many samples in each micro-batch; the
            replica itself where stages have different numbers of them.
    """

    ranks: Sequence[Rank]
    count: int
    alike: tuple[int, ...]


def validation(profile: Profile, c: Configuration, means: ChannelModel) -> list[ValidationRound]:
    """Returns each kind of round of all workers' validation."""
    workers = stage_workers(profile, c, means)
    kinds: dict[tuple[int, ...], int] = {}
    flow = c.flow
    for blocks in validation_rounds(profile.validation_samples, flow.total, c.batch_size):
        kind = tuple(map(len, blocks))
        kinds[kind] = kinds.get(kind, 0) + 1
    found = []
    for kind, count in kinds.items():
        made = [
            stage.has(number, stage.validating(replica, kind))
            for number, (stage, replica) in enumerate(workers)
        ]
        # Where passes vary, each worker has a pace of its own.
        varied = any(stage.size.jitter for stage, _ in workers)
        alike = tuple(range(c.members))
        if flow.layout.even and not varied:
            shares = [flow.blocks(len(kind), StageRank(0, replica)) for replica in alike]
            of = [kind[own.start : own.stop] for own in shares]
            alike = tuple(map(of.index, of))
        found.append(ValidationRound(ranks=made, count=count, alike=alike))
    return found


def joining(of: ValidationRound, shared: Shared) -> Sequence[Rank]:
    """Returns ranks whose virtual time ends as the round's does, with fewer messages.

    The replicas of a round meet in its sum alone, so those that are alike are there at the same
    moments: one of them stands for all, and the ranks of the others wait until then. This holds
    where ranks share nothing, and neither messages nor sums take CPU time; else the round's own
    ranks are returned.

    Args:
        of: the round.
        shared: what all ranks have together.
    """
    replicas = len(of.alike)
    if len(set(of.alike)) == replicas or shared != ALONE or not all(map(_carries_only, of.ranks)):
        return of.ranks
    ready_s: dict[int, Sequence[float]] = {}  # of each stage, by the replica that stands for it
    for replica in set(of.alike):
        mine = [replace(rank, streams=rank.streams[:1]) for rank in of.ranks[replica::replicas]]
        _, ready_s[replica] = ends(mine, shared)
    made = []
    for number, rank in enumerate(of.ranks):
        stage, replica = divmod(number, replicas)
        wait = Stream(plan=chain(1), works_s=[ready_s[of.alike[replica]][stage]])
        streams = [wait, *rank.streams[1:]]
        made.append(replace(rank, streams=streams, processor=SharedProcessor()))
    return made


def _carries_only(rank: Rank) -> bool:
    """Whether nothing but passes takes CPU time, and that at any moment."""
    works = any(way.cpu_s or way.cpu_s_per_byte for way in (rank.up, rank.down))
    works = works or any(one.begin_s or one.message_s for one in rank.streams)
    return not (works or rank.reduce_s_per_byte or rank.processor.stands_still)
