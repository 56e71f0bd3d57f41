"""Cgroups that limit memory and CPU time, of either version: made for each attempt of a function.

Version 2 has one tree: a process is in one cgroup, which limits both. Version 1 has a tree for each
resource, so that a function may be in two cgroups.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dayfly.life.platforms import processes

_POLL_S = 0.002
#: A function gets its share of the CPU anew so often, in microseconds; Lambda's period. The longer
#: it is, the longer a function that has used its share stands still: with the kernel's default of
#: 100 ms, one of half a core stands still for 50 ms at a time, and its messages with it.
_PERIOD_US = 20_000
#: The kernel takes no smaller share of a period, in microseconds.
_LEAST_QUOTA_US = 1_000

#: In memory.stat of both versions; memory in shared files counts as anonymous there.
_PAGES_OF_FILES = ("active_file", "inactive_file")

Resource = Literal["memory", "cpu"]
RESOURCES: tuple[Resource, ...] = ("memory", "cpu")


@dataclass(frozen=True, slots=True)
class Controller:
    """Where cgroups can be made, and what their files are called in this version."""

    version: int
    parent: Path

    @property
    def limit_file(self) -> str:
        """Where the memory limit is written, in bytes."""
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    @property
    def peak_file(self) -> str:
        """Where the most memory ever used is read, in bytes."""
        return "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"

    @property
    def usage_file(self) -> str:
        """Where the memory that is used now is read, in bytes."""
        return "memory.usage_in_bytes" if self.version == 1 else "memory.current"

    @property
    def events_file(self) -> str:
        """Where the kills for want of memory are counted."""
        return "memory.oom_control" if self.version == 1 else "memory.events"

    def usable(self, probe_name: str, *resources: Resource) -> bool:
        """Whether we may make a cgroup here that limits these; found out by doing it."""
        probe = Cgroup(self, self.parent / probe_name)
        try:
            probe.path.mkdir()
        except OSError:
            return False
        try:
            # Writing limits, and not only looking: the files may be there and not be ours.
            if "memory" in resources:
                probe.limit_memory(2**40)
            if "cpu" in resources:
                probe.limit_cpu(1.0)
            return os.access(probe.path / "cgroup.procs", os.W_OK) and self._may_move()
        except OSError:
            return False
        finally:
            probe.path.rmdir()

    def _may_move(self) -> bool:
        # Version 2 lets a process move only if its mover may write the common ancestor's file.
        return self.version == 1 or os.access(self.parent / "cgroup.procs", os.W_OK)


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One cgroup. Reading a counter of a cgroup that is gone raises OSError."""

    controller: Controller
    path: Path

    def limit_memory(self, limit_bytes: int) -> None:
        """Swap is excluded where the kernel counts swap."""
        self._set(self.controller.limit_file, limit_bytes)
        if self.controller.version == 1:
            self._set("memory.swappiness", 0)
            self._set_if_there("memory.memsw.limit_in_bytes", limit_bytes)
        else:
            self._set_if_there("memory.swap.max", 0)
            self._set_if_there("memory.oom.group", 1)

    def limit_cpu(self, cores: float) -> None:
        """So many seconds of CPU time a second, all its processes and threads together."""
        period_us, quota_us = cpu_quota_us(cores)
        if self.controller.version == 1:
            self._set("cpu.cfs_period_us", period_us)
            self._set("cpu.cfs_quota_us", quota_us)
        else:
            self._set("cpu.max", f"{quota_us} {period_us}")

    @property
    def procs_path(self) -> Path:
        """A process that writes 0 here moves itself in."""
        return self.path / "cgroup.procs"

    def oom_killed(self) -> bool:
        """Whether the kernel killed something in it because of its limit."""
        for line in (self.path / self.controller.events_file).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value) > 0
        return False

    def peak_bytes(self) -> int | None:
        """The most that was charged to it; None where the kernel does not tell (v2 below 5.19)."""
        with suppress(FileNotFoundError):
            return int((self.path / self.controller.peak_file).read_text())
        return None

    def kept_bytes(self) -> int:
        """Returns the memory in use that the kernel cannot reclaim; pages of files are left out."""
        stat = dict(
            line.split(" ", 1) for line in (self.path / "memory.stat").read_text().splitlines()
        )
        used = int((self.path / self.controller.usage_file).read_text())
        return max(0, used - sum(int(stat[name]) for name in _PAGES_OF_FILES))

    def remove(self, timeout_s: float = processes.GONE_S) -> bool:
        """As the function `remove`."""
        return remove(self.path, timeout_s)

    def _set(self, file: str, value: int | str) -> None:
        (self.path / file).write_text(str(value))

    def _set_if_there(self, file: str, value: int) -> None:
        if (self.path / file).exists():
            self._set(file, value)


def remove(path: Path, timeout_s: float = processes.GONE_S) -> bool:
    """Kill what is in the cgroup and remove it; False if it is still there after `timeout_s`.

    A cgroup stays busy for a moment after its last process was reaped. A directory that is no
    cgroup stays.
    """
    if not (path / "cgroup.procs").exists():
        return True
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            path.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > give_up_at:
                return False
        with suppress(OSError):
            members = (path / "cgroup.procs").read_text().split()
            processes.kill_and_reap([int(pid) for pid in members])
        time.sleep(_POLL_S)


def cpu_quota_us(cores: float) -> tuple[int, int]:
    """(period, CPU time in it), in microseconds: short periods, as far as the kernel takes them."""
    period_us = max(_PERIOD_US, round(_LEAST_QUOTA_US / cores))
    return period_us, round(period_us * cores)


def find_controllers(
    probe_name: str, record: Callable[[Path], None]
) -> Mapping[Resource, Controller]:
    """The nearest places where this process may make cgroups that limit memory and CPU time.

    `record` is told of every cgroup before it is made.
    """
    found = _find(probe_name, record)
    if not found:
        own = own_cgroup(*_own_texts())
        if own is not None and make_room(own):
            found = _find(probe_name, record)
    return found


def _own_texts() -> tuple[str, str]:
    return Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()


def _find(probe_name: str, record: Callable[[Path], None]) -> Mapping[Resource, Controller]:
    mountinfo, own = _own_texts()

    def nearest(*resources: Resource) -> Controller | None:
        for candidate in candidates(mountinfo, own, *resources):
            record(candidate.parent / probe_name)
            if candidate.usable(probe_name, *resources):
                return candidate
        return None

    both = nearest(*RESOURCES)
    if both is not None:
        return dict.fromkeys(RESOURCES, both)
    memory, cpu = nearest("memory"), nearest("cpu")
    if memory is not None and cpu is not None and memory.version == cpu.version == 2:
        cpu = None  # a process is in one cgroup only, and no place has both
    places: dict[Resource, Controller | None] = {"memory": memory, "cpu": cpu}
    return {resource: place for resource, place in places.items() if place is not None}


def candidates(mountinfo: str, own_cgroups: str, *resources: Resource) -> list[Controller]:
    """Places to try, from the texts of /proc/self/mountinfo and /proc/self/cgroup.

    Version 1: the root of the tree that has these controllers. Version 2: from the parent of our
    own cgroup upwards, because a cgroup that holds processes cannot give controllers to its
    children (its parent can: systemd's user slices are delegated so).
    """
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        mount_point = Path(left.split()[4])
        kind, _, options = right.split()[:3]
        if kind == "cgroup" and set(resources) <= set(options.split(",")):
            found.append(Controller(1, mount_point))
        elif kind == "cgroup2":
            own = _own_v2(own_cgroups)
            if own is not None:
                found += [Controller(2, mount_point / parent) for parent in own.parents]
                # In a namespace our own cgroup is the root, which has no parent.
                found += [Controller(2, mount_point)] if not own.parents else []
    return found


def own_cgroup(mountinfo: str, own_cgroups: str) -> Path | None:
    """The directory of our own cgroup of version 2; None without one, or if it is the root."""
    own = _own_v2(own_cgroups)
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] == "cgroup2" and own is not None and own.parents:
            return Path(left.split()[4]) / own
    return None


def _own_v2(own_cgroups: str) -> Path | None:
    own = next((li[3:] for li in own_cgroups.splitlines() if li.startswith("0::")), "/")
    return None if own.startswith("/..") else Path(own.lstrip("/"))  # outside of our namespace


def make_room(own: Path) -> bool:
    """Move this process into a cgroup below its own, so that others can be made beside it.

    For a process that is alone in a cgroup that was delegated to it, as
    `systemd-run --user --scope -p Delegate=yes` starts it; systemd removes all of it at the end.
    """
    try:
        alone = (own / "cgroup.procs").read_text().split() == [str(os.getpid())]
        there = (own / "cgroup.controllers").read_text().split()
        control = own / "cgroup.subtree_control"
        if not alone or not set(RESOURCES) & set(there) or not os.access(control, os.W_OK):
            return False
        leaf = own / "dayfly-self"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        control.write_text(" ".join(f"+{resource}" for resource in RESOURCES if resource in there))
    except OSError:
        return False
    return True
