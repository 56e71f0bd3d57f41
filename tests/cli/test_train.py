"""What `dayfly train` and `dayfly demo` print and write, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch

from tests.cli import command

pytestmark = pytest.mark.long

KEYS = [
    "run_id",
    "status",
    "error",
    "epochs",
    "steps",
    "workers",
    "restarts",
    "train_loss",
    "val_loss",
    "val_accuracy",
    "startup_s",
    "train_s",
    "total_s",
    "wall_s",
    "step_s",
    "billed_s",
    "gb_s",
    "cost_usd",
    "price_list",
    "bytes_up",
    "bytes_down",
    "requests",
    "predicted_step_s",
    "predicted_cost_usd",
    "stop_reason",
    "best_epoch",
    "virtual_workers",
]


@pytest.mark.quick
def test_a_run_has_all_of_its_results(fast: Path, tmp_path: Path) -> None:
    done = command.run("train", fast, "--workers", 2, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "standard output has the JSON line, nothing else"
    result = command.last_json(done.stdout)
    assert 0 < result["startup_s"] < result["startup_s"] + result["train_s"] < result["total_s"]
    assert result["wall_s"] == result["total_s"]  # its old name
    assert list(result) == KEYS
    assert (result["status"], result["error"]) == ("done", None)
    assert (result["epochs"], result["steps"], result["workers"]) == (2, 26, 2)
    assert 0.5 < result["val_accuracy"] <= 1
    assert result["bytes_up"] > 26 * 4 * 64 * 32
    assert (result["predicted_step_s"], result["predicted_cost_usd"]) == (None, None)
    assert "epoch 2: loss" in done.stderr

    directory = tmp_path / "runs" / result["run_id"]
    names = {path.name for path in directory.iterdir()}
    assert names >= {"history.json", "weights.safetensors", "bill.json", "checkpoint", "events"}
    history = json.loads((directory / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history["epochs"]] == [1, 2]
    assert len(history["step_loss"]) == 26
    bill = json.loads((directory / "bill.json").read_text())
    assert len(bill["invocations"]) == 2
    assert bill["cost_usd"] == pytest.approx(result["cost_usd"])
    billed_s = sum(one["billed_ms"] for one in bill["invocations"]) / 1000
    assert result["billed_s"] == pytest.approx(billed_s)
    assert result["gb_s"] == pytest.approx(billed_s * 1769 / 1024)
    expected_usd = result["gb_s"] * 1.66667e-5 + 2 * 2e-7
    assert result["cost_usd"] == pytest.approx(expected_usd)
    weights = safetensors.torch.load_file(directory / "weights.safetensors")
    assert weights["1.weight"].shape == (32, 64)


def test_the_same_seed_gives_the_same_weights_and_another_one_others(
    fast: Path, tmp_path: Path
) -> None:
    weights = []
    flags = ("--workers", 2, "--epochs", 1)
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        asked = ("train", fast, *flags, "--seed", seed, "--run-dir", name)
        done = command.here(*asked, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        weights.append((tmp_path / name / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_a_target_accuracy_ends_the_run_early(fast: Path, tmp_path: Path) -> None:
    flags = ("--epochs", 50, "--target-accuracy", 0.8, "--json")
    done = command.here("train", fast, *flags, cwd=tmp_path)
    result = command.last_json(done.stdout)
    assert result["status"] == "done"
    assert result["val_accuracy"] >= 0.8
    assert result["epochs"] < 50
    assert result["stop_reason"] == "target-accuracy"


def test_a_summary_for_people_says_where_the_files_are(fast: Path, tmp_path: Path) -> None:
    done = command.here("train", fast, "--run-dir", "here", cwd=tmp_path, COLUMNS="200")
    assert done.returncode == 0
    for word in (
        "accuracy",
        "start-up time",
        "training time",
        "total time",
        "restarts",
        "bill",
        str(tmp_path / "here"),
    ):
        assert word in done.stdout


def test_the_demo_reaches_97_percent_on_four_functions(tmp_path: Path) -> None:
    done = command.run("demo", "--json", cwd=tmp_path)
    result = command.last_json(done.stdout)
    assert (done.returncode, result["status"], result["workers"]) == (0, "done", 4)
    assert result["val_accuracy"] >= 0.97
    assert result["wall_s"] < 150, "seconds, where nothing else runs"


@pytest.mark.slow  # the demo is as long a run on the same digits; cold, as a user starts it
@pytest.mark.cold
def test_the_example_trains(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "digits.py"
    done = command.run("train", example, "--workers", 4, "--json", cwd=tmp_path)
    assert command.last_json(done.stdout)["val_accuracy"] >= 0.97, done.stderr


def test_a_failed_run_exits_with_1_and_prints_its_json(tmp_path: Path, fast: Path) -> None:
    (tmp_path / "bad.py").write_text(
        fast.read_text()
        + "def broken(x):\n    import os\n    if os.path.basename(os.getcwd()) != 'here':\n"
        + "        raise OSError('no camera')\n    return x\n"
        + "import dataclasses; job = dataclasses.replace(job, transform=broken)\n"
    )
    here = tmp_path / "here"
    here.mkdir()
    done = command.here("train", "../bad.py", "--run-dir", "../run", "--json", cwd=here)
    assert done.returncode == 1
    result = command.last_json(done.stdout)
    assert result["status"] == "failed"
    assert "OSError: no camera" in result["error"]
    assert "in broken" in done.stderr
    assert "--resume" not in done.stderr  # it would fail again


def test_neither_the_run_nor_the_data_beside_the_job_travels_with_it(
    fast: Path, tmp_path: Path
) -> None:
    """Both may be larger than what may travel; here they are not, and stay out all the same."""
    np.savez(
        tmp_path / "mine.npz",
        x_train=np.zeros((300, 64), dtype="float32"),
        y_train=np.zeros(300, dtype="int64"),
    )
    fast.write_text(fast.read_text().replace('"digits"', '"mine.npz"'))
    done = command.here("train", fast, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "run" / "job" / "code.zip") as archive:
        assert archive.namelist() == [fast.name]


def test_the_module_is_the_command_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dayfly", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=command.WAIT_S,
        check=True,
    )
    assert done.stdout.startswith("dayfly ")
