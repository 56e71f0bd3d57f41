"""Whole runs elsewhere than on the CPU, with deaths: the bits of its undisturbed run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs.far_runs import CASES

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def run(case: str, directory: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.runs.far_runs", case, str(directory)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "case",
    # Local SGD's deaths are those of test_local_sgd.py; bsp's steps are int8's but for the sums.
    [pytest.param(case, marks=() if case == "int8" else pytest.mark.slow) for case in CASES],
)
def test_deaths_on_another_device_leave_the_bits_of_the_cpu(case: str, tmp_path: Path) -> None:
    found = run(case, tmp_path)
    near, far = found["far"]
    assert near == 0
    assert far > 0, "no batch was computed on the far device"
    assert found["same"]
    assert found["restarts"] == len(CASES[case][1])
    assert set(found["shares"]) == {found["settings"]} == {0.5}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_torch_cannot_use_fails_the_run_with_that_cause(tmp_path: Path) -> None:
    error = run("not there", tmp_path)["error"]
    assert "this function has 1 of a GPU, and torch cannot use it" in error
    assert "3 times in a row" in error
