"""From what is known about a dead function to how its invocation ended. Pure."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dayfly.life.failure import Failure
from dayfly.life.platforms.base import Ended, Invocation, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the coordinator knows when a function is dead.

    said: its last word, result, raised, memory or gpu memory; None if it had none. stopped: why we
    killed it.
    wait_status: as os.waitpid gives it; None if unknown, or if there never was a process.
    oom_killed: the kernel killed in its cgroup.
    """

    invocation: Invocation
    said: Mapping[str, Any] | None
    stopped: Outcome | None
    wait_status: int | None
    oom_killed: bool
    init_s: float
    run_s: float
    peak_mib: float | None


def ended(facts: Facts) -> Ended:
    """A function's own last word goes first: it was complete when the process was killed."""
    outcome, detail = _judge(facts)
    said = facts.said or {}
    return Ended(
        invocation=facts.invocation,
        outcome=outcome,
        result=said.get("result"),
        failure=Failure.load(said["failure"]) if outcome is Outcome.RAISED else None,
        detail=detail,
        init_s=facts.init_s,
        run_s=facts.run_s,
        peak_mib=facts.peak_mib,
        on_gpu=said.get("kind") == "gpu memory",
    )


def _judge(facts: Facts) -> tuple[Outcome, str]:
    spec = facts.invocation.spec
    peak = "unknown" if facts.peak_mib is None else f"{facts.peak_mib:.0f} MiB"
    if facts.said is not None:
        match facts.said["kind"]:
            case "result":
                return Outcome.RETURNED, ""
            case "memory":
                reason = f"out of memory: limit {spec.memory_mib} MiB, an allocation was refused"
                return Outcome.OUT_OF_MEMORY, f"{reason}\n{_traceback(facts.said)}"
            case "gpu memory":
                reason = f"out of GPU memory: its share is {spec.gpu_share:g} of a GPU"
                return Outcome.OUT_OF_MEMORY, f"{reason}\n{_traceback(facts.said)}"
            case _ if facts.oom_killed:  # in a process that the function had started
                reason = f"out of memory: limit {spec.memory_mib} MiB, peak {peak}"
                return Outcome.OUT_OF_MEMORY, f"{reason}\n{_traceback(facts.said)}"
            case _:
                return Outcome.RAISED, _traceback(facts.said)
    if facts.stopped is Outcome.LIFETIME:
        return Outcome.LIFETIME, f"killed at the end of its lifetime of {spec.lifetime_s:g} s"
    if facts.stopped is not None:
        return facts.stopped, facts.stopped.value
    if facts.wait_status is None:
        return Outcome.EXITED, "exit status unknown: another part of this process took it"
    if os.WIFSIGNALED(facts.wait_status):
        number = os.WTERMSIG(facts.wait_status)
        if number == signal.SIGKILL and facts.oom_killed:
            reason = f"out of memory: limit {spec.memory_mib} MiB, peak {peak}"
            return Outcome.OUT_OF_MEMORY, reason
        if number in (signal.SIGKILL, signal.SIGTERM):
            return Outcome.KILLED, f"killed by {_name(number)} from outside"
        return Outcome.EXITED, f"signal {_name(number)}"
    code = os.WEXITSTATUS(facts.wait_status)
    return Outcome.EXITED, f"exit code {code}" + (" without a result" if code == 0 else "")


def _traceback(said: Mapping[str, Any]) -> str:
    return str(said["failure"]["traceback"])


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
