"""What a local function is beside what every platform promises: a process of this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from platform_testing import (
    ROOMY_MIB,
    call,
    eventually,
    read_pids,
    run,
    soon,
    wait_for_all,
)

from dayfly.life.platforms import local_call
from dayfly.life.platforms.base import Outcome, Platform
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.processor import ATEN, Processor

pytestmark = pytest.mark.long


def test_a_function_holds_nothing_of_others(platform: Platform) -> None:
    platform.invoke(call("worker-7", "look_inside"))
    result = wait_for_all(platform, ["worker-7"])["worker-7"].result
    assert result is not None
    assert result["variables"] == (best := Processor.here().variables(os.environ))
    assert result["capability"] == best.get(ATEN, result["capability"])
    log = platform.log_place("worker-7")
    assert result["fds"].count(log) == 2
    others = [name for name in result["fds"] if name not in (log, "/dev/null")]
    kinds = sorted(name.partition(":")[0] for name in others)
    assert kinds == ["pipe", "socket"], f"lifeline and control socket only, not {others}"


def test_nobody_waits_or_pays_for_torchs_compiler_where_nothing_compiles(
    platform: Platform,
) -> None:
    ended = run(platform, "train_and_look")
    assert ended.result == {"compiler": False}
    assert ended.peak_mib is not None


def test_several_at_once_are_processes_of_their_own(platform: Platform, tmp_path: Path) -> None:
    go, names = tmp_path / "go", [f"worker-{i}" for i in range(6)]
    for name in names:
        payload = {"until": str(go), "pid_file": str(tmp_path / name)}
        platform.invoke(call(name, "wait_for_file", payload))
    assert len({pid for name in names for pid in read_pids(tmp_path / name)}) == 6
    go.touch()
    ended = wait_for_all(platform, names)
    assert {one.outcome for one in ended.values()} == {Outcome.RETURNED}


def test_large_blocks_stay_but_where_memory_is_limited(platform: Platform) -> None:
    kept = run(platform, "free_large_blocks").result
    given_back = run(platform, "free_large_blocks", memory_mib=ROOMY_MIB).result
    assert kept is not None
    assert given_back is not None
    assert kept["stays_mib"] > 60
    assert given_back["stays_mib"] < 16


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_from_outside(platform: Platform, tmp_path: Path, number: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    platform.invoke(call("solo", "sleep", {"seconds": 30, "pid_file": str(pid_file)}))
    (pid,) = read_pids(pid_file)
    os.kill(pid, number)
    ended = wait_for_all(platform, ["solo"])["solo"]
    assert ended.outcome is Outcome.KILLED
    assert ended.detail == f"killed by {number.name} from outside"


def test_one_that_is_stopped_is_ended_and_never_comes_back(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(platform, LocalPlatform)
    pid_file = tmp_path / "pid"
    platform.invoke(call("solo", "sleep", {"seconds": 30, "pid_file": str(pid_file)}))
    (pid,) = read_pids(pid_file)
    solo = platform._monitor._calls["solo"]
    with monkeypatch.context() as patient:
        patient.setattr(local_call, "STOPPED_LOOKS", 10**6)
        os.kill(pid, signal.SIGSTOP)
        eventually("a look that finds it stopped", lambda: solo._stopped_looks)
        os.kill(pid, signal.SIGCONT)
        eventually("a look that finds it going on", lambda: not solo._stopped_looks)
    assert platform.running() == ["solo"], "one that goes on is let be"
    os.kill(pid, signal.SIGSTOP)
    ended = wait_for_all(platform, ["solo"])["solo"]
    assert (ended.outcome, ended.detail) == (Outcome.KILLED, "stopped from outside, and so ended")
    assert not Path(f"/proc/{pid}").exists()


def test_one_that_computes_without_letting_go_of_pythons_lock_is_let_be(
    platform: Platform,
) -> None:
    platform.invoke(call("solo", "hold_the_lock", {"seconds": 2.0}))
    assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.RETURNED


def test_the_lifetime_bites_though_nobody_waits(platform: Platform, tmp_path: Path) -> None:
    for lifetime_s in (0.3, 3.0, 20.0):
        pid_file = tmp_path / f"pid-{lifetime_s}"
        payload = {"seconds": 600, "pid_file": str(pid_file)}
        platform.invoke(call("solo", "sleep", payload, lifetime_s=lifetime_s))
        if soon(pid_file.exists, lifetime_s + 1):
            break
        # A busy machine held it up, and it was killed before it told: the next one lives longer.
        assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.LIFETIME
    (pid,) = read_pids(pid_file)
    eventually("the end of the function", lambda: not Path(f"/proc/{pid}").exists())
    assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.LIFETIME


def test_starts_are_warm(platform: Platform) -> None:
    run(platform, "echo")
    # Importing torch alone takes longer; no figure is asserted here, `dayfly bench` measures.
    assert min(run(platform, "echo").init_s for _ in range(10)) < 0.5
