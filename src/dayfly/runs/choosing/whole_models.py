"""The problems of models that are not cut: functions, memory, collective and micro-batches.

One for each target; of a job whose batch follows the workers, one for each number of them.
"""

from __future__ import annotations

from dayfly.planning.choose.data_parallel import DataParallelProblem, collectives_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec


def whole_models(target: Target, asked: PlanQuery, wanted: JobSpec) -> list[DataParallelProblem]:
    """Returns what there is to choose among at a target.

    Args:
        target: where it runs, and the job's profile.
        asked: what the choice is among.
        wanted: of the job.
    """
    workers = range(1, asked.workers + 1)
    among = [workers] if wanted.batch_per_worker is None else [range(n, n + 1) for n in workers]
    return [_problem(target, asked, wanted.of_workers(of.start), of) for of in among]


def _problem(
    target: Target, asked: PlanQuery, wanted: JobSpec, workers: range
) -> DataParallelProblem:
    powers = tuple(2**n for n in range(wanted.batch_size.bit_length()))
    return DataParallelProblem(
        profile=target.profile,
        platform=target.platform,
        store=target.store,
        workers=tuple(workers),
        collectives=asked.collectives or collectives_of(target.profile),
        micro_batches=asked.micro_batches or powers,
        batch_size=wanted.batch_size,
        epochs=wanted.epochs,
        validate_every=wanted.validate_every,
        vcpus_at_once=asked.vcpus_of(target.profile),
    )
