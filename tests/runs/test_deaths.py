"""Workers die at any point; the run ends with the bits of the undisturbed one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dayfly
from dayfly.life.faults import Fault
from tests.runs import small

pytestmark = pytest.mark.long

Undisturbed = Callable[[int], dayfly.Run]


def checkpoint_steps(run: dayfly.Run) -> list[int]:
    found = small.events(run.directory, "coordinator")
    return [event["step"] for event in found if event["kind"] == "checkpoint"]


@pytest.mark.parametrize(
    ("workers", "deaths", "seed"),
    [
        (3, 9, 3),
        # More of the same, drawn otherwise. Of two workers, each place of a step kills one below.
        *(
            pytest.param(*drawn, marks=pytest.mark.slow)
            for drawn in [(2, 9, 1), (2, 8, 2), (3, 8, 4), (4, 9, 5), (4, 8, 6)]
        ),
    ],
)
def test_random_deaths_leave_the_same_bits(
    workers: int, deaths: int, seed: int, data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    reference = undisturbed(workers)
    faults = small.random_faults(workers, deaths, seed, checkpoint_steps(reference))
    assert len(faults) == deaths

    run = dayfly.train(
        small.job(data), workers=workers, run_dir=tmp_path, faults=faults, **small.SETTINGS
    )

    assert run.result.restarts == deaths, "every planned death happened, once"
    assert small.bits(run) == small.bits(reference)
    redone = small.recomputed(run.directory, workers)
    assert redone <= small.died_in(faults), "peers redid steps"


def test_a_worker_may_be_killed_from_outside_again_and_again_in_one_step(
    data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    faults = [Fault(1, 5, place) for place in small.IN_EVERY_STEP[:7]]
    run = dayfly.train(
        small.job(data), workers=2, run_dir=tmp_path, faults=faults, **small.SETTINGS
    )
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(undisturbed(2))


@pytest.mark.quick
def test_a_single_worker_goes_on_from_its_checkpoint(
    data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    faults = [Fault(0, 4, "computed"), Fault(0, 20, "applied", "zygote")]
    run = dayfly.train(
        small.job(data), workers=1, run_dir=tmp_path, faults=faults, **small.SETTINGS
    )
    assert run.result.restarts == 2
    assert small.bits(run) == small.bits(undisturbed(1))


@pytest.mark.parametrize("rank", [0, 1])
def test_whoever_dies_in_validation_leaves_the_same_metrics(
    rank: int, data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """Rank 0 computes them, of what the others handed in, which may be dead meanwhile."""
    ends = [small.STEPS_AN_EPOCH * epoch - 1 for epoch in (1, 2, 3)]
    places = ("evaluated", "gathered", "val-get")
    faults = [Fault(rank, step, place) for step, place in zip(ends, places, strict=True)]
    run = dayfly.train(
        small.job(data), workers=3, run_dir=tmp_path, faults=faults, **small.SETTINGS
    )
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(undisturbed(3))
    assert all(0 < record["macro_f1"] <= 1 for record in run.history)
