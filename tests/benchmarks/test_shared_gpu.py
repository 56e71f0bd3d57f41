"""`dayfly bench training --gpu`: refused without a GPU; the rest is tried on the CPU."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import torch
from benchmarks.parts import shared_gpu
from rich.console import Console

from dayfly.errors import RequestError, RunFailed
from tests.cli import command


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_is_refused(tmp_path: Path) -> None:
    done = command.run("bench", "training", "--gpu", "--quick", cwd=tmp_path, COLUMNS="200")
    assert done.returncode == 2, done.stderr
    assert "--gpu: this machine has no GPU that torch can use; leave it out" in done.stderr
    assert "Traceback" not in done.stderr


def test_lenet_is_lenet() -> None:
    model = shared_gpu.lenet()
    assert sum(p.numel() for p in model.parameters()) == 61_706
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.long
def test_its_rows_and_their_table_on_the_cpu(tmp_path: Path) -> None:
    rows = shared_gpu.measure((1, 2), None, tmp_path, quick=True)
    assert [(row["functions"], row["batch_size"]) for row in rows] == [(1, 64), (2, 128)]
    for row in rows:
        assert row["steps"] == 18
        assert row["samples_per_s"] > 0
        assert row["busy_percent"] is row["gpu_memory_mib"] is None
    assert list(tmp_path.iterdir()) == []
    output = io.StringIO()
    Console(file=output, width=200).print(shared_gpu.table(rows))
    assert "1.00" in output.getvalue()


def test_what_nvidia_smi_says_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program that answers as nvidia-smi does."""
    answers = tmp_path / "nvidia-smi"
    answers.write_text('#!/bin/sh\n[ "$1" = --id=GPU-8f1 ] && echo "37, 1204"\n')
    answers.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert shared_gpu._look("GPU-8f1") == (37.0, 1204.0)
    with pytest.raises(RunFailed, match="does not tell how busy GPU 5 is: ''"):
        shared_gpu._look("5")


def test_figures_are_those_of_the_time_that_is_measured() -> None:
    watched = shared_gpu.Watched([(1.0, 0.0, 900.0), (2.0, 40.0, 500.0), (3.0, 60.0, 700.0)])
    assert watched.between(1.5, 3) == (50.0, 700.0)
    assert watched.between(5, 6) == (None, None)


def test_one_gpu_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_gpu, "gpus_of_this_machine", lambda: ("0", "1"))
    with pytest.raises(RequestError, match="has 2: set CUDA_VISIBLE_DEVICES to one"):
        shared_gpu.gpu_to_measure()
    monkeypatch.setattr(shared_gpu, "gpus_of_this_machine", lambda: ("0",))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RequestError, match="needs nvidia-smi"):
        shared_gpu.gpu_to_measure()
