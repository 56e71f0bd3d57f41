"""`dayfly predict` and `dayfly train --plan`: what they print, write and refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.life.faults import Fault
from dayfly.planning.plan import Plan
from dayfly.planning.profile import Profile, profile_text
from dayfly.wire.keys import COORDINATOR
from tests.cli import command
from tests.planning import by_hand
from tests.runs import coordinator, small

pytestmark = pytest.mark.long

#: Of the job `fast`: its layers' bytes are true, its seconds somebody says.
LAYERS = (
    by_hand.layer("0 Flatten"),
    by_hand.layer("1 Linear", 64 * 32 + 32, passed=128.0),
    by_hand.layer("2 ReLU", passed=128.0),
    by_hand.layer("3 Linear", 32 * 10 + 10, passed=40.0),
)
FREE = by_hand.size(4, None, rates=None, up=by_hand.transfer(1e9), down=by_hand.transfer(1e9))


def profile_of_fast(**changes: Any) -> Profile:
    given = {
        "job": "fast",
        "channel": "file:///",
        "samples": 1618,
        "validation_samples": 179,
        "batch_size": 128,
        "epochs": 2,
        **changes,
    }
    return by_hand.profile(LAYERS, FREE, **given)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    file = tmp_path / "profile.json"
    file.write_text(profile_text(profile_of_fast()))
    return file


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    made = Plan(
        settings={"workers": 2}, job={"batch_size": 128, "epochs": 2}, profile=profile_of_fast()
    )
    file.write_text(made.text())
    return file


def test_a_prediction_says_all_of_it_and_a_plan_is_written(profile: Path, tmp_path: Path) -> None:
    done = command.here("predict", profile, "--workers", 2, "--output", "p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [line[:17].strip() for line in done.stdout.splitlines()]
    assert names == [
        *("job", "functions", "step", "epoch"),
        *("start-up time", "training time", "total time", "bill", "", "memory"),
        *("step's traffic", "run's traffic", "how sure", "plan"),
    ]
    written = Plan.parse((tmp_path / "p.json").read_text())
    assert written.profile == profile_of_fast()
    assert written.job == {"batch_size": 128, "epochs": 2}
    assert written.settings["workers"] == 2
    assert written.prediction is not None
    assert f"${written.prediction.cost_usd:.8f} as on aws-lambda" in done.stdout
    assert dayfly.predict(profile, workers=2) == written  # from Python, the same


def test_several_make_a_table_and_one_object(profile: Path, tmp_path: Path) -> None:
    sizes = (by_hand.size(4, 256, base_mib=by_hand.given(300.0)), by_hand.size(4, 1024))
    profile.write_text(profile_text(replace(profile_of_fast(), sizes=sizes)))
    flags = ("--workers", "1,2", "--collective", "ring,scatter-reduce", "--epochs", 1)
    done = command.here("predict", profile, *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [
        line.split() for line in done.stdout.splitlines() if line.split()[-1:] in (["yes"], ["no"])
    ]
    assert [row[:3] for row in rows] == [
        [workers, memory, collective]
        for workers in ("1", "2")
        for collective in ("ring", "scatter-reduce")
        for memory in ("256", "1024")
    ]
    assert [row[-1] for row in rows] == ["no", "yes"] * 4
    done = command.here("predict", profile, *flags, "--json", cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 1
    found = command.last_json(done.stdout)["predictions"]
    assert [one["fits"] for one in found] == [False, True] * 4
    assert found[0]["job"] == {"batch_size": 128, "epochs": 1}
    assert all(one["prediction"]["step_s"] > 0 for one in found)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--workers", "1,x"], "--workers '1,x' is no list of whole numbers"),
        (["--workers", "1,2", "--output", "p.json"], "give one value of --workers"),
        (["--memory", "512"], "has no functions of 512 MiB: it has unlimited memory"),
        (["--channel", "tcp://"], "--channel tcp://: the profile of fast is of file:///"),
        (["--batch-size", "0"], "--batch-size 0: give a whole number from 1"),
        (["--prices", "moon"], "the catalogue has no platform 'moon'"),
        (["--replicas", "2"], "--replicas is for a model in stages"),
        (["--fragments", "2"], "--fragments and --overlap are for an outer optimizer: give"),
        (["--sync", "local-sgd", "--k", "4", "--overlap", "2"], "are for an outer optimizer"),
    ],
)
def test_a_wrong_prediction(flags: list[str], words: str, profile: Path, tmp_path: Path) -> None:
    done = command.here("predict", profile, *flags, "--json", cwd=tmp_path, COLUMNS="300")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert words in command.last_json(done.stdout)["error"]
    assert not (tmp_path / "p.json").exists()


def test_a_profile_that_is_none(tmp_path: Path) -> None:
    done = command.here("predict", "nowhere.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "'nowhere.json' cannot be read" in done.stderr


def test_a_run_by_a_plan_ends_with_what_was_predicted(
    plan: Path, fast: Path, tmp_path: Path
) -> None:
    done = command.here("train", fast, "--plan", plan, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("since the first invocation")[2].splitlines()
    names = [line[:24].strip() for line in table]
    for name in (
        "step (s)",
        "start-up time (s)",
        "total time (s)",
        "cost (USD)",
        "memory peak (MiB)",
    ):
        assert name in names
    assert "not in the plan" not in done.stdout
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    ours = Plan.parse((tmp_path / "run" / "plan.json").read_text())
    assert ours.prediction is not None
    assert record["settings"]["workers"] == 2
    assert record["planned"] == {"overridden": [], "changed": [], "unpredicted": None}
    result = record["result"]
    assert result["predicted_step_s"] == ours.prediction.step_s
    assert result["predicted_cost_usd"] == ours.prediction.cost_usd
    done = command.here("report", "run", cwd=tmp_path)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Predicted and measured" in page
    assert "Not in the plan" not in page


@pytest.mark.parametrize(
    ("changes", "flags", "words"),
    [
        ({}, ["--batch-size", "0"], "batch_size is 0"),
        ({"job": {"batch_size": 64, "epochs": 2}}, [], "is for batches of 64 samples, and the job"),
        ({"settings": {"wrkers": 2}}, [], "settings has an unknown key 'wrkers'"),
        ({"settings": {"cut": [9]}}, [], "--cut 9: the model has 4 layers"),
        ({"profile": "layers"}, [], "is of another model than the job's: it has 2 layers, the job"),
        ({"version": 0}, [], "is of version 0"),
        ({}, ["--resume", "."], "in the run's directory: leave out --"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(
    changes: dict[str, Any], flags: list[str], words: str, plan: Path, fast: Path, tmp_path: Path
) -> None:
    tree = json.loads(plan.read_text())
    if changes.get("profile") == "layers":
        other = by_hand.profile(LAYERS[:2], by_hand.size(2, None))
        changes = {"profile": json.loads(profile_text(other))}
    plan.write_text(json.dumps(tree | changes))
    done = command.here(
        "train", fast, "--plan", plan, "--run-dir", "run", *flags, cwd=tmp_path, COLUMNS="400"
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_plan_stays_with_a_run_that_is_resumed(tmp_path: Path) -> None:
    elements = (13 * 64, 2 * 64, 0, 0, 65 * 5)
    layers = tuple(by_hand.layer(str(place), count) for place, count in enumerate(elements))
    size = by_hand.size(5, None, rates=None)
    profile = by_hand.profile(layers, size, channel="file:///", samples=180, validation_samples=20)
    says = {"batch_size": small.BATCH, "epochs": small.EPOCHS, "clips": True}
    plan, directory = tmp_path / "plan.json", tmp_path / "run"
    plan.write_text(Plan(settings={"workers": 2}, job=says, profile=profile).text())
    coordinator.killed(
        data=small.write_data(tmp_path),
        run_dir=directory,
        plan=str(plan),
        faults=[Fault(COORDINATOR, 13, "step")],
    )
    run = dayfly.resume(directory, workers=3, progress=False)
    found = run.comparison()
    assert found is not None
    assert found.unpredicted is None
    assert found.differences == ("since a resume, workers 3 in place of 2", "resumed once")
    assert run.result.predicted_step_s == found.totals[0].predicted
