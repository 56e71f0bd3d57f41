"""Compiled models: the same bits after a death and a resume, where the code is the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import dayfly
from dayfly.life.faults import Fault
from dayfly.wire.keys import COORDINATOR
from tests.runs import coordinator, small


def job(data: Path) -> dayfly.Job:
    return small.job(data, model=small.plain_model, compile=True)


# Each function compiles for seconds: deaths and resumes of other jobs are in the suite.
@pytest.mark.slow
@pytest.mark.long
def test_a_compiled_run_has_the_same_bits_after_a_death_and_a_resume(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled code is kept in a directory that all share, so it is the same."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    reference = dayfly.train(job(data), workers=2, run_dir=tmp_path / "whole", **small.SETTINGS)
    faults = [Fault(1, 3, "computed"), Fault(0, 12, "applied"), Fault(COORDINATOR, 14, "step")]
    coordinator.killed(
        data=data,
        run_dir=tmp_path / "run",
        workers=2,
        log_budget_mib=1,
        faults=faults,
        job="tests.runs.test_compiled:job",
    )
    run = dayfly.resume(tmp_path / "run", progress=False)
    assert run.result.restarts == 2
    assert small.bits(run) == small.bits(reference)
    record = json.loads((run.directory / "run.json").read_text())
    assert record["status"] == "done"
    assert os.path.isdir(tmp_path / "inductor")
