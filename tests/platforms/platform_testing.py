"""Steps that the platform tests share. Every wait has a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dayfly.life.platforms.base import Ended, Invocation, Json, Platform
from dayfly.life.platforms.conformance import ROOMY_MIB, wait_for_all
from dayfly.specs.functions import FunctionSpec

__all__ = [
    "ROOMY_MIB",
    "call",
    "eventually",
    "is_alive",
    "read_pids",
    "run",
    "soon",
    "wait_for_all",
]

WAIT_S = 120.0


def call(
    function: str,
    handler: str,
    payload: Json | None = None,
    attempt: int = 0,
    **limits: Any,
) -> Invocation:
    return Invocation(
        function=function,
        attempt=attempt,
        handler=f"platform_handlers:{handler}",
        payload=payload or {},
        spec=FunctionSpec(**limits),
    )


def run(platform: Platform, handler: str, payload: Json | None = None, **limits: Any) -> Ended:
    """Invoke one function, and wait for its end."""
    platform.invoke(call("solo", handler, payload, **limits))
    return wait_for_all(platform, ["solo"])["solo"]


def soon(holds: Callable[[], object], timeout_s: float) -> bool:
    """Whether something holds within a time."""
    give_up_at = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.005)
    return True


def eventually(what: str, holds: Callable[[], object]) -> None:
    assert soon(holds, WAIT_S), f"{what}: not within {WAIT_S} s"


def read_pids(path: Path) -> list[int]:
    """Pids that a function tells in a file; waits for it."""
    eventually(f"{path.name} from the function", path.exists)
    return [int(pid) for pid in path.read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
