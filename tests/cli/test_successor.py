"""What this process becomes once its coordinator's lifetime is over."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from dayfly.cli.successor import Successor
from dayfly.errors import RunFailed
from tests.cli import command


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--successor", "true {run}"], "add --coordinator-lifetime"),
        (["--coordinator-lifetime", "9", "--successor", "true"], r"write {run} in its place"),
        (["--coordinator-lifetime", "9", "--successor", "no-such {run}"], "no program no-such"),
        (["--coordinator-lifetime", "9", "--successor", "'"], "No closing quotation"),
        (["--coordinator-lifetime", "0"], "--coordinator-lifetime 0 s: give a number above 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    flags: list[str], why: str, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text("")
    done = command.here("train", "job.py", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert why in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.py"]


@pytest.mark.parametrize("url", [None, "s3://bucket/runs/one"])
def test_it_gets_the_run_where_that_is_kept(
    url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": 3, "store": url}))
    became: list[tuple[str, list[str]]] = []

    def execvp(program: str, arguments: list[str]) -> None:
        became.append((program, arguments))
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "execvp", execvp)
    run = url or str(tmp_path)
    for one in (
        Successor.checked("sh host 'dayfly train --resume {run}'"),
        Successor.here("train", ["--json"]),
    ):
        with pytest.raises(RunFailed, match="go on with the run by --resume"):
            one.take_over(tmp_path)
    assert became == [
        ("sh", ["sh", "host", f"dayfly train --resume {run}"]),
        (sys.executable, [sys.executable, "-m", "dayfly", "train", "--resume", run, "--json"]),
    ]


@pytest.mark.long
def test_a_script_that_keeps_nothing_is_not_handed_over_for_ever(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import time; time.sleep(60)")
    flags = ("--coordinator-lifetime", "0.001", "--run-dir", "one")
    done = command.run("run", *flags, "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "ended before the run came any further: raise --coordinator-lifetime" in done.stderr
