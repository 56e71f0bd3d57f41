"""The command is killed at every write into the run's directory; the run can always be taken up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.runs.directory import MARKER, fresh_directory
from tests.runs import small

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 300.0

Undisturbed = Callable[[int], dayfly.Run]


def killed_at_every_write(phase: str, data: Path, run_dir: Path) -> dict[str, Any]:
    spec = json.dumps({"data": str(data), "run_dir": str(run_dir)})
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.kills", phase, spec],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow  # tens of runs; the test of the results has the same kills, in fewer places
def test_a_command_killed_before_the_first_step_begins_again_in_the_same_directory(
    data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    told = killed_at_every_write("begin", data, directory)
    assert told["kills"] > 20
    kinds = [said.rpartition(": ")[2] for said in told["said"]]
    nothing = "it has no run.json"
    begun = "give that command again"
    assert set(kinds) == {nothing, begun, "running"}
    assert kinds == sorted(kinds, key=[nothing, begun, "running"].index), "in this order"
    assert kinds.count(nothing) == 2, "before there is a directory, or a marker in it"
    assert not (directory / MARKER).exists()
    dayfly.resume(directory, workers=2, progress=False, log_budget_mib=1)
    assert small.bits(directory) == small.bits(undisturbed(2))


@pytest.mark.long
def test_a_command_killed_while_it_writes_the_results_ends_with_the_same(
    data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    reference = undisturbed(2).directory
    shutil.copytree(reference, directory)
    small.change_record(directory, status="running", result=None)
    for name in ("bill.json", "history.json", "weights.safetensors"):
        (directory / name).unlink()
    told = killed_at_every_write("end", data, directory)
    assert told["kills"] > 8
    assert told["said"] == sorted(told["said"], key=["running", "done"].index)
    assert small.bits(directory) == small.bits(reference)
    now, then = (json.loads((one / "bill.json").read_text()) for one in (directory, reference))
    # Of the coordinator's own time, which was measured.
    assert now.pop("coordinator_usd") > 0 < then.pop("coordinator_usd")
    assert now == then
    assert not list(directory.rglob("*.tmp")), "what was half written is gone"


@pytest.mark.parametrize("left", [{}, {MARKER: ""}, {MARKER: "a run that is being prepared"}])
def test_a_directory_in_which_nothing_had_begun_is_taken(
    left: dict[str, str], tmp_path: Path
) -> None:
    for name, text in left.items():
        (tmp_path / name).write_text(text)
    if left.get(MARKER):
        (tmp_path / "lock").write_text("123")
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "old").touch()
    with fresh_directory(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, "lock"]
        (tmp_path / "run.json").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "run.json"]


@pytest.mark.parametrize(
    "there",
    [
        {"mine": ""},
        {"lock": ""},
        {"data": ""},
        {MARKER: "", "data": ""},
        {MARKER: "a channel", "data": ""},
        {MARKER: "a run that is being prepared", "mine": ""},
        {MARKER: "a run that is being prepared", "run.json": "{}"},
    ],
    ids=str,
)
def test_nothing_is_removed_that_is_not_what_a_killed_command_left(
    there: dict[str, str], tmp_path: Path
) -> None:
    for name, text in there.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(dayfly.RequestError, match="is not empty"), fresh_directory(tmp_path):
        raise AssertionError("it was taken")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == there


def test_two_that_begin_in_one_directory_do_not_disturb_each_other(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with fresh_directory(directory):
        (directory / "job").mkdir()
        with (
            pytest.raises(dayfly.RequestError, match="is being run by process"),
            fresh_directory(directory),
        ):
            raise AssertionError("it was taken")
        assert (directory / "job").is_dir()
        (directory / "run.json").touch()
