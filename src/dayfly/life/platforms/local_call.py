"""One invocation on the local platform as the coordinator sees it, from request to reaping."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayfly.life.failure import Failure
from dayfly.life.platforms import control, processes
from dayfly.life.platforms.base import Ended, Invocation, Outcome
from dayfly.life.platforms.confinement import Confinement
from dayfly.life.platforms.control import Receiver
from dayfly.life.platforms.footprint import LOOK_EVERY_S, MIB, Footprint, Resident
from dayfly.life.platforms.local_request import Calls, Surroundings, request_of
from dayfly.life.platforms.local_zygote import LocalZygote


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the coordinator knows when a function is dead.

    Args:
        said: its last word, result, raised, memory or gpu memory; None if it had none.
        stopped: why we killed it.
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
    if facts.stopped is Outcome.KILLED:
        return Outcome.KILLED, "stopped from outside, and so ended"
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


HELLO_TIMEOUT_S = 60.0
RETRY_S = 0.1
#: Looks in a row that find a process stopped until it is taken to be lost: 0.5 s.
STOPPED_LOOKS = 5


class LocalCall:
    """Not thread-safe: its owner holds a lock.

    Args:
        invocation: the function.
        log: the file of what it prints.
        confinement: its limits.
        surroundings: what it finds around it.
        calls: that it makes.
        requested: the function that invokes it, or when it is invoked, by time.monotonic().

    Raises ValueError if the payload is not a JSON object or too long, OSError if its log cannot be
    opened.

    Attributes:
        requested_at: time.monotonic() from which it may be started; infinite: not known yet.
        invoked: the functions that it has invoked.
        over: whether it has ended.
        pidfd: its process, -1 before the hello.
        tries: how often the last zygote was asked for it.
        retry_at: time.monotonic() from which the same zygote may be asked again.
        give_up_at: time.monotonic() until which a started one must say hello.
        kill_at: the end of its lifetime, None before the hello or without one.
        look_at: time.monotonic() at which to look at its memory again, None before the hello.
        stopped: why we killed it, or shall.
    """

    def __init__(
        self,
        invocation: Invocation,
        log: Path,
        confinement: Confinement,
        surroundings: Surroundings,
        calls: Calls,
        requested: LocalCall | float,
    ) -> None:
        self.invocation = invocation
        self._invoker = requested if isinstance(requested, LocalCall) else None
        self.requested_at = math.inf if isinstance(requested, LocalCall) else requested
        self.invoked: set[str] = set()
        self.over = False
        self.pidfd = -1
        self.tries = 0
        self.retry_at = 0.0
        self._asked: LocalZygote | None = None
        self.give_up_at = 0.0
        self.kill_at: float | None = None
        self.stopped: Outcome | None = None
        self._confinement = confinement
        self._pid = -1
        self._footprint: Footprint | None = None
        self._stopped_looks = 0
        self.look_at: float | None = None
        self._begun_at: float | None = None
        self._said: Mapping[str, Any] | None = None
        self._receiver: Receiver | None = None
        payload = control.encode(
            invocation.payload,
            f"the payload of {invocation.function}",
            invocation.spec.payload_bytes,
        )
        self._log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # In a descriptor and not through the socket: nobody has to wait until it was read.
        self._request_fd = os.memfd_create(f"dayfly-{invocation.function}", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(self._request_fd), "wb") as file:
            file.write(request_of(invocation, payload, confinement, surroundings, calls))

    @property
    def function(self) -> str:
        """The function's name."""
        return self.invocation.function

    @property
    def started(self) -> bool:
        """Whether a zygote was asked for it, and has not lost it."""
        return self._receiver is not None

    @property
    def hello_due(self) -> bool:
        """Whether it is being started: its process may exist, but is not known."""
        return self.started and self.pidfd < 0

    @property
    def control_fd(self) -> int:
        """To be watched for messages; -1 if none can come."""
        return -1 if self._receiver is None or self._receiver.ended else self._receiver.fileno()

    def requested(self, now: float) -> bool:
        """Returns whether it has been invoked by `now`.

        One whose invoker died before it came to that call is invoked here: nobody else will do it.
        """
        by = self._invoker
        if by is not None and (by.over or self.function in by.invoked):
            self._invoker, self.requested_at = None, now
        return now >= self.requested_at

    def may_ask(self, zygote: LocalZygote, now: float) -> bool:
        """Whether it is time at `now` to ask this zygote: another than the last one, always."""
        return zygote is not self._asked or now >= self.retry_at

    def start(self, zygote: LocalZygote) -> None:
        """Ask a zygote that is ready."""
        self.tries = self.tries + 1 if zygote is self._asked else 1
        self._asked = zygote
        self.give_up_at = time.monotonic() + HELLO_TIMEOUT_S
        ours, theirs = socket.socketpair()
        with theirs:
            zygote.request([theirs.fileno(), self._request_fd, self._log_fd])
        ours.setblocking(False)
        self._receiver = Receiver(ours)

    def receive(self) -> bool:
        """Take what it said; False if it was lost: no hello came, and none can come."""
        if self._receiver is None:
            return True
        for message in self._receiver.receive():
            self._take(message)
        if self._receiver.ended and self.pidfd < 0:
            self._receiver.close()
            self._receiver = None
            # If the zygote is dying, its end is noticed first; if a fork failed, it may work later.
            self.retry_at = time.monotonic() + RETRY_S
            return False
        return True

    def look(self) -> None:
        """Look at it, if it is there: at its memory, and whether it goes on at all.

        One that somebody has stopped is ended, so that it cannot come back beside its successor.
        One that computes, or is held up by the machine, is let be, however long it says nothing.
        """
        if self._footprint is not None:
            self._footprint.look()
            self._stopped_looks = self._stopped_looks + 1 if processes.is_stopped(self._pid) else 0
            if self._stopped_looks >= STOPPED_LOOKS:
                self.stop(Outcome.KILLED)
            self.look_at = time.monotonic() + LOOK_EVERY_S

    def stop(self, reason: Outcome) -> None:
        """Kill it, now or as soon as it says hello; the first reason counts."""
        self.stopped = self.stopped or reason
        if self.pidfd >= 0:
            processes.kill(self.pidfd)

    def finish(self, base_bytes: int | None) -> Ended:
        """Reaps the function's process and removes what it left behind.

        The process must be dead, or never have been started.

        Args:
            base_bytes: memory that it shared with its zygote, for its peak.
        """
        now = time.monotonic()
        self.over = True
        death = None
        oom_killed = False
        peak_bytes: int | None = None
        if self.pidfd >= 0:
            self.receive()  # its last words may have come together with its end
            death = processes.reap(self.pidfd, self._pid)
            processes.kill_session(self._pid)
            if self._footprint is not None:
                peak_bytes = self._footprint.most_bytes(death.peak_rss_bytes)
        if (cgroup := self._confinement.memory) is not None:
            with suppress(OSError):  # somebody removed the cgroup
                oom_killed = cgroup.oom_killed()
                # What was killed for want of memory needed all that it had been given.
                charged_bytes = cgroup.peak_bytes()
                if charged_bytes is not None and peak_bytes is not None:
                    peak_bytes = charged_bytes if oom_killed else min(peak_bytes, charged_bytes)
        self.discard()
        begun_at = now if self._begun_at is None else self._begun_at
        return ended(
            Facts(
                invocation=self.invocation,
                said=self._said,
                stopped=self.stopped,
                wait_status=death.wait_status if death else None,
                oom_killed=oom_killed,
                init_s=max(0.0, begun_at - self.requested_at),
                run_s=max(0.0, now - begun_at),
                peak_mib=self._peak_mib(base_bytes, peak_bytes),
            )
        )

    def discard(self) -> None:
        """Close and remove what belongs to it. May be called twice."""
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None
        for fd in (self.pidfd, self._request_fd, self._log_fd):
            if fd >= 0:
                os.close(fd)
        self.pidfd = self._request_fd = self._log_fd = -1
        self._confinement.remove()
        self._confinement = Confinement()

    def _peak_mib(self, base_bytes: int | None, own_bytes: int | None) -> float | None:
        """The peak, counted as the limit counts: base and what came later; never above it."""
        if base_bytes is None or own_bytes is None:
            return None
        peak_mib, memory_mib = (base_bytes + own_bytes) / MIB, self.invocation.spec.memory_mib
        return peak_mib if memory_mib is None else min(peak_mib, memory_mib)

    def _take(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "hello":
                assert self._receiver is not None
                self.pidfd = self._receiver.fds.pop()
                self._pid = int(message["pid"])
                anonymous_bytes = int(message["anonymous_bytes"])
                self._footprint = Footprint(self._pid, anonymous_bytes, self._confinement.memory)
                self.look()
                spec = self.invocation.spec
                if spec.lifetime_s is not None:
                    started_at = float(message["started_at"]) + spec.cold_start_s
                    self.kill_at = started_at + spec.lifetime_s
                if self.stopped is not None:
                    processes.kill(self.pidfd)
            case "begun":
                self._begun_at = float(message["at"])
            case "invoked":
                self.invoked.add(str(message["function"]))
            case "resident":
                if self._footprint is not None:
                    sizes = {name: int(message[name]) for name in ("most", "now", "anonymous")}
                    self._footprint.told(Resident(**sizes))
            case _:
                self._said = message
