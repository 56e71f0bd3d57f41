"""`dayfly bench training`: its shape, that both sides do the same, and that nothing stays."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from benchmarks.parts.measured import Measured
from benchmarks.parts.peer import TorchDDP
from benchmarks.parts.workloads import WORKLOADS, workload_of
from rich.console import Console

from benchmarks import training
from dayfly.errors import RunFailed
from dayfly.life.sessions import Session
from tests.benchmarks.left import scratch
from tests.cli import command

pytestmark = pytest.mark.long

TINY = ["--quick", "--rounds", "1", "--workers", "2", "--models", "digits-cnn"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands put what is to go again; benches of other tests have theirs elsewhere."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


def test_a_short_run(tmp_path: Path, temporary: Path) -> None:
    done = command.run("bench", "training", *TINY, "--profile", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "round 1 of 1" in done.stderr
    assert len(done.stdout.splitlines()) == 1
    result = command.last_json(done.stdout)
    assert (result["bench"], result["status"], result["rounds"]) == ("training", "done", 1)
    assert result["machine"]["torch"] == torch.__version__
    (row,) = result["rows"]
    assert (row["model"], row["workers"], row["parameters"]) == ("digits-cnn", 2, 38_282)
    (one,) = row["rounds"]
    ratio = one["dayfly_steps_per_s"] / one["gloo_steps_per_s"]
    assert row["ratio"] == row["ratio_min"] == row["ratio_max"] == pytest.approx(ratio)
    # The same first weights, batches and steps: equal but for the order of sums.
    assert row["losses_apart"] < 1e-3
    assert row["dayfly_last_loss"] < 2.2, "it learns: the first loss is 2.3"
    profile = row["profile"]
    assert {"step", "compute", "apply", "between steps"} <= profile["dayfly_ms"].keys()
    parts = ("data", "forward", "backward", "optimizer", "loss")
    for side in ("gloo_ms", "alone_ms"):
        whole = profile[side]
        assert 0 < sum(whole[part] for part in parts) <= whole["step"]
    assert profile["gloo_reduce_ms"] > 0
    page = io.StringIO()
    Console(file=page, width=80).print(training.table(result))
    text = page.getvalue()
    assert "digits-cnn" in text
    assert f"{row['ratio']:.2f}" in text
    assert "between steps" in text
    assert scratch(temporary) == []
    assert list(tmp_path.iterdir()) == [temporary]


@contextlib.contextmanager
def started(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A bench in the middle of its first round, and its session, which its peers are of."""
    with command.start("bench", "training", *TINY, "--rounds", "9", cwd=directory) as process:
        assert process.stderr is not None
        assert "round 1" in process.stderr.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        marks = [
            mark for pid in children for mark in command._marks(pid) if mark.endswith(".peers")
        ]
        assert len(marks) == 2
        (session,) = {mark.partition(".")[0] for mark in marks}
        assert len(command.processes(session)) >= 2
        yield process, session


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        # test_distributed.py and test_collectives.py have it for their benches.
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_signal_leaves_nothing(
    number: signal.Signals, code: int, tmp_path: Path, temporary: Path
) -> None:
    with started(tmp_path) as (process, session):
        command.eventually("the first run's files", lambda: len(scratch(temporary)) == 1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=command.WAIT_S)
        assert process.returncode == code, errors
        assert "Traceback" not in errors
        assert command.processes(session) == []
    assert not command.directory_of(session).exists()
    assert scratch(temporary) == []


@pytest.mark.slow
def test_kill_9_leaves_no_process_and_the_next_session_sweeps_the_rest(
    tmp_path: Path, temporary: Path
) -> None:
    with started(tmp_path) as (process, session):
        process.kill()
        process.communicate()
        command.eventually("the peers' end", lambda: not command.processes(session))
    Session.open().close()
    assert not command.directory_of(session).exists()
    assert scratch(temporary) == []


@pytest.mark.slow
def test_a_peer_that_dies_is_said(tmp_path: Path) -> None:
    workload = workload_of("digits-cnn", quick=True)
    workload.write_data(tmp_path / "data")
    (tmp_path / "data" / "y_train.npy").write_bytes(b"no array")
    with (
        Session.open() as session,
        TorchDDP(workload.name, True, tmp_path / "data", 2, session) as peer,
        pytest.raises(RunFailed, match="it ended; the end of its log"),
    ):
        peer.train()


def test_sides_that_do_not_train_alike_are_refused() -> None:
    ours = Measured(steps_per_s=1.0, losses=[2.0, 1.0])
    theirs = Measured(steps_per_s=1.0, losses=[2.0, 1.1])
    with pytest.raises(RunFailed, match="the loss of step 1 of digits-cnn"):
        training._same_work(WORKLOADS["digits-cnn"], ours, theirs)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS.keys())
def test_workloads_have_steps_to_measure(workload: object) -> None:
    assert isinstance(workload, type(WORKLOADS["resnet18"]))
    for form in (workload, workload.quick()):
        assert form.measured_steps >= 3
        assert form.warm_steps >= 1
