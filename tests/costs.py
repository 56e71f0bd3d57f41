"""CPU seconds of tests, which depend little on what else the machine does.

`pytest --costs FILE` appends a line of JSON for each phase of a test; `python -m tests.costs FILE`
prints the most expensive rooms, files and functions of tests. The kernel counts, for a cgroup that
holds the process of tests and all that it starts: also what nobody waits for.

    process of tests   -- setup --|------ call ------|-- teardown --|
    what it started       ------------------------------ (and on, in the next phase)
    cgroup's CPU time     a       b                  c              d

A phase costs the difference. What is made once for several tests is in the setup of the first one.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

#: Lines of each table.
_MOST = 40


class Costs:
    """A plugin of one process of tests."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._cgroup = _own_cgroup()
        self._before = self._used_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        used_s = self._used_s()
        line = {"test": item.nodeid, "phase": call.when, "cpu_s": round(used_s - self._before, 4)}
        self._before = used_s
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _used_s(self) -> float:
        with suppress(FileNotFoundError):
            return int((self._cgroup / "cpuacct.usage").read_text()) / 1e9
        stat = dict(line.split() for line in (self._cgroup / "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6


def _own_cgroup() -> Path:
    """A cgroup for this process and what it starts, made where the kernel counts CPU time."""
    for kind in ("cpuacct", "cgroup2"):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            of, _, options = right.split()[:3]
            if kind in (of, *options.split(",")):
                made = Path(left.split()[4]) / f"tests-of-dayfly-{os.getpid()}"
                _remove_empty(made.parent)
                made.mkdir(exist_ok=True)
                for pid in (0, *_children()):  # a server of warm programs is there already
                    (made / "cgroup.procs").write_text(str(pid))
                return made
    raise pytest.UsageError("--costs needs a cgroup that counts CPU time: none is mounted")


def _children() -> list[int]:
    files = Path("/proc/self/task").glob("*/children")
    return [int(pid) for file in files for pid in file.read_text().split()]


def _remove_empty(parent: Path) -> None:
    """Those of earlier processes: one cannot remove its own."""
    for made in parent.glob("tests-of-dayfly-*"):
        with suppress(OSError):
            made.rmdir()


def read(file: Path) -> Iterator[tuple[str, str, float]]:
    """Test, phase, CPU seconds."""
    for line in file.read_text().splitlines():
        one = json.loads(line)
        yield one["test"], one["phase"], one["cpu_s"]


def main(file: Path) -> None:
    rooms, files, functions, phases = (Counter[str]() for _ in range(4))
    cases = Counter[str]()
    for test, phase, cpu_s in read(file):
        path, _, rest = test.partition("::")
        function = f"{path}::{rest.partition('[')[0]}"
        for counter, key in (
            (rooms, str(Path(path).parent)),
            (files, path),
            (functions, function),
            (phases, phase),
        ):
            counter[key] += cpu_s
        cases[function] += phase == "call"
    for title, counter in (("rooms", rooms), ("files", files), ("functions", functions)):
        print(f"\n{title}, CPU s")
        for key, cpu_s in counter.most_common(_MOST):
            print(f"{cpu_s:8.1f}  {key}" + (f" x {cases[key]}" if cases[key] > 1 else ""))
    print(f"\nall {phases.total():.0f} s: " + ", ".join(f"{k} {v:.0f}" for k, v in phases.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
