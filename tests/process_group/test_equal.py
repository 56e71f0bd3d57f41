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


def cases(*modules: str) -> list[ParameterSet]:
    """The workloads of modules, each in worlds of its sizes."""
    return [
        pytest.param(workload, size, id=f"{module}-{workload.name}-{size}")
        for module in modules
        for workload in workloads(module)
        for size in workload.sizes
    ]


@pytest.mark.parametrize(("workload", "size"), cases(*MODULES))
def test_same_as_over_gloo(world: World, workload: Workload, size: int) -> None:
    assert_equal(world, workload, size)


@pytest.mark.parametrize(("workload", "size"), cases("beyond"))
def test_more_than_gloo_can(world: World, workload: Workload, size: int) -> None:
    values(world, workload, size, BACKEND)
