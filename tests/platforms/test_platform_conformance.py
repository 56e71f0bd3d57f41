"""What every platform promises (base.py), asserted over each of PLATFORMS."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from platform_testing import call, eventually, read_pids, run, soon, wait_for_all

from dayfly.errors import RequestError
from dayfly.life.platforms.base import Outcome, Platform
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.processor import ATEN, Processor

pytestmark = pytest.mark.long

#: Generous: what a handler of these tests needs, beside what it allocates on purpose.
ROOMY_MIB = 500


def test_the_result_comes_back(platform: Platform) -> None:
    payload = {"text": "äß", "list": [1, 2.5, None], "nested": {"yes": True}}
    ended = run(platform, "echo", payload)
    assert (ended.outcome, ended.result, ended.error) == (Outcome.RETURNED, payload, None)
    assert ended.init_s > 0
    assert ended.run_s >= 0
    assert ended.peak_mib is not None
    assert platform.running() == []


def test_a_function_knows_itself_and_holds_nothing_of_others(platform: Platform) -> None:
    platform.invoke(call("worker-7", "tell", attempt=3, memory_mib=ROOMY_MIB, lifetime_s=20.0))
    result = wait_for_all(platform, ["worker-7"])["worker-7"].result
    assert result is not None
    assert (result["function"], result["attempt"]) == ("worker-7", 3)
    assert result["memory_mib"] == ROOMY_MIB
    assert 0 < result["remaining_s"] <= 20
    assert result["threads"] == 1
    assert result["variables"] == (best := Processor.here().variables(os.environ))
    assert result["capability"] == best.get(ATEN, result["capability"])
    log = str(platform.log_path("worker-7"))
    assert result["fds"].count(log) == 2
    others = [name for name in result["fds"] if name not in (log, "/dev/null")]
    kinds = sorted(name.partition(":")[0] for name in others)
    assert kinds == ["pipe", "socket"], f"lifeline and control socket only, not {others}"


def test_large_blocks_stay_but_where_memory_is_limited(platform: Platform) -> None:
    kept = run(platform, "free_large_blocks").result
    given_back = run(platform, "free_large_blocks", memory_mib=ROOMY_MIB).result
    assert kept is not None
    assert given_back is not None
    assert kept["stays_mib"] > 60
    assert given_back["stays_mib"] < 16


def test_a_function_can_compute(platform: Platform) -> None:
    first, second = (run(platform, "train").result for _ in range(2))
    assert first == second
    # Nothing compiles, so nobody waits, or pays, for the import of torch's compiler.
    assert first is not None
    assert not first["compiler"]


def test_an_exception_comes_with_the_users_traceback_only(platform: Platform) -> None:
    ended = run(platform, "raise_error")
    assert (ended.outcome, ended.error) == (Outcome.RAISED, "ValueError: no luck")
    assert 'raise ValueError("no luck")' in ended.detail
    assert "local_function" not in ended.detail
    assert ended.detail in platform.log_path("solo").read_text()


def test_a_handler_that_is_not_there(platform: Platform) -> None:
    ended = run(platform, "not_there")
    assert ended.outcome is Outcome.RAISED
    assert "not_there" in (ended.error or "")


def test_keyboard_interrupt_in_user_code_is_an_exception(platform: Platform) -> None:
    ended = run(platform, "interrupt")
    assert (ended.outcome, ended.error) == (Outcome.RAISED, "KeyboardInterrupt")


@pytest.mark.parametrize("handler", ["exit_by_system_exit", "exit_hard"])
@pytest.mark.parametrize(("code", "detail"), [(3, "exit code 3"), (0, "exit code 0")])
def test_a_function_that_ends_itself(
    platform: Platform, handler: str, code: int, detail: str
) -> None:
    ended = run(platform, handler, {"code": code})
    assert (ended.outcome, ended.result) == (Outcome.EXITED, None)
    assert ended.detail.startswith(detail)


def test_a_crash(platform: Platform) -> None:
    ended = run(platform, "crash")
    assert (ended.outcome, ended.detail) == (Outcome.EXITED, "signal SIGSEGV")
    assert "in crash" in platform.log_path("solo").read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_from_outside(platform: Platform, tmp_path: Path, number: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    platform.invoke(call("solo", "sleep", {"seconds": 30, "pid_file": str(pid_file)}))
    (pid,) = read_pids(pid_file)
    os.kill(pid, number)
    ended = wait_for_all(platform, ["solo"])["solo"]
    assert ended.outcome is Outcome.KILLED
    assert ended.detail == f"killed by {number.name} from outside"


def test_cancel(platform: Platform, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    platform.invoke(call("solo", "sleep", {"seconds": 30, "pid_file": str(pid_file)}))
    read_pids(pid_file)
    platform.cancel("solo")
    assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.CANCELLED
    platform.cancel("solo")
    platform.cancel("never-seen")


def test_cancel_before_it_runs(platform: Platform) -> None:
    platform.invoke(call("solo", "sleep", {"seconds": 30}))
    platform.cancel("solo")
    assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.CANCELLED


def test_the_lifetime_bites(platform: Platform) -> None:
    ended = run(platform, "sleep", {"seconds": 60}, lifetime_s=0.3)
    assert ended.outcome is Outcome.LIFETIME
    assert "0.3 s" in ended.detail
    assert ended.run_s < 60


def test_without_a_lifetime_the_same_handler_lives_on(platform: Platform) -> None:
    ended = run(platform, "sleep", {"seconds": 1.0})
    assert ended.outcome is Outcome.RETURNED
    assert ended.run_s >= 1.0


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


def test_the_memory_limit_bites(platform: Platform) -> None:
    ended = run(platform, "allocate", {"mib": 400}, memory_mib=ROOMY_MIB)
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert f"limit {ROOMY_MIB} MiB" in ended.detail
    assert ended.peak_mib is not None
    assert ended.peak_mib <= ROOMY_MIB


@pytest.mark.parametrize("memory_mib", [None, ROOMY_MIB + 400])
def test_with_more_memory_the_same_handler_returns(
    platform: Platform, memory_mib: int | None
) -> None:
    ended = run(platform, "allocate", {"mib": 400}, memory_mib=memory_mib)
    assert (ended.outcome, ended.result) == (Outcome.RETURNED, {"mib": 400})
    assert ended.peak_mib is not None
    assert ended.peak_mib >= 400


def test_too_little_memory_for_the_runtime_is_refused(platform: Platform) -> None:
    with pytest.raises(RequestError, match="at least"):
        platform.invoke(call("solo", "echo", memory_mib=20))
    if isinstance(platform, LocalPlatform):
        least_mib = platform.least_memory_mib()
        assert run(platform, "echo", memory_mib=least_mib).outcome is Outcome.RETURNED


def test_the_log_has_all_attempts_and_last_words(platform: Platform) -> None:
    for attempt, word in enumerate(["first", "second"]):
        payload = {"word": word, "die": attempt == 1}
        platform.invoke(call("logger", "print_lines", payload, attempt))
        wait_for_all(platform, ["logger"])
    lines = platform.log_path("logger").read_text().splitlines()
    assert lines == ["out first", "err first", "out second", "err second"]


def test_several_at_once(platform: Platform, tmp_path: Path) -> None:
    go, names = tmp_path / "go", [f"worker-{i}" for i in range(6)]
    for name in names:
        payload = {"until": str(go), "pid_file": str(tmp_path / name)}
        platform.invoke(call(name, "wait_for_file", payload))
    pids = {pid for name in names for pid in read_pids(tmp_path / name)}
    assert len(pids) == 6
    assert platform.running() == names
    go.touch()
    ended = wait_for_all(platform, names)
    assert {one.outcome for one in ended.values()} == {Outcome.RETURNED}


def test_wait_gives_up_in_time(platform: Platform) -> None:
    platform.invoke(call("solo", "sleep", {"seconds": 30}))
    before = time.monotonic()
    assert list(platform.wait(0.1)) == [], "it gives up before the function ends"
    assert 0.1 <= time.monotonic() - before < 30


@pytest.mark.parametrize("name", ["Worker", "a_b", "", "../up", "-x", "a\n"])
def test_names_that_cannot_be(platform: Platform, name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits, hyphens"):
        platform.invoke(call(name, "echo"))


def test_one_invocation_of_a_function_at_a_time(platform: Platform) -> None:
    platform.invoke(call("solo", "sleep", {"seconds": 30}))
    with pytest.raises(ValueError, match="solo is still running"):
        platform.invoke(call("solo", "echo", attempt=1))


@pytest.mark.parametrize(
    "payload", [{"x": {1, 2}}, {"x": float("nan")}, {"x": "y" * (6 * 2**20)}, [1]]
)
def test_payloads_that_cannot_travel(platform: Platform, payload: object) -> None:
    with pytest.raises(ValueError, match="the payload of solo"):
        platform.invoke(call("solo", "echo", payload))  # type: ignore[arg-type]
    assert platform.running() == []


@pytest.mark.parametrize("handler", ["return_tensor", "return_number"])
def test_results_that_are_not_json_are_refused(platform: Platform, handler: str) -> None:
    ended = run(platform, handler)
    assert ended.outcome is Outcome.RAISED
    assert f"the result of platform_handlers:{handler}" in (ended.error or "")


def test_large_payloads_and_results(platform: Platform) -> None:
    text = "z" * (5 * 2**20)
    ended = run(platform, "echo", {"text": text})
    assert ended.result == {"text": text}
    too_large = run(platform, "return_bytes", {"size": 6 * 2**20})
    assert too_large.outcome is Outcome.RAISED
    assert "at most" in (too_large.error or "")


def test_starts_are_warm(platform: Platform) -> None:
    run(platform, "echo")
    # Importing torch alone takes longer; no figure is asserted here, `dayfly bench` measures.
    assert min(run(platform, "echo").init_s for _ in range(10)) < 0.5
