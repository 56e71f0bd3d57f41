"""Types and numbers of servers as the store of a whole model, all of them, one after another."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.parts.enumerated.problems import ServersProblem
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.store import StoreFacts
from dayfly.planning.catalogued import over_store
from dayfly.planning.choose.data_parallel import all_data_parallel
from dayfly.planning.choose.data_parallel_problem import DataParallelPlan, DataParallelProblem
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.servers import choices, held_bytes

_LAMBDA = Catalogue().platform("aws-lambda")


def chosen(p: ServersProblem) -> Front[DataParallelPlan]:
    """The front over the choices that `planning.servers` leaves open."""
    rate = max(size.up.peak_bytes_per_s.value for size in p.profile.sizes)
    most = max(p.workers)
    open_ = choices(p.types, most * rate, held_bytes(p.profile, most))
    return Front.of(point for one in open_ for point in _over(p, one))


def every_plan(p: ServersProblem) -> Iterator[Point[DataParallelPlan]]:
    """Each type, and each number up to one that carries and holds what all functions send."""
    rate = max(size.up.peak_bytes_per_s.value for size in p.profile.sizes)
    most = max(p.workers)
    needed = held_bytes(p.profile, most)
    for one in p.types:
        assert one.bytes_per_s is not None
        assert one.server_memory_mib is not None
        count = 1
        while True:
            yield from _over(p, one.of_servers(count))
            wide = count * one.bytes_per_s >= most * rate
            if wide and count * one.server_memory_mib * 2**20 >= needed:
                break
            count += 1


def _over(p: ServersProblem, store: StoreFacts) -> list[Point[DataParallelPlan]]:
    batch = p.profile.batch_size or 1
    return all_data_parallel(
        DataParallelProblem(
            profile=over_store(p.profile, _LAMBDA, store),
            platform=_LAMBDA,
            store=store,
            workers=p.workers,
            collectives=("push-pull",),
            micro_batches=(1, 2, 4, 8, 16, 32),
            batch_size=batch,
        )
    )
