"""The local platform: every function is its own process here, under limits that bite.

    coordinator --- starts ---> zygote: torch imported, nothing computed
         |                         | forks
         |                      a process that forks and exits
         |                         | forks
         +--- adopts, watches --> function: own log, cgroup, control socket

The coordinator is a subreaper, so functions become its children: it learns how each of them ended,
and the zygote may die without any harm to them, or live on for the next platform (lineage.py). When
the coordinator itself dies, however it does, the kernel kills zygote and functions (lifeline.py);
what they started and left in the background, the directory and the cgroups go when the next session
is opened (sessions.py).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from dayfly.errors import RequestError, RunFailed
from dayfly.life.platforms import gpus, lineage, memory_limits, processes
from dayfly.life.platforms.base import Ended, Invocation, Limits, Platform
from dayfly.life.platforms.confinement import Confiner, Enforcer
from dayfly.life.platforms.local_call import LocalCall, Surroundings
from dayfly.life.platforms.local_monitor import LocalMonitor
from dayfly.life.platforms.local_zygote import LocalZygote
from dayfly.life.sessions import Session

_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]*")
_HANDLER_PATTERN = re.compile(r"[\w.]+:[\w.]+")


class LocalPlatform(Platform):
    """Functions on this machine.

    session: stays open until the platform was closed; its owner closes it. logs: a directory, made
    if missing; `<function>.log` each, and `_zygote.log`. preload: modules that the zygote imports
    besides torch, so that functions need not; they must run no tensor operation. enforcer: how
    memory is limited; auto takes cgroups if this user may make them. gpu_names: of the GPUs to give
    away, as CUDA_VISIBLE_DEVICES names them; None: all that torch can use here. variables: which
    instruction sets libraries may use (`life.processor`); None: as of a run that begins here.

    Functions see `sys.path` and the environment as they are when they are invoked. Raises
    RequestError if the enforcer cannot be used here, or variables of the environment ask for what
    this CPU lacks.
    """

    name = "local"

    def __init__(
        self,
        session: Session,
        logs: Path,
        preload: Sequence[str] = (),
        enforcer: Enforcer = "auto",
        gpu_names: Sequence[str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._logs = logs.absolute()
        self._logs.mkdir(parents=True, exist_ok=True)
        self._confiner = Confiner(session, enforcer)
        self._gpu_names = gpu_names
        self._shares: dict[str, float] = {}  # of a GPU, by function; also of those that ended
        self._lineage = lineage.take(session, preload, variables)
        self._keeps_zygote = False
        self._owner_pid = os.getpid()
        self._closed = False
        processes.Subreaper.hold()
        self._monitor = LocalMonitor(self._spawn_zygote)

    @property
    def enforcement(self) -> str:
        """What is enforced, and how, in words."""
        return f"{self._confiner.enforcement}; lifetime by SIGKILL at the deadline"

    @property
    def memory_by_cgroup(self) -> bool:
        """Whether the kernel kills at the memory limit; otherwise allocations fail."""
        return self._confiner.memory_by_cgroup

    def gpu_names(self) -> Sequence[str]:
        """The GPUs that functions can be given; looked for at the first call."""
        if self._gpu_names is None:
            self._gpu_names = gpus.gpus_of_this_machine()
        return self._gpu_names

    def warm_up(self) -> None:
        """Have a zygote ready soon (seconds: it imports torch); does not wait for it."""
        self._monitor.want_zygote()

    def keep_zygote(self) -> None:
        """When this platform is closed, leave its zygote to the next one of this process.

        If it is not at rest by then, it ends with the platform as ever.
        """
        self._keeps_zygote = True

    def least_memory_mib(self) -> int:
        """The smallest memory limit that a function can have here, in MiB; warms up to know it."""
        return memory_limits.least_mib(self._monitor.base_bytes())

    def check(self, limits: Limits) -> None:
        """As `Platform.check`; warms up if memory is limited, to know what torch alone takes."""
        self._confiner.check(limits)
        if limits.memory_mib is not None:
            memory_limits.own_bytes("a function", limits.memory_mib, self._monitor.base_bytes())
        if limits.gpu_share is not None:
            gpus.check_gpus(limits.gpu_share, 1, len(self.gpu_names()))

    def invoke(self, invocation: Invocation) -> None:
        """As `Platform.invoke`; the first with a memory limit waits for the zygote.

        Raises also ValueError for a name or handler that cannot be.
        """
        if self._closed:
            raise RunFailed("the local platform is closed")
        function = invocation.function
        if not _NAME_PATTERN.fullmatch(function):
            raise ValueError(f"function {function!r}: lower-case letters, digits, hyphens only")
        if not _HANDLER_PATTERN.fullmatch(invocation.handler):
            raise ValueError(f"handler {invocation.handler!r}: must be package.module:attribute")
        if function in self.running():
            raise ValueError(f"{function} is still running, or its end was not waited for")
        memory_mib, own_bytes = invocation.limits.memory_mib, None
        if memory_mib is not None:
            own_bytes = memory_limits.own_bytes(function, memory_mib, self._monitor.base_bytes())
        gpu = self._seat(function, invocation.limits.gpu_share)
        with ExitStack() as undo:
            confinement = self._confiner.make(invocation, own_bytes)
            undo.callback(confinement.remove)
            surroundings = Surroundings(tuple(sys.path), self._lineage.environment(), gpu)
            call = LocalCall(invocation, self.log_path(function), confinement, surroundings)
            undo.callback(call.discard)
            self._monitor.submit(call)
            undo.pop_all()

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """As `Platform.wait`. Raises RunFailed if functions cannot be started any more."""
        return self._monitor.take(timeout_s)

    def cancel(self, function: str) -> None:
        self._monitor.stop(function)

    def running(self) -> Sequence[str]:
        return self._monitor.names()

    def log_path(self, function: str) -> Path:
        return self._logs / f"{function}.log"

    def close(self) -> None:
        """As `Platform.close`; does nothing in a forked child."""
        if self._closed or os.getpid() != self._owner_pid:
            return
        self._closed = True
        kept = None
        try:
            kept = self._monitor.close(keep=self._keeps_zygote)
        finally:
            self._lineage.release(kept)
            processes.Subreaper.release()

    def _seat(self, function: str, share: float | None) -> str | None:
        """The GPU of a function that is to start. Raises RequestError if there is no room on it."""
        self._shares.pop(function, None)
        if share is None:
            return None
        names = self.gpu_names()
        gpus.check_gpus(share, 1, len(names))
        mine = gpus.gpu_of(function, len(names))
        beside = [
            self._shares[other]
            for other in self.running()
            if other in self._shares and gpus.gpu_of(other, len(names)) == mine
        ]
        if gpus.full([*beside, share]):
            raise RequestError(
                f"{function} is to have {share:g} of GPU {names[mine]}, but the functions there "
                f"have {sum(beside):g} of it already: give smaller shares, or use fewer functions"
            )
        self._shares[function] = share
        return names[mine]

    def _spawn_zygote(self) -> LocalZygote:
        return self._lineage.spawn(self._logs / "_zygote.log")
