"""`dayfly bench start`: phases follow from what a run recorded; no speed is asserted."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import start
from dayfly.errors import RequestError, RunFailed


def recorded(directory: Path, name: str, *records: dict[str, Any]) -> None:
    events = directory / "events"
    events.mkdir(exist_ok=True)
    (events / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))


def test_phases_meet_at_what_was_recorded(tmp_path: Path) -> None:
    recorded(
        tmp_path, "coordinator", {"kind": "invoked", "at": 103.0}, {"kind": "invoked", "at": 102.0}
    )
    step = {"kind": "step", "at": 0.0}
    recorded(tmp_path, "worker-0", {**step, "began": 105.0, "step_s": 1.0})
    recorded(
        tmp_path,
        "worker-1",
        {**step, "began": 104.0, "step_s": 1.0},
        {**step, "began": 106.0, "step_s": 3.0},
    )
    found = start.phases(100.0, 110.0, tmp_path, 2)
    assert found == {"command": 2.0, "workers": 2.0, "training": 5.0, "end": 1.0}


def test_a_run_without_a_step_is_none(tmp_path: Path) -> None:
    recorded(tmp_path, "coordinator", {"kind": "invoked", "at": 103.0})
    recorded(tmp_path, "worker-0")
    with pytest.raises(RunFailed, match="took no step"):
        start.phases(100.0, 110.0, tmp_path, 1)


@pytest.mark.parametrize("asked", [["--workers", "0"], ["--rounds", "0"]])
def test_what_cannot_be_measured_is_refused(asked: list[str]) -> None:
    with pytest.raises(RequestError, match="give a whole number from 1"):
        start.run(asked)


@pytest.mark.slow  # six cold processes; the phases are tested above
def test_a_round() -> None:
    result = start.run(["--rounds", "1"])
    command, second = result["rows"]
    assert (command["run"], second["run"]) == ("command", "second run")
    assert command["ratio"] == pytest.approx(command["to_first_step_s"] / result["import_torch_s"])
    page = io.StringIO()
    Console(file=page, width=80).print(start.table(result))
    assert "second run" in page.getvalue()
    assert "…" not in page.getvalue()
