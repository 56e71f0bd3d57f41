"""Every limit that is asked for bites, on every platform; without it the same handler is free.

Memory and lifetime are in the conformance suite.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from platform_testing import call, run, wait_for_all

from dayfly.cpus import cpus_with_room
from dayfly.errors import RequestError
from dayfly.life.platforms import confinement
from dayfly.life.platforms.base import Outcome, Platform
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session
from dayfly.specs.functions import FunctionSpec

pytestmark = pytest.mark.long

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="cpu cgroups need root here")


@root_only
@pytest.mark.parametrize("cores", [0.1, 0.25])
def test_a_share_of_the_cpu_makes_computing_take_longer(platform: Platform, cores: float) -> None:
    """A loaded machine can only make it longer still."""
    ended = run(platform, "spin", {"cpu_s": 0.2}, cpu_cores=cores)
    assert ended.result is not None
    assert ended.result["wall_s"] >= 0.8 * 0.2 / cores


@root_only
@pytest.mark.parametrize("memory_mib", [None, 500])
def test_a_function_of_less_than_a_core_is_bound_to_one_cpu(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, memory_mib: int | None
) -> None:
    everywhere = sorted(os.sched_getaffinity(0))
    # Functions of other tests may have left no room.
    monkeypatch.setattr(confinement, "cpus_with_room", lambda cores, taken: [max(taken)])

    def cpus(cores: float | None) -> list[int]:
        limits: dict[str, Any] = {"cpu_cores": cores, "memory_mib": memory_mib}
        ended = run(platform, "look_inside", **limits)
        assert ended.result is not None
        found: list[int] = ended.result["cpus"]
        return found

    assert cpus(0.5) == everywhere[-1:]
    assert cpus(1.0) == cpus(None) == everywhere


@pytest.mark.parametrize(
    ("cores", "there", "expected"),
    [
        (0.25, [], {0, 1}),
        (0.25, ["dayfly-s1-worker-0-1-cpu0-250"], {1}),
        (0.5, ["dayfly-s1-worker-0-1-cpu0-250", "dayfly-s2-worker-0-1-cpu1-500"], {0}),
        (0.75, ["dayfly-s1-worker-0-1-cpu0-500", "dayfly-s2-worker-0-1-cpu1-500"], set()),
        (0.999, ["dayfly-s1-worker-0-1-cpu0-1", "dayfly-s1-worker-1-1-cpu1-2"], {0}),
        (0.25, ["dayfly-s1-worker-0-1-cpu7-250", "dayfly-s1-cpu0-900-1", "other"], {0, 1}),
    ],
)
def test_a_cpu_with_room_is_found_by_the_names_of_cgroups(
    cores: float, there: list[str], expected: set[int]
) -> None:
    """The emptiest, all of them if there are several; names of free functions do not count."""
    assert set(cpus_with_room(cores, confinement.taken_of_cpus(there, {0, 1}))) == expected


@root_only
def test_a_share_of_the_cpu_and_a_memory_limit_go_together(platform: Platform) -> None:
    limits: dict[str, Any] = {"memory_mib": 500, "cpu_cores": 0.25}
    ended = run(platform, "spin", {"cpu_s": 0.1}, **limits)
    assert ended.result is not None
    assert ended.result["wall_s"] >= 0.8 * 0.1 / 0.25
    greedy = run(platform, "allocate", {"mib": 900}, **limits)
    assert greedy.outcome is Outcome.OUT_OF_MEMORY


@root_only
def test_no_cgroup_of_a_function_stays_behind(platform: Platform) -> None:
    run(platform, "echo", memory_mib=500, cpu_cores=0.5)
    mine = [path for path in Path("/sys/fs/cgroup").glob("*/dayfly-*-solo-*") if path.is_dir()]
    assert [path for path in mine if _session(platform) in path.name] == []


def test_a_cold_start_is_initialisation_and_not_lifetime(platform: Platform) -> None:
    """If it were, the handler would begin when its lifetime is over."""
    ended = run(platform, "echo", cold_start_s=6.0, lifetime_s=6.0)
    assert ended.outcome is Outcome.RETURNED
    assert ended.init_s >= 6.0
    assert min(run(platform, "echo").init_s for _ in range(2)) < ended.init_s
    late = run(platform, "sleep", {"seconds": 60}, cold_start_s=0.3, lifetime_s=0.3)
    assert late.outcome is Outcome.LIFETIME
    assert late.run_s < 60


def test_the_deadline_that_a_function_knows_leaves_out_the_cold_start(platform: Platform) -> None:
    told = run(platform, "tell", cold_start_s=0.5, lifetime_s=20.0).result
    assert told is not None
    assert 0 < told["remaining_s"] <= 20
    # A machine that is busy for ten seconds would be needed to get here with the old deadline.
    assert told["remaining_s"] > 10


def test_a_function_can_be_cancelled_in_its_cold_start(platform: Platform) -> None:
    platform.invoke(call("solo", "echo", cold_start_s=60.0))
    platform.cancel("solo")
    assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.CANCELLED


def test_a_payload_above_its_limit_is_refused(platform: Platform) -> None:
    payload = {"text": "x" * 1000}
    with pytest.raises(ValueError, match=r"the payload of solo has 1012 bytes, at most 1011 can"):
        platform.invoke(call("solo", "echo", payload, payload_bytes=1011))
    assert platform.running() == []
    assert run(platform, "echo", payload, payload_bytes=1012).outcome is Outcome.RETURNED


def test_a_result_above_the_limit_is_an_error(platform: Platform) -> None:
    limited = run(platform, "return_bytes", {"size": 1000}, payload_bytes=500)
    assert limited.outcome is Outcome.RAISED
    assert "at most 500 can travel" in (limited.error or "")
    assert run(platform, "return_bytes", {"size": 1000}).outcome is Outcome.RETURNED


@pytest.mark.parametrize(
    "limits",
    [
        {"cpu_cores": 0.0},
        {"cpu_cores": float("nan")},
        {"cold_start_s": -1.0},
        {"cold_start_s": float("inf")},
        {"payload_bytes": 0},
    ],
)
def test_limits_that_cannot_be(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        FunctionSpec(**limits)


def test_what_cannot_be_enforced_is_refused_before_anything_starts(
    tmp_path: Path, session_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user who may make no cgroups."""
    monkeypatch.setattr(confinement, "find_controllers", lambda *_: {})
    with Session.open(session_base) as session, LocalPlatform(session, tmp_path) as platform:
        assert "CPU time not at all" in platform.enforcement
        assert not platform.memory_by_cgroup
        platform.check([FunctionSpec(lifetime_s=1.0, cold_start_s=1.0, payload_bytes=1000)])
        for act in (
            lambda: platform.check([FunctionSpec(cpu_cores=0.5)]),
            lambda: platform.invoke(call("solo", "echo", cpu_cores=0.5)),
        ):
            with pytest.raises(RequestError, match=r"0\.5 CPUs cannot be enforced.*systemd-run"):
                act()
        assert platform.running() == []


def _session(platform: Platform) -> str:
    assert isinstance(platform, LocalPlatform)
    return platform._confiner._session.id
