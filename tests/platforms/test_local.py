"""What only the local platform promises: its zygote, its strays, and that nothing is left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from every_platform import PLATFORMS
from platform_handlers import open_files
from platform_testing import WAIT_S, call, eventually, is_alive, read_pids, run, wait_for_all

from dayfly.errors import RunFailed
from dayfly.life.platforms.base import Opening, Outcome, Platform
from dayfly.life.platforms.local import LocalOptions, LocalPlatform
from dayfly.life.platforms.local_call import LocalCall
from dayfly.life.platforms.local_monitor import LocalMonitor
from dayfly.life.sessions import Session

pytestmark = pytest.mark.long


def test_the_zygote_may_die(platform: Platform, tmp_path: Path) -> None:
    """Running functions go on and are reaped by us; new ones start, from a new zygote."""
    go = tmp_path / "go"
    payload = {"until": str(go), "pid_file": str(tmp_path / "pid")}
    platform.invoke(call("survivor", "wait_for_file", payload))
    read_pids(tmp_path / "pid")
    first = run(platform, "kill_zygote").result
    second = run(platform, "kill_zygote").result
    assert first is not None
    assert second is not None
    assert first["killed"] != second["killed"]
    assert platform.running() == ["survivor"]
    go.touch()
    ended = wait_for_all(platform, ["survivor"])["survivor"]
    assert (ended.outcome, ended.result) == (Outcome.RETURNED, {"parent": os.getpid()})
    # From a third zygote, so the end of the second was noticed: what follows finds all at rest.
    assert run(platform, "echo").outcome is Outcome.RETURNED


def test_the_zygote_may_die_with_requests_in_its_queue(platform: Platform) -> None:
    names = [f"worker-{i}" for i in range(4)]
    platform.invoke(call("killer", "kill_zygote"))
    for name in names:
        platform.invoke(call(name, "echo", {"name": name}))
    ended = wait_for_all(platform, ["killer", *names])
    assert [ended[name].result for name in names] == [{"name": name} for name in names]
    assert run(platform, "echo").outcome is Outcome.RETURNED  # as above


def test_a_function_that_seems_stuck_says_where_it_is(platform: Platform, tmp_path: Path) -> None:
    go, pid_file = tmp_path / "go", tmp_path / "pid"
    platform.invoke(call("stuck", "wait_for_file", {"until": str(go), "pid_file": str(pid_file)}))
    (pid,) = read_pids(pid_file)
    os.kill(pid, signal.SIGUSR1)
    log = platform.log_path("stuck")
    eventually("its place", lambda: "in wait_for_file" in log.read_text())
    go.touch()
    assert wait_for_all(platform, ["stuck"])["stuck"].outcome is Outcome.RETURNED


def test_functions_invoke_functions(tmp_path: Path) -> None:
    """Each starts when the one before has: three cold starts, one after the other, and the last
    one is billed for its own alone."""
    names = ["a", "b", "c"]
    with Session.open() as session:
        opening = Opening(session=session, logs=tmp_path / "logs")
        with LocalPlatform.open(opening, LocalOptions(fan_out=1)) as platform:
            run(platform, "echo")  # the zygote is there
            began = time.monotonic()
            platform.invoke_all([call(name, "echo", cold_start_s=0.2) for name in names])
            assert platform.running() == names
            ended = wait_for_all(platform, names)
            took_s = time.monotonic() - began
    assert {one.outcome for one in ended.values()} == {Outcome.RETURNED}
    assert took_s >= 3 * 0.2
    assert ended["c"].init_s <= took_s - 2 * 0.2


def test_what_a_function_that_died_had_not_invoked_starts_all_the_same(tmp_path: Path) -> None:
    """The first dies in its cold start, before any call: the second starts, in the same attempt."""
    with Session.open() as session:
        opening = Opening(session=session, logs=tmp_path / "logs")
        with LocalPlatform.open(opening, LocalOptions(fan_out=1)) as platform:
            first, second = call("first", "echo", cold_start_s=WAIT_S), call("second", "echo")
            platform.invoke_all([first, second])
            platform.cancel("first")
            ended = wait_for_all(platform, ["first", "second"])
    assert ended["first"].outcome is Outcome.CANCELLED
    assert (ended["second"].outcome, ended["second"].invocation) == (Outcome.RETURNED, second)


def test_calls_take_their_time(tmp_path: Path) -> None:
    """Four, two at once: the coordinator is through with them after two calls."""
    names = ["a", "b", "c", "d"]
    with Session.open() as session:
        opening = Opening(session=session, logs=tmp_path / "logs")
        options = LocalOptions(call_ms=150, calls_at_once=2)
        with LocalPlatform.open(opening, options) as platform:
            began = time.monotonic()
            platform.invoke_all([call(name, "echo") for name in names])
            assert time.monotonic() - began >= 2 * 0.15
            wait_for_all(platform, names)


def test_who_is_not_due_at_the_start_ends_the_waiting() -> None:
    """By the clock both are due: what counts is the moment at which it was read."""
    zygote = object()
    waits: dict[str, Any] = {name: LocalCall.__new__(LocalCall) for name in ("invoked", "retried")}
    for one in waits.values():
        one._receiver = one._invoker = one.stopped = None
        one._asked, one.requested_at, one.retry_at = zygote, 5.0, 0.0
    waits["retried"].retry_at = 6.0
    monitor: Any = LocalMonitor.__new__(LocalMonitor)
    monitor._keeper = SimpleNamespace(look_at=None, failure=None, ready=lambda: zygote)
    monitor._calls, monitor._closing, monitor._keeps, monitor._warm = waits, False, False, False
    monitor._start(4.75)  # one that started would fail, as it was not made whole
    assert monitor._timeout_s(4.75) == 0.25
    del waits["invoked"]
    monitor._start(5.5)
    assert monitor._timeout_s(5.5) == 0.5


@pytest.mark.quick
def test_what_a_function_left_in_the_background_goes(platform: Platform) -> None:
    ended = run(platform, "leave_children", memory_mib=500)
    assert ended.outcome is Outcome.RETURNED
    assert ended.result is not None
    same, other = ended.result["pids"]
    assert not Path(f"/proc/{same}").exists()
    assert isinstance(platform, LocalPlatform)
    if platform.memory_by_cgroup:  # else it goes when the platform is closed
        assert not Path(f"/proc/{other}").exists()


@pytest.mark.parametrize("stays", [False, True], ids=["returns", "is killed"])
def test_multiprocessing_may_remove_what_a_function_left(
    platform: Platform, tmp_path: Path, stays: bool
) -> None:
    told = tmp_path / "semaphore"
    platform.invoke(call("solo", "hold_a_semaphore", {"file": str(told), "stays": stays}))
    eventually("its semaphore", told.exists)
    semaphore = Path(told.read_text())
    if stays:
        assert semaphore.exists()
        platform.cancel("solo")
    ended = wait_for_all(platform, ["solo"])["solo"]
    assert ended.outcome is (Outcome.CANCELLED if stays else Outcome.RETURNED), ended
    assert not semaphore.exists()


@pytest.mark.parametrize("make", PLATFORMS, ids=lambda make: str(make.__name__))
def test_nothing_is_left_after_close(
    make: Callable[[Session, Path], Platform], tmp_path: Path, session_base: Path
) -> None:
    with Session.open(session_base) as session:  # the suite's warm server begins, and stays
        platform = make(session, tmp_path / "first")
        platform.invoke(call("first", "echo"))
        wait_for_all(platform, ["first"])
        platform.close()
    gc.collect()  # what earlier tests left open goes now, and not meanwhile
    files_before, children_before = open_files(), children()
    with Session.open(session_base) as session:
        platform = make(session, tmp_path / "logs")
        platform.invoke(call("done", "leave_children", memory_mib=500))
        pids = wait_for_all(platform, ["done"])["done"].result["pids"]  # type: ignore[index]
        for name in ("one", "two"):
            payload = {"seconds": 60, "pid_file": str(tmp_path / name)}
            platform.invoke(call(name, "sleep", payload, memory_mib=500))
            pids += read_pids(tmp_path / name)
        platform.invoke(call("late", "echo"))
        platform.close()
        platform.close()
        ended = wait_for_all(platform, ["one", "two", "late"])
        assert ended["one"].outcome is ended["two"].outcome is Outcome.CANCELLED
        with pytest.raises(RunFailed, match="closed"):
            platform.invoke(call("solo", "echo"))
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert children() <= children_before, "a zombie is left"
    assert Counter(open_files()) <= Counter(files_before)
    assert not session.root.exists()
    assert cgroups_of(session.id) == []


def test_running_out_of_memory_in_a_child_counts(platform: Platform) -> None:
    assert isinstance(platform, LocalPlatform)
    ended = run(platform, "allocate_in_child", {"mib": 400}, memory_mib=500)
    if platform.memory_by_cgroup:
        assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "the child ended with" in ended.detail


def test_closing_at_once(tmp_path: Path, session_base: Path) -> None:
    with (
        Session.open(session_base) as session,
        LocalPlatform(session, tmp_path / "logs") as platform,
    ):
        platform.invoke(call("solo", "sleep", {"seconds": 60}))
    assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.CANCELLED


def test_two_platforms_in_one_session(tmp_path: Path, session_base: Path) -> None:
    with Session.open(session_base) as session:
        with LocalPlatform(session, tmp_path / "a") as first:
            with LocalPlatform(session, tmp_path / "b") as second:
                payload = {"seconds": 60, "pid_file": str(tmp_path / "pid")}
                first.invoke(call("solo", "sleep", payload))
                (pid,) = read_pids(tmp_path / "pid")
                assert run(second, "echo").outcome is Outcome.RETURNED
            assert is_alive(pid)
        assert not Path(f"/proc/{pid}").exists()


def test_a_zygote_that_is_killed_again_and_again_is_replaced(
    tmp_path: Path, session_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that none is ready, and forks what it is asked for, before it is killed.
    go = tmp_path / "go"
    (tmp_path / "loads_later.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with (
        Session.open(session_base) as session,
        LocalPlatform(session, tmp_path / "logs", preload=["loads_later"]) as platform,
    ):
        platform.invoke(call("solo", "echo"))
        killed: set[int] = set()
        by = time.monotonic() + WAIT_S
        while len(killed) < 4:
            assert time.monotonic() < by, killed
            zygote = platform._monitor._keeper._zygote
            if zygote is not None and zygote.pid not in killed:
                os.kill(zygote.pid, signal.SIGKILL)
                killed.add(zygote.pid)
            time.sleep(0.001)
        go.touch()
        assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.RETURNED


def test_a_zygote_that_cannot_start_is_named(tmp_path: Path, session_base: Path) -> None:
    with (
        Session.open(session_base) as session,
        LocalPlatform(session, tmp_path / "logs", preload=["no_such_module"]) as platform,
    ):
        platform.invoke(call("solo", "echo"))
        with pytest.raises(RunFailed, match="No module named 'no_such_module'"):
            platform.wait(WAIT_S)
        with pytest.raises(RunFailed, match="3 times in a row without"):
            platform.invoke(call("solo", "echo"))


@pytest.mark.parametrize(
    ("handler", "enforcer"),
    [
        ("sleep", "cgroup"),
        ("compute_in_c", "rlimit"),
        ("leave_children", "cgroup"),
        ("leave_children", "rlimit"),
    ],
)
def test_kill_9_of_the_coordinator(
    handler: str, enforcer: str, tmp_path: Path, session_base: Path
) -> None:
    """The functions die at once; the rest goes when the next session is opened."""
    if enforcer == "cgroup" and os.geteuid() != 0:
        pytest.skip("memory cgroups need root here")
    script = Path(__file__).with_name("platform_coordinator.py")
    arguments = [str(session_base), str(tmp_path), handler, enforcer]
    coordinator = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        function, *left_behind = read_pids(tmp_path / "pid")
        (zygote,) = read_pids(tmp_path / "zygote")
        root = Path((tmp_path / "root").read_text())
    finally:
        coordinator.kill()
        coordinator.wait(WAIT_S)
    eventually("death of zygote and function", lambda: not (is_alive(function) or is_alive(zygote)))
    assert root.exists()
    assert bool(cgroups_of(root.name)) == (enforcer == "cgroup")
    Session.open(session_base).close()
    assert not root.exists()
    assert cgroups_of(root.name) == []
    assert not any(is_alive(pid) for pid in left_behind)


def test_a_forked_child_of_the_coordinator_keeps_nothing_alive(
    tmp_path: Path, session_base: Path
) -> None:
    """As multiprocessing forks: the child outlives the coordinator, the functions do not."""
    script = Path(__file__).with_name("platform_coordinator.py")
    coordinator = subprocess.Popen(
        [sys.executable, str(script), str(session_base), str(tmp_path), "sleep", "rlimit", "fork"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        (function,) = read_pids(tmp_path / "pid")
        (forked,) = read_pids(tmp_path / "forked")
    finally:
        coordinator.kill()
        coordinator.wait(WAIT_S)
    try:
        eventually("death of the function", lambda: not is_alive(function))
        assert is_alive(forked)
        Session.open(session_base).close()
        assert not Path((tmp_path / "root").read_text()).exists()
    finally:
        os.kill(forked, signal.SIGKILL)


def children() -> set[int]:
    pids = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                pids.add(int(name))
    return pids


def cgroups_of(session_id: str) -> list[Path]:
    # Not by Path.glob, which fails at a cgroup that another test removes meanwhile.
    walked, mine = os.walk("/sys/fs/cgroup"), f"dayfly-{session_id}-"
    return [Path(at, name) for at, names, _ in walked for name in names if name.startswith(mine)]
