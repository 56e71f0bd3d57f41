"""`dayfly stop` and `dayfly runs`, as another terminal types them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dayfly.cli.steering import _CHANGES
from dayfly.runs.changes import flag_of
from tests.cli import command


@contextmanager
def under_way(slow: Path, here: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in the middle of its steps."""
    events = here / "runs" / "one" / "events" / "worker-1.jsonl"
    asked = ("--workers", 2, "--run-dir", "runs/one", "--json")
    with command.start("train", slow, *asked, cwd=here) as process:
        command.eventually(
            "a step", lambda: events.exists() and '"kind": "step"' in events.read_text()
        )
        yield process


@pytest.mark.long
def test_a_run_is_listed_and_stopped_from_elsewhere(slow: Path, tmp_path: Path) -> None:
    with under_way(slow, tmp_path) as process:
        (row,) = json.loads(command.here("runs", "--json", cwd=tmp_path).stdout)
        assert row["status"] == "running"
        asked = ("scale", "one", "--workers", 1, "--cold-start", 60)
        with command.start(*asked, cwd=tmp_path) as scale:
            requests = tmp_path / "runs" / "one" / "control"
            command.eventually("a request", lambda: requests.is_dir() and any(requests.iterdir()))
            scale.send_signal(signal.SIGINT)
            said = scale.communicate(timeout=60)[1]
        assert (scale.returncode, said) == (
            130,
            f"dayfly: the request stays: {tmp_path}/runs/one is still to be changed\n",
        )
        stopped = command.here("stop", "one", cwd=tmp_path)
        assert (stopped.returncode, stopped.stdout.split()[-1]) == (0, "stopped"), stopped.stderr
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert command.last_json(out)["status"] == "stopped"
    for name in ("runs/one", row["run_id"]):
        again = command.here("stop", name, cwd=tmp_path)
        assert again.stdout.endswith("runs/one is stopped already\n")
    listed = command.here("runs", cwd=tmp_path).stdout
    assert "stopped" in listed


@pytest.mark.long
def test_one_whose_coordinator_was_killed_is_lost_and_cannot_be_stopped(
    slow: Path, tmp_path: Path
) -> None:
    with under_way(slow, tmp_path) as process:
        process.kill()
        process.communicate()
    (row,) = json.loads(command.here("runs", "--json", cwd=tmp_path).stdout)
    assert row["status"] == "lost"
    refused = command.here("stop", "one", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no process runs" in refused.stderr


def test_a_change_is_told_by_its_flags() -> None:
    for name, flag in _CHANGES.items():
        assert flag_of(flag.setting or name) == f"--{name.replace('_', '-')}"


def test_what_is_no_run_is_refused_and_what_is_damaged_is_listed(tmp_path: Path) -> None:
    refused = command.here("stop", "none", cwd=tmp_path)
    assert refused.returncode == 2
    assert (
        "there is no run 'none': give its directory, its URL in a store, or the id"
        in refused.stderr
    )
    assert command.here("runs", cwd=tmp_path).stdout.startswith("no runs in")
    (tmp_path / "runs" / "bad").mkdir(parents=True)
    (tmp_path / "runs" / "bad" / "run.json").write_text("{}")
    (bad,) = json.loads(command.here("runs", "--json", cwd=tmp_path).stdout)
    assert (bad["run_id"], bad["status"]) == ("bad", "damaged")
    assert "run.json lacks 'format'" in bad["error"]
    assert f"bad: {bad['error']}" in command.here("runs", cwd=tmp_path).stdout


@pytest.mark.long
def test_a_detached_run_goes_on_alone_and_is_followed_to_its_end(
    fast: Path, tmp_path: Path
) -> None:
    asked = ("train", fast, "--workers", 2, "--detach", "--json")
    done = command.run(*asked, cwd=tmp_path)
    begun = command.last_json(done.stdout)
    assert (done.returncode, begun["status"]) == (0, "running"), done.stderr
    followed = command.here("follow", begun["run_id"], cwd=tmp_path)
    assert followed.returncode == 0, followed.stderr
    *epochs, last = followed.stdout.splitlines()
    numbers = [line.partition(":")[0] for line in epochs if line.startswith("epoch")]
    assert numbers == [f"epoch {number}" for number in range(1, len(numbers) + 1)] != []
    assert last.endswith("is done")
    log = Path(begun["directory"]) / "logs" / "coordinator.log"
    command.eventually("the summary", lambda: '"status": "done"' in log.read_text())


@pytest.mark.long
def test_a_wrong_request_is_refused_as_without_detach(fast: Path, tmp_path: Path) -> None:
    refused = command.run("train", fast, "--workers", 0, "--detach", "--json", cwd=tmp_path)
    assert refused.returncode == 2
    assert command.last_json(refused.stdout)["error"] in refused.stderr
    assert not (tmp_path / "runs").exists()
    none = command.here("follow", "nothing", cwd=tmp_path)
    assert (none.returncode, none.stdout) == (2, "")
