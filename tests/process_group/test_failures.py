"""What goes wrong is an error on every rank, in time; no interpreter crashes, and none hangs."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.process_group.equal import BACKEND, values
from tests.process_group.test_equal import cases
from tests.process_group.workloads import Workload, workloads
from tests.process_group.world import World

pytestmark = pytest.mark.long

#: Of the process group, in seconds: no rank is as far behind. An error is there soon after.
TIMEOUT_S = 4.0
#: The same where nobody waits for it to pass.
LONG_S = 60.0
PATIENCE_S = 20.0
WRONG = {workload.name: workload for workload in workloads("wrong")}


@pytest.fixture(scope="module", autouse=True)
def interpreters_end_as_they_should(world: World) -> Iterator[None]:
    """Looked at once all tests are done: they end beside each other."""
    yield
    assert world.crashes() == []


#: Each waits for as long as the timeout; those not here are one more of the product.
DYING = [("ddp", 4), ("gpipe", 4)]


@pytest.mark.parametrize(
    ("workload", "size"),
    [
        pytest.param(*case.values, id=case.id, marks=() if kind in DYING else pytest.mark.slow)
        for case in cases("dying")
        for kind in [(case.values[0].name, case.values[1])]
    ],
)
def test_a_peer_that_dies_is_an_error_on_every_rank(
    world: World, workload: Workload, size: int
) -> None:
    *survivors, dead = world.run(workload.path, size, BACKEND, timeout_s=TIMEOUT_S)
    assert dead.code == -signal.SIGKILL
    for rank, survivor in enumerate(survivors):
        assert survivor.error is not None, f"rank {rank}: {survivor.code}, {world.log()}"
        assert re.search(rf"rank {rank}\b.* within {TIMEOUT_S:g} s", survivor.error, re.DOTALL), (
            survivor.error
        )
        assert survivor.took_s < TIMEOUT_S * size + PATIENCE_S
    # Who waited for the dead rank itself says so; those beyond wait for who waits.
    assert any(re.search(rf"from (rank |member )?{size - 1}\b", s.error or "") for s in survivors)


#: Programs in which one rank waits in vain, once the other has an error.
IN_VAIN = {"reduced_and_told", "a_letter_of_another_shape"}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("different_operations", ["all-reduce", "all-gather"]),
        ("reduced_and_told", ["all-reduce", "broadcast"]),
        ("different_shapes", [r"of float32\[[45]\]", r"expected .*float32\[\d\], found .*float32"]),
        ("different_types", ["float32", "float64"]),
        ("a_letter_of_another_shape", [r"\[3\]", r"\[5\]"]),
    ],
)
def test_ranks_out_of_step_are_told(world: World, name: str, told: list[str]) -> None:
    timeout_s = TIMEOUT_S if name in IN_VAIN else LONG_S
    outcomes = world.run(WRONG[name].path, 2, BACKEND, timeout_s=timeout_s)
    errors = [outcome.error or "" for outcome in outcomes]
    assert all(errors)
    assert any(all(re.search(word, error) for word in told) for error in errors), errors


def test_a_letter_that_nobody_sends(world: World) -> None:
    outcomes = world.run(WRONG["nobody_sends"].path, 2, BACKEND, timeout_s=TIMEOUT_S)
    assert re.search(rf"receiv.* from 1, tag 7.* within {TIMEOUT_S:g} s", outcomes[0].error or "")
    assert outcomes[1].error


def test_an_exception_of_one_rank(world: World) -> None:
    outcomes = world.run(WRONG["one_raises"].path, 4, BACKEND, timeout_s=TIMEOUT_S)
    assert outcomes[2].error == "ZeroDivisionError: the user's own"
    assert all(outcome.error for outcome in outcomes)


@pytest.mark.quick
def test_wrong_requests_are_refused_at_once(world: World) -> None:
    for found in values(world, WRONG["refused_before_it_begins"], 2, BACKEND):
        assert found["sum"].tolist() == [2.0] * 3


def test_a_wait_that_ends_early_changes_nothing(world: World) -> None:
    for found in values(world, WRONG["waited_for_briefly"], 2, BACKEND):
        assert found["sum"].tolist() == [2.0] * 3


def test_workers_end_as_interpreters_do(world: World) -> None:
    """After many groups, with the channel that they share."""
    values(world, WRONG["refused_before_it_begins"], 2, BACKEND)
    world.end(2)
    assert world.crashes() == []
