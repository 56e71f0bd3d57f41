"""Programs of torch.distributed give over dayfly what they give over gloo."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from tests.process_group.equal import BACKEND, assert_equal, values
from tests.process_group.workloads import Workload, workloads
from tests.process_group.world import World

pytestmark = pytest.mark.long

MODULES = (
    "asynchronous",
    "checkpoints",
    "collectives",
    "ddp",
    "functional",
    "groups",
    "messages",
    "objects",
    "pipelines",
    "sharded",
)


#: What torch builds of the collectives, which the suite has in both sizes: of these programs it
#: has the small world, where sums are the same bits, and a large one of each kind. So it is with
#: what has no sums: in a large world there are only more peers to be taken for another.
BUILT = (
    *("asynchronous", "checkpoints", "ddp", "functional", "messages", "objects"),
    *("pipelines", "sharded"),
)
LARGE = {
    *("into_other_shards", "small_buckets", "from_anybody", "different_ones_at_once"),
    *("many_in_flight", "gathered"),
}


def cases(*modules: str) -> list[ParameterSet]:
    """The workloads of modules, each in worlds of its sizes."""
    return [
        pytest.param(
            workload,
            size,
            id=f"{module}-{workload.name}-{size}",
            marks=[pytest.mark.slow] if rare(module, workload, size) else [],
        )
        for module in modules
        for workload in workloads(module)
        for size in workload.sizes
    ]


def rare(module: str, workload: Workload, size: int) -> bool:
    """Whether a case is one more of a product."""
    return module in BUILT and size > min(workload.sizes) and workload.name not in LARGE


@pytest.mark.parametrize(("workload", "size"), cases(*MODULES))
def test_same_as_over_gloo(world: World, workload: Workload, size: int) -> None:
    assert_equal(world, workload, size)


@pytest.mark.parametrize(("workload", "size"), cases("beyond"))
def test_more_than_gloo_can(world: World, workload: Workload, size: int) -> None:
    values(world, workload, size, BACKEND)
