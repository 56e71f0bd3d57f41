"""On what was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """CPU, cores that this process may use, versions, and the load of the last minute."""
    return {
        "cpu": _cpu(Path("/proc/cpuinfo")),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def machine_line(on_what: Mapping[str, Any]) -> str:
    """What `machine` gave, for a person."""
    return (
        f"on {on_what['cores']} cores of {on_what['cpu']}, torch {on_what['torch']}, Python "
        f"{on_what['python']}, load before: {on_what['load']}"
    )


class Stolen:
    """How much of the machine its host gives to others, from the making of this on."""

    def __init__(self, file: Path = Path("/proc/stat")) -> None:
        self._file = file
        self._began = self._read()

    def share(self) -> float | None:
        """Of the time of all cores; None: the kernel does not tell."""
        began, now = self._began, self._read()
        if began is None or now is None or now[1] <= began[1]:
            return None
        return (now[0] - began[0]) / (now[1] - began[1])

    def _read(self) -> tuple[int, int] | None:
        """Ticks that were stolen, and all of them; see proc(5)."""
        if not self._file.exists():
            return None
        with self._file.open() as lines:
            ticks = [int(one) for one in lines.readline().split()[1:9]]
        return (ticks[7], sum(ticks)) if len(ticks) == 8 else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Of torch in this process, as in functions: several wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cpu(information: Path) -> str:
    for line in information.read_text().splitlines() if information.exists() else []:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
