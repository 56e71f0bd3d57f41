"""`dayfly plan`: what it prints, writes and refuses."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dayfly.catalogue.store import StoreFacts
from dayfly.cli.app import app
from dayfly.cli.choice_flags import CHOICE
from dayfly.planning.catalogued import over_store
from dayfly.planning.choose.pipelines.merging import Merging
from dayfly.planning.plan import Plan
from dayfly.planning.profile import Profile, profile_text
from tests.choose.lambda_by_hand import job
from tests.choose.test_from_profile import LAMBDA
from tests.cli import command
from tests.cli.test_planning import FREE, profile_of_fast

#: Few functions and micro-batches, so that it is soon done.
SMALL = ("--workers", 8, "--micro-batches", "4,8")
PARTS = {"compute", "transfer", "sync", "overhead", "start-up"}


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "profile.json"
    file.write_text(profile_text(job(6)))
    return file


def plan(*arguments: object) -> Result:
    """The command, in this process: most of what it takes is importing."""
    return CliRunner().invoke(app, ["plan", *map(str, arguments)], env={"COLUMNS": "120"})


def test_what_the_help_says_of_merging_holds() -> None:
    assert CHOICE["merge_layers"].shown == f"{Merging().most}:{Merging().by}"


@pytest.mark.parametrize(
    "command", [("plan", *SMALL, "--platform", "aws-lambda"), ("plan", *SMALL, "--json")]
)
@pytest.mark.long
def test_a_profile_is_planned_without_torch(profile: Path, command: tuple[object, ...]) -> None:
    """It takes a second to import; nor with pydantic, by which typer reads most flags."""
    code = (
        "import sys\n"
        "from dayfly.cli.app import app\n"
        "try:\n"
        "    app(sys.argv[1:])\n"
        "finally:\n"
        "    print('loaded:', sorted({'torch', 'cloudpickle', 'pydantic'} & set(sys.modules)))\n"
    )
    arguments = [*map(str, command), str(profile)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_garbage_is_collected_again_afterwards(profile: Path) -> None:
    assert gc.isenabled()
    for deadline in ("1h", "1"):  # which nothing meets
        plan(profile, *SMALL, "--deadline", deadline)
        assert gc.isenabled()


def test_a_front_a_choice_and_a_plan(profile: Path, tmp_path: Path) -> None:
    flags = (*SMALL, "--output", "plan.json", "--plot", "plan.html")
    done = plan(profile, *flags, "--json")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    found = command.last_json(done.stdout)
    assert set(found) == {
        *("job", "places", "front", "chosen", "why", "certainty", "gap", "considered"),
        *("predicted", "stores", "why_store", "notes", "took_s", "output", "plots"),
        "epochs_to_target",
    }
    assert found["places"] == [{"platform": "aws-lambda", "store": "s3"}]
    front = found["front"]
    for faster, slower in pairwise(front):
        assert faster["seconds"] < slower["seconds"]
        assert faster["usd"] > slower["usd"]
    assert {one["kind"] for one in front} >= {"pipeline", "data parallel"}
    for one in front:
        assert set(one["breakdown_s"]) == PARTS
        assert sum(one["breakdown_s"].values()) == pytest.approx(one["seconds"], rel=0.02)
        assert one["total_s"] == one["seconds"]  # its old name
        assert 0 < one["startup_s"] < one["startup_s"] + one["train_s"] <= one["total_s"]
        assert one["by"] in ("virtual time", "closed forms")
        assert max(one["memory_mib"]) < 4096
    chosen = front[found["chosen"]]
    assert chosen["marks"][0] == "chosen"
    assert front[0]["marks"][-1] == "fastest" or "fastest" in front[0]["marks"]
    assert found["why"].startswith("Recommended: ")
    assert "as dayfly predict does" in found["certainty"]
    written = Plan.parse((tmp_path / "plan.json").read_text())
    assert dict(written.settings) == chosen["settings"]
    assert written.prediction is not None
    assert written.prediction.total_s == chosen["seconds"]
    assert written.settings["imitate"] == "aws-lambda"
    assert found["plots"] == ["plan.html"]
    assert "Time against dollars" in (tmp_path / "plan.html").read_text()


@pytest.mark.long
def test_a_person_sees_a_table_and_reasons(profile: Path, tmp_path: Path) -> None:
    done = plan(profile, *SMALL, "--deadline", "1m")
    assert done.exit_code == 0, done.stderr
    heads = next(line for line in done.stdout.splitlines() if "total s" in line).split()
    assert heads == [
        "total",
        "s",
        "USD",
        "plan",
        "compute",
        "transfer",
        "sync",
        "other",
        "ends",
    ]
    assert "\n \N{BLACK RIGHT-POINTING TRIANGLE} " in done.stdout
    for name in ("choice", "total time", "bill", "certainty", "how sure"):
        assert any(line.startswith(f"{name} ") for line in done.stdout.splitlines()), name
    assert "The cheapest within the deadline of 60 s." in done.stdout


@pytest.mark.long
def test_the_plan_is_simulated(profile: Path, tmp_path: Path) -> None:
    done = plan(profile, *SMALL, "--output", "plan.json")
    assert done.exit_code == 0, done.stderr
    done = command.run("simulate", "plan.json", "--run-dir", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert command.last_json(done.stdout)["steps"] == 10


@pytest.mark.long
def test_stores_beside_each_other(profile: Path, tmp_path: Path) -> None:
    """Two profiles of a job, over two stores; and one over two stores of the catalogue."""
    other = tmp_path / "other.json"
    quick = StoreFacts(name="elasticache", latency_s=0.001)
    other.write_text(profile_text(over_store(job(6), LAMBDA, quick)))
    done = plan(profile, other, *SMALL, "--json")
    assert done.exit_code == 0, done.stderr
    found = command.last_json(done.stdout)
    assert [one["store"] for one in found["places"]] == ["s3", "elasticache"]
    assert found["front"][0]["store"] == "elasticache"  # less latency, and cheaper requests
    (s3,) = found["stores"]
    chosen = found["front"][found["chosen"]]
    assert s3["store"] == "s3"
    assert s3["seconds"] > chosen["seconds"]
    assert found["why_store"].startswith("Over elasticache it takes ")
    assert "; over s3 it would take " in found["why_store"]
    assert "% more: " in found["why_store"]
    assert "_" not in found["why_store"]
    own = tmp_path / "own" / "stores"
    own.mkdir(parents=True)
    row = 'value = 0.001\nsource = "a guess"\nas_of = "2026-11"\n'
    (own / "elasticache.toml").write_text(f"[latency_s]\n{row}")
    flags = ("--price-store", "s3,elasticache", "--catalogue", tmp_path / "own", "--json")
    done = plan(profile, *SMALL, *flags)
    assert done.exit_code == 0, done.stderr
    again = command.last_json(done.stdout)
    assert again["places"] == found["places"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--deadline", "1s"], "no plan is done within the deadline of 1 s: the fastest is "),
        (["--budget", "1e-6"], "no plan costs as little as the budget of $0.000001: the cheapest"),
        (["--deadline", "soon"], "--deadline 'soon' is no time: give seconds, or 90s, 30m, 2h"),
        (["--deadline", "0"], "--deadline 0: give more than 0"),
        (["--weights", "1"], "--weights 1: give two numbers, as 0.5,0.5"),
        (["--weights", "1,1", "--budget", "1"], "--weights chooses by itself: leave it out"),
        (["--weights", "0,0"], "weights of dollars and seconds 0 and 0"),
        (["--platform", "fargate"], "--platform fargate: the profile of by-hand is of aws-lambda"),
        (["--platform", "moon"], "the catalogue has no platform 'moon'"),
        (["--price-store", "moon"], "the catalogue has no store 'moon'"),
        (
            ["--price-store", "tcp://"],
            "functions of aws-lambda cannot open connections to each other",
        ),
        (["--price-store", "elasticache"], "the catalogue has no latency_s of elasticache"),
        (["--memory", "512"], "has no functions of 512 MiB: it has 1024 MiB, 2048 MiB, 4096 MiB"),
        (["--workers", "0"], "--workers 0: give 1 to 10000"),
        (["--collective", "overlapped,tree"], "--collective 'tree' is not known: give one of all-"),
        (["--collective", "push-pull"], "--collective push-pull needs a channel that sums"),
        (["--batch-size", "0"], "--batch-size 0: give a whole number from 1"),
        (["--batch-size", "64,0"], "--batch-size 0: give a whole number from 1"),
        (
            ["--sync", "local-sgd:8", "--most-batch-size", "512"],
            "--most-batch-size 512: the batch is chosen of bsp and hap",
        ),
        (["--efficiency", "bsp=1.3"], "all is compared with that"),
        (["--fragments", "2"], "--fragments 2 is of no method of --sync: outer gradients are"),
        (
            ["--sync", "bsp,nesterov:8", "--fragments", "none,x"],
            "--fragments 'x' is no list of whole numbers",
        ),
        (["--sync", "nesterov:8", "--overlap", "8"], "--overlap 8 must be less than --k 8"),
        (["--compress", "none,gzip"], "--compress gzip is of no method of --sync"),
        (["--micro-batches", "x"], "--micro-batches 'x' is no list of whole numbers"),
        (["--time-limit", "0"], "--time-limit 0: give seconds above 0"),
        (["--most-batch-size", "0"], "--most-batch-size 0: give a number from 1"),
        (["--flops-per-vcpu", "38.5"], "--flops-per-vcpu is for a job on a platform of the"),
        (["--quick"], "--quick is for a job that is measured: add --platform local"),
        (["--plot", "plan.svg"], "--plot plan.svg: give FILE.html, FILE.png, or a directory"),
    ],
)
def test_what_cannot_be_is_refused(
    flags: list[str], words: str, profile: Path, tmp_path: Path
) -> None:
    out = ("--output", "plan.json")
    done = plan(profile, *SMALL, *flags, *out, "--json")
    assert done.exit_code == 2, done.stdout
    assert words in done.stderr
    assert words in command.last_json(done.stdout)["error"]
    assert not (tmp_path / "plan.json").exists()


def test_a_job_is_measured_at_the_largest_batch_and_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def profile(whole: Any, *rest: object, **more: object) -> Profile:
        measured.append(whole.batch_size)
        return job(6, batch_size=whole.batch_size)

    monkeypatch.setattr("dayfly.runs.profiling.measuring.profile", profile)
    file = tmp_path / "small_job.py"
    file.write_text("from tests.profiling.jobs import job\n\njob = job()\n")
    asked = ("--memory", 1024, "--batch-size", "128,256")
    done = plan(file, "--platform", "local", *asked, "--workers", 4, "--json")
    assert done.exit_code == 0, done.stderr
    assert measured == [256]
    notes = command.last_json(done.stdout)["notes"]
    assert any("bsp@128, bsp@256: assumes as many samples as bsp at batch 64" in x for x in notes)


def test_the_nearest_plan_and_what_binds_are_said(profile: Path, tmp_path: Path) -> None:
    done = plan(profile, *SMALL, "--deadline", "1s")
    assert done.exit_code == 2
    assert "; allow " in done.stderr
    assert ", or more than functions of 4096 MiB" in done.stderr


def test_a_model_that_fits_nowhere(profile: Path) -> None:
    profile.write_text(profile_text(job(2, 4000.0)))
    done = plan(profile, *SMALL)
    assert done.exit_code == 2
    assert "dayfly: no plan: aws-lambda over s3, data parallel: the whole model" in done.stderr
    assert "aws-lambda over s3, pipeline: " in done.stderr


def test_vcpus_of_all_functions(profile: Path) -> None:
    """By hand a function has a vCPU for each GiB."""
    free, limited = (
        command.last_json(plan(profile, *SMALL, *flags, "--json").stdout)["front"]
        for flags in ((), ("--vcpus", 3))
    )
    assert max(used(one) for one in free) > 3
    assert max(used(one) for one in limited) <= 3
    done = plan(profile, *SMALL, "--vcpus", 0)
    assert done.exit_code == 2
    assert "--vcpus 0: give a number above 0" in done.stderr


def used(one: dict[str, Any]) -> float:
    """vCPUs of a plan's functions."""
    settings = one["settings"]
    stages = settings.get("stage_memory_mib") or [settings["memory_mib"]]
    each = settings.get("replicas") or settings.get("workers", 1)
    return sum(stages) / 1024 * each


def test_profiles_of_two_jobs_are_no_choice(profile: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(profile_text(replace(job(), job="another")))
    done = plan(profile, other)
    assert done.exit_code == 2
    assert "the profiles are of different jobs, by-hand, another: plan one at a time" in done.stderr


#: A run of two epochs, of which each has a validation.
RECORDED = Path(__file__).parents[1] / "reading" / "recorded" / "job"


def test_a_target_that_a_run_has_reached_says_the_epochs(profile: Path) -> None:
    """Read off its validations; with too few epochs for a curve nothing further is said."""
    history = json.loads((RECORDED / "history.json").read_text())
    losses = [one["val_loss"] for one in history["epochs"]]
    least = min(losses)
    done = plan(profile, *SMALL, "--target-loss", least, "--curve", RECORDED, "--json")
    assert done.exit_code == 0, done.output
    found = command.last_json(done.stdout)
    epochs = losses.index(least) + 1
    assert found["epochs_to_target"]["epochs"] == epochs
    chosen = found["front"][found["chosen"]]
    assert chosen["job"]["epochs"] == epochs
    assert chosen["settings"]["target_loss"] == least
    assert any(f"was reached in epoch {epochs}" in note for note in found["notes"])
    done = plan(profile, "--target-loss", least / 2, "--curve", RECORDED)
    assert done.exit_code == 2
    assert "epochs with a validation are too few for a curve: train 4 at least" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--curve", "here"), "give the one target that is to be reached, with --target-loss or"),
        (("--curve", "here", "--target-loss", 0.1, "--target-accuracy", 0.9), "give the one"),
        (("--curve", RECORDED, "--target-loss", 0.1, "--epochs", 3), "leave out --epochs, or"),
        (("--curve", "nowhere", "--target-loss", 0.1), "nowhere"),
        (("--target-accuracy", 1.5), "--target-accuracy 1.5: give a share of 1"),
        (("--merge-layers", "1"), "--merge-layers 1: give 2 at least"),
    ],
)
def test_targets_and_layers_that_cannot_be(
    profile: Path, flags: tuple[object, ...], words: str
) -> None:
    done = plan(profile, *flags)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())


def test_two_profiles_of_one_place_are_no_choice(profile: Path) -> None:
    done = plan(profile, profile)
    assert done.exit_code == 2
    assert "two profiles are of aws-lambda over s3: give one of them" in done.stderr


@pytest.mark.long
def test_a_job_on_two_platforms(
    fast: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no row says is refused with its flag, but for a start, which a place like it lends."""
    monkeypatch.chdir(tmp_path)
    flags = ("--platform", "aws-lambda,fargate", "--workers", 4, "--base-memory", 300)
    done = plan(fast, *flags)
    assert done.exit_code == 2
    assert "the catalogue has no vcpu_flops_per_s of fargate: give --flops-per-vcpu" in done.stderr
    fargate = ("--flops-per-vcpu", 38.5, "--uplink", 70, "--downlink", 70)
    done = plan(fast, "--platform", "fargate", *flags[2:], *fargate, "--memory", 1024)
    assert done.exit_code == 0, done.stderr
    said = "fargate has a start of 29.3 s, as of vm-c5-xlarge: say another with --cold-start"
    assert said in done.stdout
    given = (
        *("--cold-start", "1,30", *fargate),
        *("--memory", "1024,2048", "--output", "plan.json"),
    )
    done = plan(fast, *flags, *given, "--json")
    assert done.exit_code == 0, done.stderr
    found = command.last_json(done.stdout)
    places = dict.fromkeys(one["platform"] for one in found["places"])
    assert list(places) == ["aws-lambda", "fargate"]
    stores = [one["store"] for one in found["places"] if one["platform"] == "fargate"]
    assert stores[0] == "s3"
    assert all(name.startswith("vm-") for name in stores[1:])
    assert len(stores) > 1
    chosen = found["front"][found["chosen"]]
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["job"] == {"batch_size": 128, "epochs": 2}
    assert written["settings"]["imitate"] == chosen["platform"]


@pytest.mark.long
def test_a_plan_is_carried_out(fast: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "profile.json"
    sizes = (replace(FREE, memory_mib=1024),)
    file.write_text(profile_text(replace(profile_of_fast(), sizes=sizes)))
    assert plan(file, "--workers", 2, "--epochs", 1, "--output", "plan.json").exit_code == 0
    done = command.run("train", fast, "--plan", "plan.json", "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"]["memory_mib"] == 1024
    assert record["planned"] == {"overridden": [], "changed": [], "unpredicted": None}
