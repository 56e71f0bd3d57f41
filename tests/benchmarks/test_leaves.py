"""`dayfly bench training --virtual`: which forms are run, and what their times are divided by."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from benchmarks.parts import leaves, own
from benchmarks.parts.measured import Measured
from benchmarks.parts.workloads import WORKLOADS, Workload
from rich.console import Console

from benchmarks import training


def test_a_step_is_compared_with_one_of_the_same_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Steps take 10 ms, a piece more 1 ms, a leaf 2 ms; all twice as long in the second round."""
    runs: list[dict[str, Any]] = []

    def train(
        workload: Workload, data: Path, workers: int, run_dir: Path, **settings: Any
    ) -> Measured:
        assert not any(run_dir == one["run_dir"] for one in runs), "each has a directory"
        round_ = 1 + len(runs) // 6
        runs.append({"run_dir": run_dir, **settings})
        each = settings.get("virtual_workers", 0) / workers or settings.get("micro_batches", 1)
        step_ms = 10 + (each - 1) * (2 if "virtual_workers" in settings else 1)
        return Measured(steps_per_s=1000 / (round_ * step_ms), losses=[1.0], parts_ms={})

    monkeypatch.setattr(own, "train", train)
    rows = leaves.measure(WORKLOADS["digits-cnn"], 2, 2, tmp_path / "data")
    forms = [{k: v for k, v in one.items() if k != "run_dir"} for one in runs]
    assert forms[:6] == forms[:5:-1], "every other round in reverse"
    assert [row["virtual_workers"] for row in rows] == [2, 4, 8]
    assert [row["over_plain"] for row in rows] == pytest.approx([1.0, 1.2, 1.6])
    assert [row["over_pieces"] for row in rows] == pytest.approx([1.0, 12 / 11, 16 / 13])
    assert rows[1]["step_ms"] == pytest.approx([12, 24])
    page = io.StringIO()
    machine = {"cores": 2, "cpu": "cpu", "torch": "2", "python": "3", "load": 0.1}
    result = {"virtual": True, "pipelines": False, "rounds": 2, "machine": machine, "rows": rows}
    Console(file=page, width=120).print(training.table(result))
    assert "1.60" in page.getvalue()
