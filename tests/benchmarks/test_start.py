"""`dayfly bench start`: what it asks for and shows; no speed is asserted."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import start
from dayfly.errors import RequestError, RunFailed


def test_a_run_without_a_step_is_none(tmp_path: Path) -> None:
    invoked = {"kind": "invoked", "at": 103.0, "function": "worker-0", "attempt": 0}
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "coordinator.jsonl").write_text(json.dumps(invoked) + "\n")
    with pytest.raises(RunFailed, match="took no step"):
        start._spent(100.0, 110.0, tmp_path)


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
