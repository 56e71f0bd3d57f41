"""A page of a run that really happened: by the command, and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dayfly
from dayfly.life.faults import Fault
from tests.cli import command
from tests.report.browser import opened, said
from tests.runs import small


@pytest.mark.long
def test_a_run_with_a_death(tmp_path: Path) -> None:
    job = small.job(small.write_data(tmp_path))
    faults = [Fault(1, 5, "computed")]
    run = dayfly.train(job, workers=2, run_dir=tmp_path / "run", faults=faults, **small.SETTINGS)
    file = run.report()
    assert file == tmp_path / "run" / "report.html"
    data = file.read_text().partition('id="data">')[2].partition("</script>")[0]
    tree = json.loads(data)
    first, second = tree["timeline"]["bands"]
    assert [one[5] for one in first["attempts"]] == ["done"]
    assert [one[5:] for one in second["attempts"]] == [["death", "killed"], ["done", ""]]
    assert {"cold start", "load", "compute"} <= first["spans"].keys()
    assert first["steps"][2::4] == list(range(small.STEPS))
    losses = tree["figures"][0]["series"][0]["line"]
    assert [step for step, _ in losses] == list(range(small.STEPS))
    assert losses[-1][1] == float(f"{json_losses(run)[-1]:.6g}")
    elements = opened(file)
    assert said(elements, "errors") == "0"
    assert "of 2 workers" in said(elements, "drawn")

    # The same by the command, under another price list, and to another place.
    other = tmp_path / "other.html"
    done = command.run("report", "run", "--prices", "fargate", "--output", other, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"report: {other}"
    assert "bill as on fargate" in done.stdout
    assert "as on fargate" in other.read_text()
    assert "as on aws-lambda" in file.read_text()
    done = command.run("report", "run", "--output", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert "name another file with --output" in done.stderr
    assert "Traceback" not in done.stderr


def json_losses(run: dayfly.Run) -> list[float]:
    found: list[float] = json.loads((run.directory / "history.json").read_text())["step_loss"]
    return found
