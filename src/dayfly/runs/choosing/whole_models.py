"""The problems of models that are not cut: functions, memory, collective and micro-batches.

One for each target; of a job whose batch follows the workers, one for each number of them.
"""

from __future__ import annotations

from dayfly.errors import RequestError
from dayfly.planning.checks import check_configuration
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem, collectives_of
from dayfly.planning.choose.from_profile import limited
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec, profile_settings
from dayfly.runs.settings import Settings
from dayfly.wire.collectives import K_REDUCE


def whole_models(target: Target, asked: PlanQuery, wanted: JobSpec) -> list[DataParallelProblem]:
    """Returns what there is to choose among at a target.

    Args:
        target: where it runs, and the job's profile.
        asked: what the choice is among.
        wanted: of the job.

    Raises:
        RequestError: for what cannot be run, or not be searched.
    """
    # A lone worker sums nothing: bsp's plans have it.
    workers = range(1 if asked.method.is_plain else 2, asked.workers + 1)
    if not workers:
        raise RequestError(f"{asked.method} needs {workers.start} workers: raise --workers")
    among = [workers] if wanted.batch_per_worker is None else [range(n, n + 1) for n in workers]
    return [_problem(target, asked, wanted.of_workers(of.start), of) for of in among]


def _problem(
    target: Target, asked: PlanQuery, wanted: JobSpec, workers: range
) -> DataParallelProblem:
    powers = tuple(2**n for n in range(wanted.batch_size.bit_length()))
    problem = DataParallelProblem(
        profile=target.profile,
        platform=target.platform,
        store=target.store,
        workers=tuple(workers),
        collectives=collectives_with(target, asked),
        micro_batches=asked.micro_batches or powers,
        batch_size=wanted.batch_size,
        epochs=wanted.epochs,
        validate_every=wanted.validate_every,
        vcpus_at_once=asked.vcpus_of(target.profile),
        method=asked.method,
    )
    check_configuration(target.profile, problem.configuration(min(workers)))
    return problem


def collectives_with(target: Target, asked: PlanQuery) -> tuple[str, ...]:
    """Returns the collectives that can have a choice's method.

    Args:
        target: where it runs.
        asked: what the choice is among.

    Raises:
        RequestError: none can, as the last one says.
    """
    every = asked.collectives or collectives_of(target.profile)
    if asked.method.is_plain and not asked.collectives:
        return every
    run = {"workers": 2, "memory_mib": limited(target.profile)[0][0], **asked.method.settings}
    found: list[str] = []
    refused: RequestError | None = None
    for name in every:
        own = {"collective": name, "aggregators": 1 if name == K_REDUCE else None}
        try:
            Settings(**profile_settings(target.profile, run | own))
            found.append(name)
        except RequestError as refusal:
            refused = refusal
    if refused is not None and not found:
        raise refused
    return tuple(found)
