"""`dayfly profile`, as a user types it: what it measures makes sense, and nothing stays."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dayfly.cli.profile import measure
from dayfly.planning.profile import load_profile, parse_profile
from dayfly.runs.profiling.neighbours import count_beside
from tests.cli import command

JOB = """
import torch, dayfly
from torch import nn

job = dayfly.Job(
    model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    data="digits",
    loss=nn.functional.cross_entropy,
    optimizer=lambda params: torch.optim.Adam(params),
    batch_size=32,
)
"""


def _job(tmp_path: Path, text: str = JOB) -> Path:
    path = tmp_path / "tiny.py"
    path.write_text(text)
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands put what is to go again."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.mark.long
def test_a_small_model(tmp_path: Path, temporary: Path) -> None:
    """One size is too small for PyTorch, which is said; the other is measured."""
    job = _job(tmp_path)
    flags = ("--memory", "64,1024", "--cpu", "0.5", "--uplink", "20", "--latency", "5")
    done = command.run("profile", job, *flags, "--quick", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "functions of 64 MiB are too small" in done.stderr
    said = command.last_json(done.stdout)
    assert said["status"] == "done"
    profile = parse_profile((tmp_path / "profile.json").read_text(), "profile.json")
    assert load_profile(said["profile"]) == profile
    assert list(temporary.glob("dayfly-*")) == []
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []

    assert profile.listed
    assert len(profile.layers) == 4
    assert sum(layer.parameters for layer in profile.layers) == 4 * (65 * 32 + 33 * 10)
    assert (profile.samples, profile.sample_bytes > 0) == (1618, True)
    # Adam keeps two numbers a parameter, and the number of steps.
    assert 2 <= profile.state_per_trained_byte < 2.01
    assert profile.how == "measured"
    assert profile.took_s > 0

    (size,) = profile.sizes
    assert (size.memory_mib, size.cpu_cores, size.cpu_period_s) == (1024, 0.5, 0.02)
    assert [one.samples for one in size.passes] == [4, 8, 16, 32]
    assert all(figure.count >= 3 for one in size.passes for figure in one.forward)
    # So few samples are among the parameters' gradients.
    assert all(one.held_mib is not None and one.held_mib < 8 for one in size.passes)
    assert sum(line(32) for line in size.forward) > 0
    assert size.backward[0](32) == 0 or size.backward[0](32) < size.backward[1](32)
    assert size.base_mib.value > 100
    # What a line is shaped to cannot be beaten.
    assert size.up.message_s(1024) > 0.0049
    assert size.up.message_s(2**22) > 0.95 * 2**22 / 20e6
    assert size.down.message_s(1024) > 0.0049
    assert profile.fit is None  # of one memory size
    # Two of half a core are beside it, if the machine has two cores.
    beside = count_beside(0.5, len(os.sched_getaffinity(0)))
    assert size.crowd_cores == 0.5 * beside
    assert (size.crowd.count > 0, size.crowd.value >= 1) == (beside > 0, True)
    assert size.step_s.count >= 3
    # Quickly, nothing is measured again; the tests beside this one are said.
    assert size.conditions is not None
    assert (size.conditions.attempts, len(size.conditions.pace_s)) == (1, 3)


def test_no_times_are_refused(tmp_path: Path) -> None:
    done = command.run("profile", _job(tmp_path), "--repeat", "0", cwd=tmp_path)
    assert (done.returncode, "repeat is 0: give 1 or more" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "is there already: name another --output, or --force"),
        ({"output": "no/p.json"}, "cannot be written"),
        ({"output": "."}, "there already"),
        ({"output": "x.json", "memory": "none"}, "no list of whole numbers"),
        ({"output": "x.json", "memory": "0"}, "give a number above 0"),
        ({"output": "x.json", "settings": {"imitate": "aws-lambda"}}, "needs --memory"),
        ({"output": "x.json", "job": "no.py"}, "is not there"),
    ],
)
def test_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    job = _job(tmp_path)
    there = tmp_path / "profile.json"
    there.write_text("mine")
    code = measure(
        tmp_path / changes.get("job", job.name),
        tmp_path / changes.get("output", "profile.json"),
        changes.get("memory"),
        lambda: changes.get("settings", {}),
        batch_size=None,
        quick=True,
        force=False,
        as_json=True,
        catalogued={"from_catalogue": False},
    )
    assert code == 2
    assert said in command.last_json(capsys.readouterr().out)["error"]
    assert there.read_text() == "mine"
    assert {file.name for file in tmp_path.iterdir()} <= {"profile.json", "tiny.py", "__pycache__"}


@pytest.mark.long
def test_ctrl_c_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    slow = JOB.replace("import torch, dayfly", "import time, torch, dayfly").replace(
        "batch_size=32", "batch_size=32, transform=lambda x: time.sleep(0.05) or x"
    )
    with command.start("profile", _job(tmp_path, slow), "--json", cwd=tmp_path) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "layers and steps" in line:
                break
        session = command.session_of(process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=command.WAIT_S)
    assert process.returncode == 130
    assert json.loads(output.splitlines()[-1])["status"] == "stopped"
    assert command.nothing_left(session)
    assert not (tmp_path / "profile.json").exists()
    assert list(temporary.glob("dayfly-*")) == []
