"""A run outlives its functions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

import dayfly
from tests.runs import small

pytestmark = pytest.mark.long

#: A life has a step of 2.5 s and a few of half a second; 5.5 s are kept to end in order.
LIFETIME_S = 11.0
SLOWLY = small.Slowly(2.5, 0.5)


@pytest.mark.slow  # in the suite: test_scaling.py, "successors of all are there before"
def test_a_run_of_functions_that_live_11_s(data: Path, tmp_path: Path) -> None:
    reference = dayfly.train(
        small.job(data), workers=2, run_dir=tmp_path / "undisturbed", progress=False
    )
    run = dayfly.train(
        small.job(data, transform=SLOWLY),
        workers=2,
        lifetime_s=LIFETIME_S,
        run_dir=tmp_path / "short",
        progress=False,
    )
    assert small.bits(run) == small.bits(reference)
    assert run.result.wall_s > LIFETIME_S
    assert run.result.restarts == 0, "hand-overs are planned, no deaths"
    ended = [e for e in small.events(run.directory, "coordinator") if e["kind"] == "ended"]
    handed_over = [e for e in ended if e["result"]["status"] == "handed over"]
    assert len(handed_over) >= 4
    assert {e["used"]["outcome"] for e in ended} == {"returned"}, "nobody outlived its lifetime"
    assert not small.recomputed(run.directory, 2), "a hand-over repeats no step"


def stuck(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.5)
    return x


@pytest.mark.slow  # it waits for lifetimes; those of scripts: `test_lifetimes_in_vain_fail_the_run`
def test_a_step_longer_than_a_life_fails_with_that_cause(data: Path, tmp_path: Path) -> None:
    """Ten samples of half a second each do not fit in two seconds. The probe takes eight."""
    job = small.job(data, transform=stuck, batch_size=10, epochs=1)
    with pytest.raises(dayfly.RunFailed, match=r"(?s)lifetime.*3 times in a row.*--lifetime"):
        dayfly.train(job, workers=1, lifetime_s=2, run_dir=tmp_path, progress=False)
