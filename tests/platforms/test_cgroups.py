"""Where cgroups are looked for, and what is written into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dayfly.life.platforms.cgroups import (
    Cgroup,
    Controller,
    candidates,
    cpu_quota_us,
    make_room,
    own_cgroup,
)

MEMORY = "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n"
CPU = "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
CPUACCT = "32 31 0:29 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n"
V2 = "41 31 0:38 / /cg rw,relatime - cgroup2 cgroup2 rw\n"
SCOPE = "0::/user.slice/app.slice/run.scope\n"


def test_version_1_has_a_tree_a_resource() -> None:
    mounts, own = CPUACCT + CPU + MEMORY, "4:memory:/x\n0::/\n"
    assert candidates(mounts, own, "memory") == [Controller(1, Path("/cg/memory"))]
    assert candidates(mounts, own, "cpu") == [Controller(1, Path("/cg/cpu"))]
    assert candidates(mounts, own, "memory", "cpu") == []


@pytest.mark.parametrize("resources", [("memory",), ("cpu",), ("memory", "cpu")])
def test_version_2_has_one_tree(resources: tuple[str, ...]) -> None:
    assert candidates(V2, SCOPE, *resources) == [  # type: ignore[arg-type]
        Controller(2, Path("/cg/user.slice/app.slice")),
        Controller(2, Path("/cg/user.slice")),
        Controller(2, Path("/cg")),
    ]
    assert candidates(V2, "0::/\n", "memory") == [Controller(2, Path("/cg"))]
    assert candidates(V2, "0::/../outside\n", "memory") == []


def test_our_own_cgroup_of_version_2() -> None:
    assert own_cgroup(MEMORY + V2, SCOPE) == Path("/cg/user.slice/app.slice/run.scope")
    assert own_cgroup(MEMORY + V2, "0::/\n") is None
    assert own_cgroup(V2, "0::/../outside\n") is None
    assert own_cgroup(MEMORY, "4:memory:/x\n") is None


@pytest.mark.parametrize(
    ("cores", "quota_us"),
    [
        (0.5, (20_000, 10_000)),
        (1.0, (20_000, 20_000)),
        (5.79, (20_000, 115_800)),
        (0.05, (20_000, 1_000)),
        (0.01, (100_000, 1_000)),  # the kernel takes no quota below 1 ms
        (0.001, (1_000_000, 1_000)),
    ],
)
def test_a_share_is_given_in_short_periods(cores: float, quota_us: tuple[int, int]) -> None:
    assert cpu_quota_us(cores) == quota_us


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "5000"}),
        (2, {"cpu.max": "5000 20000"}),
    ],
)
def test_what_is_written_for_a_share(version: int, files: dict[str, str], tmp_path: Path) -> None:
    Cgroup(Controller(version, tmp_path), tmp_path).limit_cpu(0.25)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def scope(directory: Path, pids: str, controllers: str = "cpuset cpu memory pids") -> Path:
    """A cgroup of version 2, drawn with plain files."""
    (directory / "dayfly-self").mkdir()
    (directory / "cgroup.procs").write_text(pids)
    (directory / "cgroup.controllers").write_text(controllers)
    (directory / "cgroup.subtree_control").write_text("")
    return directory


def test_a_process_makes_room_in_a_cgroup_of_its_own(tmp_path: Path) -> None:
    own = scope(tmp_path, f"{os.getpid()}\n")
    assert make_room(own)
    assert (own / "dayfly-self" / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory +cpu"


@pytest.mark.parametrize(("pids", "controllers"), [("{me}\n1\n", "cpu memory"), ("{me}\n", "pids")])
def test_others_are_not_moved_and_nothing_is_made_in_vain(
    pids: str, controllers: str, tmp_path: Path
) -> None:
    own = scope(tmp_path, pids.format(me=os.getpid()), controllers)
    assert not make_room(own)
    assert (own / "cgroup.subtree_control").read_text() == ""
    assert not make_room(tmp_path / "no-cgroup")
