"""`dayfly run` as a user types it: arguments, output, wrong requests, signals, what is left."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayfly.cli.app import app
from dayfly.runs.report import write_report
from dayfly.runs.scripts.worker import telling_pauses_s
from tests.cli import command

pytestmark = pytest.mark.long

WAITS = """
import os, time
from pathlib import Path
print("begun", flush=True)
Path(os.environ["DAYFLY_RUN_DIR"], os.environ["RANK"]).touch()
while not Path("go").exists():
    time.sleep(0.01)
print("went", os.environ["TORCHELASTIC_RESTART_COUNT"])
"""


def test_logs_go_to_standard_output_and_with_json_to_the_other(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "mine.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(
        "import sys\nfrom . import mine\nprint(sys.argv[1:], mine.__name__, __package__)"
    )
    words = "[rank 0] ['--workers', '9', '--', '-x'] package.mine package"
    asked = ("run", "-m", "package.train", "--workers", 9, "--", "-x")
    plain = command.here(*asked, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.splitlines()[0] == words
    assert "status           done" in plain.stdout
    told = command.here("run", "--json", *asked[1:], cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert words in told.stderr.splitlines()
    (line,) = told.stdout.splitlines()
    result = command.last_json(line)
    assert (result["status"], result["epochs"], result["steps"]) == ("done", 0, 0)
    assert result["train_loss"] is None
    assert result["billed_s"] > 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "no script: name a Python file, or --resume DIR"),
        (["gone.py"], "script 'gone.py' is not there"),
        (["wrong.py"], "is no Python: invalid syntax"),
        (["-m", "gone"], "-m gone: there is no such module"),
        (["--workers", "0", "fine.py"], "--workers 0: give 1 to 10000"),
        (["--max-restarts", "-1", "fine.py"], "--max-restarts -1: give 0 or more"),
        (["--channel", "carrier-pigeon://x", "fine.py"], "give one of file:///path"),
        (["--payload", "0.1", "fine.py"], "payloads of 0.1 KB are too small"),
        (["--memory", "64", "fine.py"], "needs at least"),
        (["--epochs", "2", "fine.py"], "No such option"),
        (["--resume", "nowhere"], "holds no run"),
        (["--resume", ".", "fine.py"], "leave out SCRIPT.py"),
    ],
)
def test_a_wrong_request(flags: list[str], words: str, here: Path) -> None:
    """In this process; that the command has the exit code is seen at --resume below."""
    (here / "fine.py").write_text("print('ran')")
    (here / "wrong.py").write_text("def f(:")
    done = CliRunner().invoke(app, ["run", *flags], env={"COLUMNS": "300"})
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "ran" not in done.stdout
    assert not (here / "runs").exists()


@contextlib.contextmanager
def begun(directory: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run whose scripts wait, and its session."""
    (directory / "waits.py").write_text(WAITS)
    asked = ("run", "--workers", 2, "--run-dir", "run", "--json", *more, "waits.py")
    with command.start(*asked, cwd=directory) as process:
        files = directory / "run" / "files"
        command.eventually("scripts", lambda: files.exists() and len(list(files.iterdir())) == 2)
        session = command.session_of(process)
        assert len(command.processes(session)) >= 2
        yield process, session


def ended_by(number: signal.Signals, directory: Path) -> int:
    """Its exit code, after a signal to a run whose scripts wait; nothing is left of it."""
    with begun(directory) as (process, session):
        process.send_signal(number)
        out, errors = process.communicate(timeout=command.WAIT_S)
    assert command.last_json(out)["status"] == "stopped"
    assert "[rank 0] begun" in errors
    assert "dayfly run --resume" in errors
    assert command.nothing_left(session)
    return process.returncode


def test_a_termination_ends_it_at_once(tmp_path: Path) -> None:
    assert ended_by(signal.SIGTERM, tmp_path) == 143


def test_ctrl_c_ends_it_at_once_and_it_can_be_resumed(here: Path) -> None:
    assert ended_by(signal.SIGINT, here) == 130
    (here / "go").touch()
    wrong = command.here("train", "--resume", "run", cwd=here)
    assert wrong.returncode == 2
    assert "holds the run of a script: go on with it by dayfly run --resume" in wrong.stderr
    done = command.here("run", "--resume", "run", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "[rank 1] went 1" in done.stdout.splitlines()


ADDS = """
import os, time, torch, torch.distributed as dist
from pathlib import Path
dist.init_process_group()
for _ in range(20):
    dist.all_reduce(torch.ones(100_000))
Path(os.environ["DAYFLY_RUN_DIR"], os.environ["RANK"]).touch()
time.sleep(600)
"""


@pytest.mark.parametrize(
    "number",
    # Both end a run in one way, which the tests above have of each.
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)],
)
def test_what_was_moved_before_a_signal_is_known(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "adds.py").write_text(ADDS)
    asked = ("run", "--workers", 2, "--run-dir", "run", "--json", "adds.py")
    run = tmp_path / "run"

    def told(rank: int) -> bool:
        file = run / "events" / f"worker-{rank}.jsonl"  # which the first report makes
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return any(one["kind"] == "traffic" and one["puts"] > 20 for one in records)

    with command.start(*asked, cwd=tmp_path) as process:
        command.eventually("sums", lambda: len(list((run / "files").glob("*"))) == 2)
        command.eventually("reports", lambda: told(0) and told(1))
        process.send_signal(number)
        out, errors = process.communicate(timeout=command.WAIT_S)
    assert process.returncode == 128 + number, errors
    result = command.last_json(out)
    assert result["bytes_up"] >= 2 * 20 * 100_000 * 2, "half a vector and more of each sum"
    assert result["requests"] > 80


def test_a_function_tells_early_what_it_moves_and_each_second_later() -> None:
    pauses_s = list(itertools.islice(telling_pauses_s(1.0), 8))
    assert pauses_s == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    # In the suite a command is there at once, and by 1.5 s the script waits, as in `ended_by`.
    "delay_s",
    [0.1, 0.5, pytest.param(1.5, marks=pytest.mark.slow)],
)
def test_ctrl_c_while_it_starts_leaves_nothing_or_a_run(delay_s: float, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    with command.start("run", "--run-dir", "run", "waits.py", cwd=tmp_path) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=command.WAIT_S)
    assert process.returncode in (130, -signal.SIGINT), errors
    assert "Traceback" not in errors or process.returncode == -signal.SIGINT
    run = tmp_path / "run"
    assert not run.exists() or '"status": "stopped"' in (run / "run.json").read_text()


def test_kill_9_leaves_no_process_and_the_next_start_sweeps_the_rest(tmp_path: Path) -> None:
    with begun(tmp_path, "--channel", f"file://{tmp_path}/channel") as (process, session):
        process.kill()
        process.communicate()
    command.eventually("functions' end", lambda: not command.processes(session))
    (tmp_path / "go").touch()
    done = command.here("run", "--resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[rank 0] went 1" in done.stdout.splitlines()
    assert list((tmp_path / "channel").iterdir()) == []
    assert command.nothing_left(session)
    assert "worker-1" in write_report(tmp_path / "run").read_text()


def test_a_function_killed_from_outside_starts_all_again(tmp_path: Path) -> None:
    with begun(tmp_path) as (process, session):
        for pid in command.of_worker(1, session):
            os.kill(pid, signal.SIGKILL)
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        told = next(line for line in lines if "worker 1 was killed from outside" in line)
        # A kill from outside counts towards nothing.
        assert told.strip().endswith("all workers start again")
        (tmp_path / "go").touch()
        out, errors = process.communicate(timeout=command.WAIT_S)
    assert process.returncode == 0, errors
    assert command.last_json(out)["restarts"] == 1
    assert "[rank 1] went 1" in errors.splitlines()
    assert command.nothing_left(session)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_goes_away_does_not_end_the_run(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text("print('line\\n' * 10)\nopen('done', 'w').close()")
    with command.start("run", "--run-dir", "run", *flags, "says.py", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(command.WAIT_S) == 0
        assert "Broken" not in process.stderr.read()
    assert '"status": "done"' in (tmp_path / "run" / "run.json").read_text()


DIES_ONCE = """
import os, sys
from pathlib import Path
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit("no")
"""


def test_lives_are_counted_and_what_is_done_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(DIES_ONCE)
    done = command.here("run", "--run-dir", "run", "once.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    _, _, summary = done.stdout.partition("[rank 0] no\n")
    rows = dict(line.split(maxsplit=1) for line in summary.splitlines())
    assert (rows["lives"], rows["restarts"]) == ("2", "1")
    again = command.here("run", "--resume", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "it was done already: nothing was started" in again.stderr
    assert again.stdout == summary


def test_what_to_type_next_is_what_can_be_done(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    asked = ("run", "--max-restarts", 0)
    script.write_text("raise SystemExit('no')")
    failed = command.here(*asked, "--run-dir", "bare", "fails.py", cwd=tmp_path, COLUMNS="300")
    assert failed.returncode == 1
    assert "to start it again: dayfly run --resume" in failed.stderr
    script.write_text("import os; open(os.environ['DAYFLY_RUN_DIR'] + '/c', 'w').close(); 1 / 0")
    failed = command.here(*asked, "--run-dir", "kept", "fails.py", cwd=tmp_path, COLUMNS="300")
    assert "to go on from the script's own checkpoint: dayfly run --resume" in failed.stderr
    script.write_text("open(__file__, 'a').write('# another'); 1 / 0")
    failed = command.here(*asked, "--run-dir", "other", "fails.py", cwd=tmp_path, COLUMNS="300")
    assert failed.returncode == 1
    assert "--resume" not in failed.stderr
