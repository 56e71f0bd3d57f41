"""Eight jobs beside plain PyTorch loops: on 1, 2 and 4 workers, and with deaths."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import dayfly
from dayfly.life.faults import Fault
from tests.examples.real_jobs import JOBS, plain_loop

#: In the suite tests/runs/test_agreement.py and test_ways.py compare with plain loops.
pytestmark = pytest.mark.slow

FAULTS = [Fault(1, 3, "grad-put-part"), Fault(0, 8, "applied"), Fault(0, 9, "applied-d")]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_what_a_plain_loop_is(name: str, tmp_path: Path) -> None:
    job = JOBS[name]()
    model, history = plain_loop(job)
    assert history[-1]["train_loss"] < history[0]["train_loss"] or name == "gan", "it learns"
    expected = {name: tensor.detach() for name, tensor in model.named_parameters()}
    for workers, faults in ((1, []), (2, []), (4, []), (2, FAULTS)):
        directory = tmp_path / f"{workers}-{len(faults)}"
        run = dayfly.train(job, workers=workers, run_dir=directory, faults=faults, progress=False)
        assert run.result.restarts == (2 if faults else 0)
        found = load_file(directory / "weights.safetensors")
        for key, tensor in expected.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-3, atol=1e-4)
        for record, plain in zip(run.history, history, strict=True):
            assert {key: record[key] for key in plain} == pytest.approx(plain, rel=1e-4, abs=1e-4)
    undisturbed, disturbed = tmp_path / "2-0", tmp_path / f"2-{len(FAULTS)}"
    weights = [one / "weights.safetensors" for one in (undisturbed, disturbed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
