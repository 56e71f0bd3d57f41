"""The problem of hybrid asynchronous workers at a target, by what is asked of its method."""

from __future__ import annotations

from dayfly.planning.choose.data_parallel_problem import DataParallelProblem
from dayfly.planning.choose.hybrid import HybridProblem
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec
from dayfly.wire.collectives import K_REDUCE


def hybrid_problem(target: Target, asked: PlanQuery, wanted: JobSpec) -> HybridProblem:
    """Returns what there is to choose among.

    Args:
        target: where it runs, and the job's profile.
        asked: what the choice is among, of hap.
        wanted: of the job, whose batch is the largest unless a larger one is allowed.

    Raises:
        RequestError: numbers that cannot be.
    """
    method, apart = asked.method, asked.apart
    one = method.aggregators
    some: tuple[int, ...] | None = None if one is None else (one,)
    all_aggregate = None
    fewest = 1 if one is None else one + (one in apart)
    if one is None and apart:
        some = tuple(k for k in range(1, asked.workers + 1) if k not in apart)
        all_aggregate = True
    if method.compress != "none":
        all_aggregate = False  # compressed, that is a method that nobody asked for
    most = asked.most_batch_size or wanted.batch_size
    return HybridProblem(
        whole=DataParallelProblem(
            profile=target.profile,
            platform=target.platform,
            store=target.store,
            workers=tuple(range(min(fewest, asked.workers), asked.workers + 1)),
            collectives=(K_REDUCE,),
            micro_batches=(1,),
            batch_size=min(most, target.profile.samples),
            epochs=wanted.epochs,
            validate_every=wanted.validate_every,
            vcpus_at_once=asked.vcpus_of(target.profile),
            method=method,
        ),
        aggregators=some,
        all_aggregate=all_aggregate,
    )
