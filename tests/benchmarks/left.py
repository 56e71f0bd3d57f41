"""What benches may leave behind, looked at while other tests run benches, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.parts import namespaces

from tests.cli import command


def scratch(temporary: Path) -> list[Path]:
    """Directories of benches that make theirs there."""
    return list(temporary.glob("dayfly-bench-*"))


def spaces() -> str:
    """Network namespaces of this machine."""
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def namespace_is_swept(code: str, part: str) -> None:
    """Run code that kills its process: its namespaces stay, and the next sweep removes them.

    Other tests sweep, too. Until the process is reaped they count it among the living.
    """
    killed = subprocess.Popen([sys.executable, "-c", code])
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert f"dayfly-bench-{killed.pid}-{part}" in spaces()
    killed.wait()
    namespaces.sweep()
    # If not by this sweep, then by another one that began before.
    command.eventually("the end", lambda: f"dayfly-bench-{killed.pid}-" not in spaces())
