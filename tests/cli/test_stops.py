"""Ctrl-C, TERM and kill -9 of the command: what it leaves, and how the run goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import command

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from tests.cli.conftest import FAST

    directory = tmp_path_factory.mktemp("undisturbed")
    (directory / "fast.py").write_text(FAST)
    done = command.here("train", "fast.py", "--workers", 2, "--run-dir", "run", cwd=directory)
    assert done.returncode == 0, done.stderr
    return (directory / "run" / "weights.safetensors").read_bytes()


@contextlib.contextmanager
def training(
    slow: Path, directory: Path, *more: str, before: str = ""
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run that is in the middle of its steps, and its session."""
    asked = ("--workers", 2, "--memory", 600, "--run-dir", "run", "--json", *more)
    events = directory / "run" / "events" / "worker-1.jsonl"
    with command.start("train", slow, *asked, cwd=directory, before=before) as process:
        command.eventually(
            "a step", lambda: events.exists() and '"kind": "step"' in events.read_text()
        )
        session = command.session_of(process)
        assert len(command.processes(session)) >= 2
        assert command.directory_of(session).exists()
        yield process, session


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        # tests/run_command/test_command.py ends scripts by it, and a closed terminal jobs, below.
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_in_order(
    number: signal.Signals, code: int, slow: Path, tmp_path: Path, undisturbed: bytes
) -> None:
    with training(slow, tmp_path) as (process, session):
        process.send_signal(number)
        out, errors = process.communicate(timeout=command.WAIT_S)
        assert process.returncode == code, errors
        result = command.last_json(out)
        assert result["status"] == "stopped"
        assert 0 < result["steps"] < 26, "the checkpoint is of the step at which it stopped"
        assert "dayfly train --resume" in errors
        assert command.nothing_left(session)

    (tmp_path / "hurry").touch()
    done = command.here("train", "--resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == undisturbed


def test_a_second_ctrl_c_ends_it_at_once(slow: Path, tmp_path: Path) -> None:
    endless = "from dayfly.life import generation; generation.STOP_GRACE_S = 1e6\n"
    # Nor are workers that seem to be lost replaced by such as answer.
    endless += "from dayfly.life.platforms import local_call; local_call.STOPPED_LOOKS = 1e6"
    with training(slow, tmp_path, before=endless) as (process, session):
        for rank in range(2):  # a worker that cannot answer the wish to stop
            for pid in command.of_worker(rank, session):
                os.kill(pid, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        told = any("a second Ctrl-C ends it at once" in line for line in lines)
        assert told, "it heard the first"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=command.WAIT_S)
        assert process.returncode == 130
        assert command.nothing_left(session)


def test_kill_9_leaves_no_process_and_the_next_start_sweeps_the_rest(
    slow: Path, fast: Path, tmp_path: Path
) -> None:
    with training(slow, tmp_path) as (process, session):
        process.kill()
        process.communicate()
        command.eventually("functions' end", lambda: not command.processes(session))
    assert command.here("train", fast, "--run-dir", "other", cwd=tmp_path).returncode == 0
    assert command.nothing_left(session)


def test_kill_9_leaves_nothing_in_a_channel_of_the_users_own(
    slow: Path, fast: Path, tmp_path: Path
) -> None:
    channel = tmp_path / "channel"
    with training(slow, tmp_path, "--channel", f"file://{channel}") as (process, session):
        assert list(channel.glob("*/*/from-1"))
        process.kill()
        process.communicate()
    assert command.here("train", fast, cwd=tmp_path).returncode == 0
    assert list(channel.iterdir()) == []
    assert command.nothing_left(session)


def test_a_closed_terminal_stops_the_run_with_a_checkpoint(slow: Path, tmp_path: Path) -> None:
    heard = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    try:
        with training(slow, tmp_path) as (process, session):
            process.send_signal(signal.SIGHUP)
            out, _ = process.communicate(timeout=command.WAIT_S)
            assert process.returncode == 128 + signal.SIGHUP
            assert command.last_json(out)["steps"] > 0
            assert command.nothing_left(session)
    finally:
        signal.signal(signal.SIGHUP, heard)


def test_a_reader_that_goes_away_does_not_end_the_run(fast: Path, tmp_path: Path) -> None:
    with command.start("train", fast, "--run-dir", "run", cwd=tmp_path) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait(command.WAIT_S) == 0
    assert (tmp_path / "run" / "weights.safetensors").exists()


# In the suite, where a command is there at once: while it checks the job, and as functions start.
@pytest.mark.parametrize(
    "delay_s", [0.1, 0.5, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.3, 0.8))]
)
def test_ctrl_c_while_it_starts(delay_s: float, slow: Path, tmp_path: Path) -> None:
    """It leaves nothing; or a run, if that had begun before the signal came."""
    with command.start("train", slow, "--run-dir", "run", cwd=tmp_path) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=command.WAIT_S)
    assert process.returncode in (130, -signal.SIGINT), errors
    assert "Traceback" not in errors or process.returncode == -signal.SIGINT
    run = tmp_path / "run"
    assert not run.exists() or '"status": "stopped"' in (run / "run.json").read_text()
