"""Memory cgroups, of either version: one for each attempt of a function."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dayfly.life.platforms import processes

_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Controller:
    """Where memory cgroups can be made, and what their files are called in this version."""

    version: int
    parent: Path

    @property
    def limit_file(self) -> str:
        """Where the limit is written, in bytes."""
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    @property
    def peak_file(self) -> str:
        """Where the most memory ever used is read, in bytes."""
        return "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"

    @property
    def events_file(self) -> str:
        """Where the kills for want of memory are counted."""
        return "memory.oom_control" if self.version == 1 else "memory.events"

    def usable(self, probe_name: str) -> bool:
        """Whether we may make a cgroup here and limit its memory; found out by doing it."""
        probe = Cgroup(self, self.parent / probe_name)
        try:
            probe.path.mkdir()
        except OSError:
            return False
        try:
            # Writing the limit, and not only looking: the file may be there and not be ours.
            (probe.path / self.limit_file).write_text(str(2**40))
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

    def create(self, limit_bytes: int) -> None:
        """Make it with its limit, swap excluded where the kernel counts swap."""
        self.path.mkdir()
        self._set(self.controller.limit_file, limit_bytes)
        if self.controller.version == 1:
            self._set("memory.swappiness", 0)
            self._set_if_there("memory.memsw.limit_in_bytes", limit_bytes)
        else:
            self._set_if_there("memory.swap.max", 0)
            self._set_if_there("memory.oom.group", 1)

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

    def remove(self, timeout_s: float = 2.0) -> bool:
        """As the function `remove`."""
        return remove(self.path, timeout_s)

    def _set(self, file: str, value: int) -> None:
        (self.path / file).write_text(str(value))

    def _set_if_there(self, file: str, value: int) -> None:
        if (self.path / file).exists():
            self._set(file, value)


def remove(path: Path, timeout_s: float = 2.0) -> bool:
    """Kill what is in the cgroup and remove it; False if it is still there after `timeout_s`.

    A cgroup stays busy for a moment after its last process was reaped.
    """
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


def find_controller(probe_name: str, record: Callable[[Path], None]) -> Controller | None:
    """The nearest place where this process may make memory cgroups, if there is one.

    `record` is told of every cgroup before it is made.
    """
    own = Path("/proc/self/cgroup").read_text()
    for candidate in candidates(Path("/proc/self/mountinfo").read_text(), own):
        record(candidate.parent / probe_name)
        if candidate.usable(probe_name):
            return candidate
    return None


def candidates(mountinfo: str, own_cgroups: str) -> list[Controller]:
    """Places to try, from the texts of /proc/self/mountinfo and /proc/self/cgroup.

    Version 1: the root of the memory controller. Version 2: from the parent of our own cgroup
    upwards, because a cgroup that holds processes cannot give controllers to its children (its
    parent can: systemd's user slices are delegated so).
    """
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        mount_point = Path(left.split()[4])
        kind, _, options = right.split()[:3]
        if kind == "cgroup" and "memory" in options.split(","):
            found.append(Controller(1, mount_point))
        elif kind == "cgroup2":
            own = next((li[3:] for li in own_cgroups.splitlines() if li.startswith("0::")), "/")
            if not own.startswith("/.."):  # outside of our cgroup namespace: out of reach
                relative = Path(own.lstrip("/"))
                found += [Controller(2, mount_point / parent) for parent in relative.parents]
                # In a namespace our own cgroup is the root, which has no parent.
                found += [Controller(2, mount_point)] if not relative.parents else []
    return found
