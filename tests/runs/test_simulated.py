"""`dayfly simulate`: directories of runs that never were, the command, and their pages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import dayfly
from dayfly.cli.app import app
from dayfly.errors import RequestError
from dayfly.life import deaths
from dayfly.planning.plan import Plan
from dayfly.planning.profile import Figure
from dayfly.planning.simulation.scenario import Scenario
from dayfly.runs.job_record import Record
from dayfly.runs.report import write_report
from dayfly.runs.report.reading import rebill
from dayfly.runs.simulation import POLICY, simulated_run
from dayfly.runs.simulation_files import SimulationRequest
from tests.planning.simulation.made import profile

SETTINGS: dict[str, Any] = {
    "workers": 4,
    "memory_mib": 2048,
    "channel": "redis://localhost:6379/0",
    "collective": "scatter-reduce",
    "lifetime_s": 12.0,
}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write(tmp_path / "plan.json")


def write(
    file: Path, job: dict[str, int] | None = None, samples: int = 320, **settings: Any
) -> Path:
    made = Plan(
        settings=SETTINGS | settings,
        job=job or {"batch_size": 32, "epochs": 2},
        profile=profile(samples=samples),
    )
    file.write_text(made.text())
    return file


def asked(file: Path, **scenario: Any) -> SimulationRequest:
    return SimulationRequest.of(
        Plan.read(file), str(file), Scenario(**scenario), "made", changes={}, of_the_job={}
    )


def command(*words: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, words)])


def test_the_same_request_makes_the_same_bytes(plan: Path, tmp_path: Path) -> None:
    scenario = {"seed": 3, "deaths_per_hour": 120.0, "straggler_sigma": 0.1}
    first, second = (
        simulated_run(asked(plan, **scenario), tmp_path / name) for name in ("first", "second")
    )
    files = sorted(file for file in first.directory.rglob("*") if file.is_file())
    assert len(files) == 8
    for file in files:
        other = second.directory / file.relative_to(first.directory)
        assert file.read_bytes() == other.read_bytes()
    assert first.result.restarts > 0
    # It may be written anew in its place; something else may not.
    simulated_run(asked(plan, **scenario), first.directory)
    with pytest.raises(RequestError, match="not empty"):
        simulated_run(asked(plan, seed=4), first.directory)
    assert (first.directory / "run.json").is_file()


def test_python_and_the_command_simulate_the_same_run(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = dayfly.simulate(plan, epochs=1, stragglers=1, seed=2, run_dir="python")
    assert command(plan, *["--epochs", "1", "--stragglers", "1", "--seed", "2"]).exit_code == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.startswith("plan-simulated-")  # as its file, whatever is changed
    assert (directory / "run.json").read_bytes() == (run.directory / "run.json").read_bytes()


def test_a_page_says_that_it_was_simulated_and_under_which_scenario(
    plan: Path, tmp_path: Path
) -> None:
    run = simulated_run(asked(plan, seed=3, deaths_per_hour=120.0), tmp_path / "run")
    page = write_report(run.directory).read_text()
    assert "Simulated, in virtual time, from a plan: nothing of it ran." in page
    assert "seed 3: 120 deaths an hour of each function" in page
    assert '"figures":[]' in page  # there is no place for any
    assert page.count('"death"') >= run.result.restarts
    assert rebill(run.directory).cost_usd == pytest.approx(run.result.cost_usd, rel=1e-12)
    with pytest.raises(RequestError, match="simulated run"):
        Record.load(run.directory)


@pytest.mark.long
def test_of_many_workers_the_page_shows_some_and_says_so(tmp_path: Path) -> None:
    file = write(tmp_path / "many.json", {"batch_size": 400, "epochs": 1}, 4000, workers=200)
    run = simulated_run(asked(file, stragglers=3, straggler_factor=2.0), tmp_path / "run")
    page = write_report(run.directory).read_text()
    assert "48 of 200 workers are shown" in page
    shown = [file.stem for file in (run.directory / "events").glob("worker-*.jsonl")]
    assert len(shown) == 48
    assert {f"worker-{rank}" for rank in run.outcome.stragglers} <= set(shown)
    # The bill is of all of them.
    billed = rebill(run.directory)
    assert len(billed.functions) == 200
    assert billed.cost_usd == pytest.approx(run.result.cost_usd, rel=1e-12)
    assert sum(row["bytes_up"] for row in billed.functions) == run.result.bytes_up


def test_a_stage_is_a_group_of_the_page(tmp_path: Path) -> None:
    file = write(tmp_path / "cut.json", cut=[2], replicas=2, micro_batches=4)
    run = simulated_run(asked(file, deaths_per_hour=60.0), tmp_path / "run")
    page = write_report(run.directory).read_text()
    assert "stage 1, replica 1 (worker 3)" in page
    assert "Pipeline" in page


def test_a_store_of_the_catalogue_has_its_cap_and_its_prices(tmp_path: Path) -> None:
    file = write(tmp_path / "plan.json", lifetime_s=None, channel="s3://bucket/there")
    text = json.loads(file.read_text())
    text["profile"]["channel"] = "s3"
    file.write_text(json.dumps(text))
    run = simulated_run(asked(file), tmp_path / "run")
    assert run.bill.store == "s3"
    assert run.bill.by_kind["store_requests"] > 0
    assert rebill(run.directory).cost_usd == pytest.approx(run.result.cost_usd, rel=1e-12)
    slow = simulated_run(replace(asked(file), store="alibaba-oss"), tmp_path / "slow")
    assert slow.result.step_s == pytest.approx(run.result.step_s)  # 200 MB/s are below its cap


def test_the_command_prints_an_object_and_a_table(plan: Path, tmp_path: Path) -> None:
    flags: list[object] = [plan, "--seed", 2, "--deaths-per-hour", 90, "--jitter", 0.1]
    flags += ["--workers", 6, "--batch-size", 48, "--decline", "2:1,8:0.5", "--store-rate", 500]
    told = command(*flags, "--run-dir", tmp_path / "json", "--json")
    assert told.exit_code == 0
    result = json.loads(told.stdout.splitlines()[-1])
    assert len(told.stdout.splitlines()) == 1
    assert (result["status"], result["workers"], result["steps"]) == ("simulated", 6, 14)
    assert result["predicted_step_s"] is None
    assert result["seed"] == 2
    shown = command(*flags, "--run-dir", tmp_path / "table")
    assert shown.exit_code == 0
    for word in ("steps redone", "hand-overs", "restarts", "worst worker", "aws-lambda"):
        assert word in shown.stdout


def test_a_run_that_would_fail_says_so(plan: Path, tmp_path: Path) -> None:
    told = command(plan, "--lifetime", 1.2, "--run-dir", tmp_path / "run", "--json")
    assert told.exit_code == 1
    result = json.loads(told.stdout.splitlines()[-1])
    assert result["status"] == "failed"
    assert "raise --lifetime" in result["error"]
    assert "It would fail." in write_report(tmp_path / "run").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--deaths-per-hour", -1), "--deaths-per-hour -1"),
        (("--decline", "8"), "--decline '8' is no list"),
        (("--decline", "8:0"), "above 0"),
        (("--straggler-factor", 0), "--straggler-factor 0"),
        (("--stragglers", 5), "--stragglers 5 of 4 workers: give fewer"),
        (("--store", "nowhere"), "no store 'nowhere'"),
        (("--workers", 0), "--workers 0"),
        (("--batch-size", 0), "--batch-size 0"),
        (("--batch-size", 2), "cannot be shared by 4 workers"),
        (("--lifetime", -5), "--lifetime -5"),
    ],
)
def test_what_cannot_be_is_refused(
    plan: Path, tmp_path: Path, words: tuple[object, ...], sentence: str
) -> None:
    told = command(plan, *words, "--run-dir", tmp_path / "run", "--json")
    assert told.exit_code == 2
    result = json.loads(told.stdout.splitlines()[-1])
    assert result["status"] == "failed"
    assert sentence in result["error"]
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    for text in ("nonsense", "[]", '{"version": 1}', '{"version": 9, "settings": {}}'):
        file = tmp_path / "wrong.json"
        file.write_text(text)
        told = command(file, "--json")
        assert told.exit_code == 2
        assert "wrong.json" in json.loads(told.stdout.splitlines()[-1])["error"]
    assert command(tmp_path / "missing.json").exit_code == 2


def test_a_run_gives_up_when_life_does() -> None:
    assert POLICY.without_progress_s == deaths.PATIENCE.without_progress_s == 15 * 60
    assert POLICY.deaths_of_one_cause == deaths.DEATHS_OF_ONE_CAUSE


def test_times_of_the_profile_are_those_of_the_run(plan: Path, tmp_path: Path) -> None:
    known = Plan.read(plan)
    slower = replace(known.profile.sizes[0], init_s=Figure.given(3.5))
    changed = replace(known, profile=replace(known.profile, sizes=(slower,)))
    runs = [
        simulated_run(
            SimulationRequest.of(one, "plan", Scenario(), "made", changes={}, of_the_job={}),
            tmp_path / name,
        )
        for name, one in (("usual", known), ("slower", changed))
    ]
    lives = len(runs[0].outcome.attempts) // 4
    assert runs[1].result.total_s - runs[0].result.total_s == pytest.approx(3.0 * lives)
    quick, slow = (run.result for run in runs)
    assert quick.startup_s is not None
    assert slow.startup_s is not None
    assert quick.train_s is not None
    assert slow.startup_s - quick.startup_s == pytest.approx(3.0), "the first life's"
    end_s = known.profile.sizes[0].end_s.value
    assert quick.startup_s + quick.train_s + end_s == pytest.approx(quick.total_s, rel=0.01)
    assert quick.wall_s == quick.total_s  # its old name
