"""Some of what `make soak` does for ten minutes: random deaths, same bits, nothing left behind."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.soak import processes
from tests.soak.budgets import budgets
from tests.soak.plan import SHORT, plan, plans, variants
from tests.soak.soak import Soak
from tests.soak.summary import Summary

pytestmark = pytest.mark.long

#: After so many seconds no run is begun or killed at from outside; but however slow the machine,
#: one of each protocol, and one whose size changes, is.
SOAK_S = 10.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_deaths_of_workers_and_coordinators_leave_the_same_bits(
    tmp_path: Path, seed: int
) -> None:
    lines = [f"--seed {seed}"]
    soak = Soak(tmp_path / "soak", lines.append)
    least = len(variants())
    soak.carry_out(plans(seed, SHORT), until=time.monotonic() + SOAK_S, at_least=least)

    summary, counts = soak.summary, soak.summary.counts
    assert summary.failures == [], "\n".join(lines)
    assert counts["runs"] == counts["equal"] >= least
    # Deaths at fault points do not depend on how fast the machine is.
    assert counts["injected"] >= least
    assert counts["injected coordinator"] >= least
    assert counts["resume"] >= counts["injected coordinator"]
    assert counts["function"] + counts["zygote"] + counts["coordinator"] > 0
    assert counts["asked"] >= least
    assert len(lines) == 1 + counts["runs"]


@pytest.mark.slow  # minutes; test_in_order.py has how events come about, test_scaling.py one resize
@pytest.mark.timeout(900)
def test_events_one_after_another_leave_the_same_bits(tmp_path: Path, seed: int) -> None:
    lines = [f"--seed {seed}"]
    soak = Soak(tmp_path / "soak", lines.append)
    soak.events(seed, 40)
    counts = soak.summary.counts
    assert soak.summary.failures == [], "\n".join(lines)
    assert counts["equal"] == 1
    assert counts["events"] == 40
    assert counts["function"] > 0
    assert counts["resize"] > 0


@pytest.mark.slow  # statistics; test_caps.py has one
@pytest.mark.timeout(900)
def test_runs_stay_within_random_budgets_whatever_dies(tmp_path: Path, seed: int) -> None:
    lines = [f"--seed {seed}"]
    soak = Soak(tmp_path / "soak", lines.append)
    soak.budgets(islice(budgets(seed), 20), at_once=3)
    counts = soak.summary.counts
    assert soak.summary.failures == [], "\n".join(lines)
    assert counts["within"] + counts["refused"] == counts["runs"] == 20
    assert counts["afforded"] > 0


def test_a_difference_is_a_failure_and_its_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in peace, compared with other weights."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "weights.safetensors").write_bytes(b"other weights")
    (other / "history.json").write_text('{"epochs": []}')
    monkeypatch.setattr(Soak, "_train_undisturbed", lambda *arguments: other)
    lines: list[str] = []
    soak = Soak(tmp_path / "soak", lines.append)
    peace: dict[str, Any] = {"faults": (), "kills": (), "asks": (), "outages": ()}
    peaceful = replace(plan(12, 0, SHORT), **peace, least_s=0.0)
    soak.carry_out([peaceful], until=time.monotonic(), at_least=1)
    (failure,) = soak.summary.failures
    assert "the final weights differ" in failure
    assert soak.summary.counts["equal"] == 0
    assert (tmp_path / "soak" / "run-0" / "weights.safetensors").exists()
    assert failure in soak.summary.table()


def test_what_is_left_behind_is_found(tmp_path: Path) -> None:
    session, token = secrets.token_hex(6), secrets.token_hex(6)  # the kernel is everybody's
    assert processes.left_behind(token, {session}, tmp_path) == []

    program = f"import time; print(flush=True); time.sleep(600)  # {token}"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env={processes.MARK: token}
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        (tmp_path / "dayfly-0" / session).mkdir(parents=True)
        (tmp_path / "some-file").touch()
        assert processes.left_behind(token, {session}, tmp_path) == [
            f"process {process.pid}",
            str(tmp_path / "dayfly-0" / session),
            str(tmp_path / "some-file"),
        ]
        assert processes.left_behind("another", {"another"}, tmp_path) == [
            str(tmp_path / "some-file")
        ]
        process.send_signal(signal.SIGKILL)
    (tmp_path / "run" / "job").mkdir(parents=True)
    (tmp_path / "run" / "job" / "job.pkl.abc.tmp").touch()
    assert processes.unfinished_files(tmp_path / "run") == ["job/job.pkl.abc.tmp"]


def test_the_summary_counts_deaths_of_all_kinds() -> None:
    one, other = Summary(), Summary(failures=["run 1: left behind"])
    one.counts.update({"runs": 1, "equal": 1, "function": 3, "injected": 2, "stop": 1})
    other.counts.update({"runs": 1, "coordinator": 1, "lifetime": 1, "restart": 7})
    one.add(other)
    assert one.deaths == 3 + 2 + 1 + 1, "neither stops nor restarts are deaths"
    table = one.table().splitlines()
    assert table[0].split() == ["2", "runs"]
    assert [line.split()[0] for line in table if line.endswith("deaths, of all kinds")] == ["7"]
    assert table[-1] == "run 1: left behind"
