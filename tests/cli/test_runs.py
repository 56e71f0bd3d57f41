"""`dayfly runs list`, `compare` and `rm`, on the files of runs that are over."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dayfly.cli.app import app
from dayfly.cli.convergence_flags import CONVERGENCE
from dayfly.cli.flag_groups import GROUPS
from dayfly.cli.function_flags import FUNCTION_FLAGS
from dayfly.cli.training_flags import TRAINING_FLAGS
from dayfly.runs.directory import locked
from dayfly.runs.report.side_by_side import ticks
from dayfly.runs.steering import KeptRun
from dayfly.wire.stores.base import StoreUnreachable
from tests.runs.small import change_record

RECORDED = Path(__file__).parents[1] / "reading" / "recorded" / "job"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the runs a, b and c."""
    losses = {"a": 0.5, "b": 0.2, "c": None}
    for name, loss in losses.items():
        directory = tmp_path / "runs" / name
        shutil.copytree(RECORDED, directory)
        record = json.loads((directory / "run.json").read_text())
        result = record["result"] | {"val_loss": loss}
        workers = record["settings"]["workers"] + (name == "b")
        settings = record["settings"] | {"workers": workers}
        status = "failed" if name == "c" else "done"
        change_record(
            directory, run_id=f"job-{name}", result=result, settings=settings, status=status
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(*arguments: str, code: int = 0, **more: Any) -> str:
    done = CliRunner().invoke(app, ["runs", *arguments], **more)
    assert done.exit_code == code, done.output
    return done.output


def ids(*arguments: str) -> list[str]:
    return [row["run_id"] for row in json.loads(told(*arguments, "--json"))]


def test_runs_are_filtered_and_sorted(here: Path) -> None:
    assert ids() == ids("list", "runs") == ["job-a", "job-b", "job-c"]
    assert ids("--status", "done", "--sort", "val_loss") == ["job-b", "job-a"]
    assert ids("--sort", "-val_loss") == ["job-a", "job-b", "job-c"]
    assert ids("--name", "*-[bc]") == ["job-b", "job-c"]
    metric = json.loads(told("--metric", "train_loss", "--sort", "train_loss", "--json"))
    history = json.loads((RECORDED / "history.json").read_text())
    assert metric[0]["train_loss"] == history["epochs"][-1]["train_loss"]
    assert "one of began_at, run_id" in told("--sort", "nothing", code=2)


def test_a_run_that_cannot_be_read_says_why(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "runs" / "a" / "history.json").write_text("{")
    (here / "runs" / "b" / "run.json").write_text(json.dumps({"format": 3, "store": "file:///\0"}))

    def no_answer(self: KeptRun) -> None:
        raise StoreUnreachable("s3 does not answer")

    b, a, _ = json.loads(told("--metric", "train_loss", "--json"))  # b does not say when it began
    assert (a["status"], a["train_loss"]) == ("done", None)
    assert "history.json is no JSON" in a["error"]
    assert (b["status"], "a control character" in b["error"]) == ("damaged", True)
    monkeypatch.setattr(KeptRun, "record", no_answer)
    assert json.loads(told("--json"))[0]["status"] == "unreachable"
    assert "s3 does not answer" in told()

    def mistaken(self: KeptRun) -> None:
        raise TypeError("a mistake of dayfly's own")

    monkeypatch.setattr(KeptRun, "record", mistaken)
    told(code=1)


def test_a_run_that_was_killed_is_listed_with_the_epochs_that_it_told_of(here: Path) -> None:
    change_record(here / "runs" / "a", status="running", result=None)
    last = json.loads((RECORDED / "history.json").read_text())["epochs"][-1]
    (row,) = json.loads(told("--status", "lost", "--json"))
    assert (row["epochs"], row["val_loss"]) == (last["epoch"], last["val_loss"])
    (here / "runs" / "b" / "run.json").write_text("{}")
    assert "1970" not in told()


def test_runs_are_compared_in_a_table_and_on_a_page(here: Path) -> None:
    found = json.loads(told("compare", "runs/a", "job-b", "--output", "both.html", "--json"))
    assert [run["run_id"] for run in found["runs"]] == ["job-a", "job-b"]
    assert found["differing"].keys() == {"workers"}
    page = (here / "both.html").read_text()
    assert "<script" not in page
    assert page.count('<path class="run run-1"') > 1  # a line a chart, and the legend's
    assert "Settings that differ" in told("compare", "job-a", "job-b", "--output", "x.html") + page
    assert "two or more" in told("compare", "job-a", code=2)
    assert "each once" in told("compare", "job-a", "runs/a", code=2)
    assert "give --output" in told("compare", "job-a", "job-b", "--open", code=2)


def test_a_run_is_shown_with_what_each_epoch_took(here: Path) -> None:
    whole = told("show", "job-a")
    assert whole.startswith("job-a  done  ")
    found = json.loads(told("show", "runs/a", "--json"))
    history = json.loads((RECORDED / "history.json").read_text())["epochs"]
    for one, record in zip(found["history"], history, strict=True):
        assert one["train_loss"] == record["train_loss"]
        assert one["seconds"] > 0
        assert one["cost_usd"] > 0
        assert f"{one['samples_per_s']:.4g}"[:3] in whole
    assert "no run" in told("show", "nothing", code=2)


def test_a_run_is_removed_after_asking(here: Path) -> None:
    runs = here / "runs"
    (runs / "a" / "report.html").write_text("page")
    assert "add --yes" in told("rm", "job-a", "--json", code=2)
    assert "there is no run" in told("rm", "job-a", "none", "--yes", code=2)
    assert (runs / "a" / "run.json").is_file()
    assert json.loads(told("rm", "job-a", "--yes", "--json"))["removed"] == ["job-a"]
    assert not (runs / "a").exists()


def test_of_a_run_in_a_store_the_copy_goes_and_it_says_where_the_run_is(here: Path) -> None:
    url = f"file://{here}/store/job-a"
    change_record(here / "runs" / "a", store=url)
    said = told("rm", "job-a", "--yes")
    assert "the copy of job-a" in said
    assert f"the run itself stays: dayfly runs rm {url}" in said
    assert not (here / "runs" / "a").exists()


def test_what_is_not_the_runs_stays(here: Path) -> None:
    run, outside = here / "runs" / "b", here / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    (run / "notes.txt").write_text("mine")
    shutil.rmtree(run / "checkpoint")
    (run / "checkpoint").symlink_to(outside)
    assert "stays, with notes.txt" in told("rm", "job-b", "--yes")
    assert os.listdir(run) == ["notes.txt"]
    assert (outside / "mine").read_text() == "mine"


def test_one_that_goes_on_or_is_a_link_is_refused(here: Path) -> None:
    run = here / "runs" / "a"
    with locked(run):
        assert "is being run by process" in told("rm", "job-a", "--yes", code=2)
    (here / "link").symlink_to(run)
    assert "or a link" in told("rm", "link", "--yes", code=2)
    assert (run / "history.json").is_file()


def test_ticks_are_round() -> None:
    assert ticks(0.03, 0.31) == [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert ticks(-7, 4) == [-6, -4, -2, 0, 2, 4]


def test_every_flag_of_a_run_stands_in_a_group_of_the_help() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted({**FUNCTION_FLAGS, **TRAINING_FLAGS, **CONVERGENCE})
    shown = [CliRunner().invoke(app, [name, "--help"]).output for name in ("train", "profile")]
    for head in ("Options", *GROUPS):
        assert any(f"─ {head} ─" in output for output in shown), head
