"""Functions with shares of a GPU: each share, memory size, number and micro-batch by itself.

Whole models by the planner's closed forms, one plan a problem; what a GPU has room for is asked of
`planning.memory` for each plan. Cut models by FuncPipe's equations, every plan of each share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

from benchmarks.parts.enumerated import problems, stages
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.errors import RequestError
from dayfly.planning.catalogued import Assumed, facts_of, profile_of
from dayfly.planning.choose.data_parallel import all_data_parallel
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem
from dayfly.planning.choose.from_profile import kinds_of_sizes, stages_problems
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.problem import Problem
from dayfly.planning.configuration import Configuration
from dayfly.planning.function_kinds import FunctionKind
from dayfly.planning.memory import gpu_peak_mib
from dayfly.planning.profile import Affine, Profile
from dayfly.runs.choosing.candidates import near_by_kind

#: Where GPUs are sold in parts, and whole.
_PLATFORMS = ("alibaba-fc-t4", "azure-containers-k80", "cloud-run-l4")
_WORKERS, _MICRO_BATCHES = (1, 2, 3, 5), (1, 2, 4, 8, 16, 32)
_ASSUMED = Assumed(
    base_mib=150.0,
    latency_s=0.04,
    up_bytes_per_s=7e7,
    down_bytes_per_s=7e7,
    cold_start_s=0.5,
)


@dataclass(frozen=True, slots=True)
class GpusProblem:
    """A job on functions of a platform, and whether its model is to be cut."""

    profile: Profile
    platform: FunctionPlatform
    cut: bool


def random_problem(chance: Random) -> GpusProblem:
    """A job whose samples need much memory, on GPUs that have little."""
    job = problems.job(chance)
    layers = tuple(replace(one, activations=10 ** chance.uniform(4, 8)) for one in job.layers)
    job = replace(
        job,
        layers=layers,
        flops=tuple(Affine(0.0, 10 ** chance.uniform(6, 10.5)) for _ in layers),
    )
    platform = Catalogue().platform(chance.choice(_PLATFORMS))
    memory_mib = chance.choice((1024, 2048, 4096, 8192, 16384))
    parted = platform.gpu_memory_step_mib is not None
    platform = replace(
        platform,
        gpu_memory_mib=memory_mib,
        gpu_memory_step_mib=memory_mib // chance.choice((4, 16)) if parted else None,
    )
    least_mib = max(2048, platform.memory_min_mib or 0)
    sizes = (least_mib, 3 * least_mib // 2, 2 * least_mib)
    made = profile_of(
        facts_of(job),
        platform,
        Catalogue().store("s3"),
        [one for one in sizes if one <= platform.most_mib_beside_gpu(1.0)],
        _ASSUMED,
        every_kind=True,
    )
    return GpusProblem(made, platform, cut=1 < len(layers) < 4 and chance.random() < 0.7)


def chosen(problem: GpusProblem) -> Front[Any]:
    """The front over all shares together."""
    if not problem.cut:
        return Front.of(all_data_parallel(_whole(problem, _WORKERS, _MICRO_BATCHES)))
    return Front.of(
        point
        for _, point in near_by_kind(
            problem.profile, lambda kind: choose(*_cut(problem, kind)).front.points
        )
    )


def every_plan(problem: GpusProblem) -> Iterator[Point[Any]]:
    """Each share and number of vCPUs by itself."""
    if problem.cut:
        for kind in kinds_of_sizes(problem.profile):
            for one in _cut(problem, kind):
                yield from stages.every_point(one)
        return
    gpu = problem.profile.gpu
    assert gpu is not None
    # Room for anything, so that the planner's own test of a GPU's room is no part of this.
    roomy = replace(problem.profile, gpu=replace(gpu, memory_mib=10**9))
    for size, workers, micro in product(roomy.sizes, _WORKERS, _MICRO_BATCHES):
        alone = replace(problem, profile=replace(roomy, sizes=(size,)))
        if size.gpu_share is None or not workers * micro <= (roomy.batch_size or 1) + workers:
            continue
        held = Configuration(
            workers=workers,
            memory_mib=(size.memory_mib,),
            gpu_share=size.gpu_share,
            micro_batches=micro,
            batch_size=roomy.batch_size or 1,
        )
        if gpu_peak_mib(problem.profile, held, 0) > size.gpu_share * gpu.memory_mib:
            continue
        try:
            yield from all_data_parallel(_whole(alone, (workers,), (micro,)))
        except RequestError:  # it does not fit into the machine's memory
            continue


def _whole(
    problem: GpusProblem, workers: tuple[int, ...], micro_batches: tuple[int, ...]
) -> DataParallelProblem:
    return DataParallelProblem(
        profile=problem.profile,
        platform=problem.platform,
        workers=workers,
        collectives=("scatter-reduce", "k-reduce"),
        micro_batches=micro_batches,
        batch_size=problem.profile.batch_size or 1,
    )


def _cut(problem: GpusProblem, kind: FunctionKind) -> tuple[Problem, ...]:
    return stages_problems(
        problem.profile,
        problem.platform,
        batch_size=problem.profile.batch_size or 1,
        micro_batches=(4,),
        functions_at_once=8,
        kind=kind,
    )
