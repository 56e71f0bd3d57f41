"""What a command says of a run that is over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dayfly.cli.outcome import FAILED, conclude, shown
from dayfly.runs.result import Result
from dayfly.runs.scripts.record import ScriptRun
from tests.cli import command


def test_a_bill_that_is_not_known_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")  # there is a run to go on with
    result = Result(run_id="x", status="failed", error="its results cannot be written: no space")
    code = conclude(lambda: ScriptRun(tmp_path, result, lives=2), as_json=False)
    assert code == FAILED
    said = capsys.readouterr()
    names = [line[:17].strip() for line in said.out.splitlines()]
    assert names == ["status", "total time", "lives", "restarts", "files"]
    assert "to start it again: dayfly run --resume" in said.err


def test_a_loop_that_was_stopped_says_from_what_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "latest.json").write_text("{}")
    result = Result(run_id="x", status="stopped", stop_reason="signal", epochs=1)
    conclude(lambda: ScriptRun(tmp_path, result), as_json=False)
    said = capsys.readouterr()
    assert "stopped, after 1 epoch (signal)" in said.out
    assert "to go on from the checkpoint of its loop: dayfly run --resume" in said.err


def test_ctrl_c_is_told_with_what_it_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    def waits(*said: str) -> None:
        raise KeyboardInterrupt(*said)

    assert shown(lambda: waits("the request stays")) == 130
    assert shown(waits) == 130
    assert capsys.readouterr().err.splitlines() == [
        "dayfly: the request stays",
        "dayfly: stopped by SIGINT",
    ]


def test_ctrl_c_ends_what_has_no_handler_of_its_own_at_once(tmp_path: Path) -> None:
    """As a plan, in whose forks the terminal interrupts, too: one line says so."""
    waits = """
import os, time
from dayfly.cli import choosing
def plan(*_, **__):
    os.fork()
    print("waits", flush=True)
    time.sleep(60)
choosing.plan = plan
"""
    with command.start("plan", "any.json", cwd=tmp_path, before=waits) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["waits\n"] * 2
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=command.WAIT_S)
    assert (process.returncode, said) == (130, "dayfly: stopped by SIGINT\n")
