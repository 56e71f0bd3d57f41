"""Functions whose vCPUs are sold apart from memory: each pair of both by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel import all_data_parallel
from dayfly.planning.choose.data_parallel_problem import DataParallelPlan, DataParallelProblem
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.profile import Profile

#: Where vCPUs are sold so, with grids of their own.
PLATFORMS = tuple(map(Catalogue().platform, ("fargate", "cloud-run", "alibaba-fc")))


def chosen(made: Profile, platform: FunctionPlatform) -> Front[DataParallelPlan]:
    """The front over all pairs together."""
    return Front.of(all_data_parallel(_problem(made, platform)))


def every_plan(made: Profile, platform: FunctionPlatform) -> Iterator[Point[DataParallelPlan]]:
    """Each pair on a platform that has no other, and sells nothing apart."""
    for size in made.sizes:
        assert size.memory_mib is not None
        assert size.cpu_cores is not None
        alone = replace(
            platform, vcpus_by_memory=((size.memory_mib, size.cpu_cores),), mib_per_vcpu=None
        )
        try:
            yield from all_data_parallel(_problem(replace(made, sizes=(size,)), alone))
        except RequestError:  # it fits into none of these
            continue


def _problem(made: Profile, platform: FunctionPlatform) -> DataParallelProblem:
    return DataParallelProblem(
        profile=made,
        platform=platform,
        workers=(1, 2, 3),
        collectives=("scatter-reduce", "k-reduce"),
        micro_batches=(1, 2, 4, 8, 16, 32),
        batch_size=made.batch_size or 1,
    )
