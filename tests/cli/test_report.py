"""`dayfly report DIR` prints a bill, `dayfly catalogue` what is known; both refuse in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import command
from tests.runs import small

pytestmark = pytest.mark.long

OWN = '[usd_per_request]\nvalue = 1\nsource = "[a] bet"\nas_of = "2026-11"\n'


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A configuration directory with a catalogue of the user's own."""
    file = tmp_path / "config" / "dayfly" / "catalogue" / "platforms" / "aws-lambda.toml"
    file.parent.mkdir(parents=True)
    file.write_text(OWN)
    return tmp_path / "config"


def test_a_bill_under_its_own_list_and_any_other(fast: Path, own: Path, tmp_path: Path) -> None:
    empty = str(tmp_path / "empty")
    done = command.here(
        "train", fast, "--workers", 2, "--run-dir", "run", cwd=tmp_path, XDG_CONFIG_HOME=empty
    )
    assert done.returncode == 0, done.stderr

    def report(*flags: object, home: str = empty) -> str:
        done = command.here("report", "run", *flags, cwd=tmp_path, XDG_CONFIG_HOME=home)
        assert done.returncode == 0, done.stderr
        assert max(len(line) for line in done.stdout.splitlines() if "note" not in line) <= 80
        return done.stdout

    shown = report()
    assert "bill as on aws-lambda, store free" in shown
    for word in ("worker-0", "worker-1", "calls", "billed s", "initialisation", "store requests"):
        assert word in shown
    assert "your own" not in shown
    shown = report("--prices", "fargate", "--price-store", "s3-express")
    assert "bill as on fargate, store s3-express" in shown
    assert " 120.0 " in shown, "two functions, a minute each at least"
    assert "report: run/report-priced.html" in shown, "the run's own page stays"
    for flags, home in ((["--catalogue", own / "dayfly" / "catalogue"], empty), ([], str(own))):
        shown = report(*flags, home=home)
        assert "your own catalogue says: aws-lambda: usd_per_request" in shown
        assert "2.0000" in shown

    for flags, said in (
        (["--prices", "monopoly"], "the catalogue has no platform 'monopoly': give one of"),
        (["--store", "alibaba-oss"], "the catalogue has no prices of store alibaba-oss"),
        (["--catalogue", "nowhere"], "is no directory"),
    ):
        done = command.here("report", "run", *flags, cwd=tmp_path, XDG_CONFIG_HOME=empty)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_which_stage_is_the_slowest(fast: Path, tmp_path: Path) -> None:
    """Told of a run that was not cut, as if it had been: a stage on each of its two workers."""
    done = command.here("train", fast, "--workers", 2, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before = command.here("report", "run", cwd=tmp_path).stdout
    assert "pipeline" not in before
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    cut = record["settings"] | {"cut": [1], "replicas": 1}
    small.change_record(tmp_path / "run", settings=cut)
    for rank in (0, 1):
        events = tmp_path / "run" / "events" / f"worker-{rank}.jsonl"
        told = [json.loads(line) for line in events.read_text().splitlines()]
        passes = [["f", 0, 0.0, 1.0 + rank], ["b", 0, 3.0, 6.0 + rank]]
        changed = [one | {"passes": passes} if one["kind"] == "step" else one for one in told]
        events.write_text("".join(json.dumps(one) + "\n" for one in changed))
    after = command.here("report", "run", cwd=tmp_path).stdout
    assert max(map(len, after.splitlines())) <= 80
    assert "pipeline: Stage 1 (layers 1 to the last) is the slowest: 6 ms a micro-batch, 1.2 " in (
        " ".join(after.split())
    )


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    done = command.here("report", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "holds no run: it has no run.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_training_with_a_catalogue_of_ones_own(fast: Path, own: Path, tmp_path: Path) -> None:
    flags = ("train", fast, "--run-dir", "run", "--json")
    done = command.here(*flags, cwd=tmp_path, XDG_CONFIG_HOME=str(own))
    assert done.returncode == 0, done.stderr
    assert command.last_json(done.stdout)["cost_usd"] > 1
    assert "aws-lambda: your own catalogue gives usd_per_request" in done.stderr
    shown = command.here("report", "run", cwd=tmp_path, XDG_CONFIG_HOME=str(tmp_path / "empty"))
    assert "your own catalogue says: aws-lambda: usd_per_request" in shown.stdout


def test_a_wrong_catalogue_is_refused_before_anything_starts(fast: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "own" / "platforms" / "aws-lambda.toml"
    wrong.parent.mkdir(parents=True)
    wrong.write_text("[usd_per_request]\nvalue = -1\n")
    flags = ("train", fast, "--run-dir", "run", "--catalogue", "own")
    done = command.here(*flags, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{wrong}: usd_per_request lacks 'as_of': add it" in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_catalogue_can_be_looked_at(own: Path, tmp_path: Path) -> None:
    def shown(*arguments: str) -> str:
        done = command.here(
            "catalogue", *arguments, cwd=tmp_path, COLUMNS="200", XDG_CONFIG_HOME=str(own)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    names = shown()
    assert "aws-lambda" in names
    assert "s3-express" in names
    rows = shown("aws-lambda")
    for word in ("memory_max_mib", "10240", "2026-11", "docs.aws.amazon.com", "your own: [a] bet"):
        assert word in rows
    assert "8192: 2" in shown("cloud-run")
    done = command.here("catalogue", "moon", cwd=tmp_path)
    assert done.returncode == 2
    assert "the catalogue has no 'moon': give one of" in done.stderr
