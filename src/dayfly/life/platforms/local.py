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
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from dayfly.errors import RequestError, RunFailed
from dayfly.life.platforms import footprint, gpus, lineage, network, processes
from dayfly.life.platforms.base import Ended, Invocation, LogText, Opening, Platform
from dayfly.life.platforms.confinement import Confiner, Enforcer
from dayfly.life.platforms.local_call import LocalCall
from dayfly.life.platforms.local_monitor import LocalMonitor
from dayfly.life.platforms.local_request import Calls, Surroundings
from dayfly.life.platforms.local_zygote import LocalZygote
from dayfly.life.sessions import Session
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.invoking import Invoking

#: Read at once.
_LOG_BYTES = 2**20


class LogFiles:
    """The `log` of platforms that write to files. A position is an offset in bytes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._directory.mkdir(parents=True, exist_ok=True)

    def path(self, function: str) -> Path:
        """The file of a function, all attempts one after another."""
        return self._directory / f"{function}.log"

    def log(self, function: str, after: str = "") -> LogText:
        """As `Platform.log`."""
        start, text = int(after or 0), b""
        with suppress(FileNotFoundError), self.path(function).open("rb") as file:
            file.seek(start)
            text = file.read(_LOG_BYTES)
        return LogText(text, str(start + len(text)))

    def log_end(self, function: str) -> str:
        """As `Platform.log_end`."""
        path = self.path(function)
        return str(path.stat().st_size) if path.exists() else ""


def machine_mib() -> int:
    """Memory of this machine with its swap, in MiB."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("MemTotal", "SwapTotal")) // 1024


def check_machine(memory_mib: int, machine: int) -> None:
    """Raise RequestError for a function's limit above the memory of the machine, both in MiB."""
    if memory_mib > machine:
        raise RequestError(
            f"functions of {memory_mib} MiB are larger than this machine, which has {machine} MiB: "
            "lower --memory, or --stage-memory of that stage"
        )


def overcommitted(sizes_mib: Sequence[int | None], machine: int) -> str | None:
    """Says it if this machine has less memory than all functions may take; None: not limited."""
    wanted = sum(size for size in sizes_mib if size is not None)
    if wanted <= machine:
        return None
    return (
        f"{len(sizes_mib)} functions may take {wanted} MiB together, and this machine has "
        f"{machine}: it runs out of memory before they reach their limits"
    )


def crowding(shares: Sequence[float | None]) -> str | None:
    """Says it if this machine has too few cores for all shares at once; None: not limited."""
    cores = len(os.sched_getaffinity(0))
    known = [share for share in shares if share is not None]
    if sum(known) <= cores:
        return None
    each = " and ".join(f"{share:.3g}" for share in dict.fromkeys(known))
    return (
        f"{len(known)} functions of {each} CPUs want {sum(known):.3g} cores, and "
        f"this machine has {cores}: they may be slower than asked for"
    )


_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]*")
_HANDLER_PATTERN = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Settings of the local platform.

    Args:
        memory: how it is limited: by "cgroup", by "rlimit", or "auto": by cgroup where this user
            may make them.
        gpus: to be given to functions, as CUDA_VISIBLE_DEVICES names them, with commas between;
            None: all that torch can use here.
        netns: network namespaces that functions enter, with commas between; function f enters the
            one of number f modulo their number. None: functions stay in this one.
        call_ms: time of an invocation call, as on a platform that is far away.
        calls_at_once: such calls that one caller has under way at once.
        fan_out: functions that each function invokes, so that those that start together start as a
            tree; None: the coordinator invokes all.
    """

    memory: Enforcer = "auto"
    gpus: str | None = None
    netns: str | None = None
    call_ms: float = 0.0
    calls_at_once: int = 1
    fan_out: int | None = None

    def __post_init__(self) -> None:
        _ = self.invoking  # checks it

    @property
    def invoking(self) -> Invoking:
        """How functions that start together are invoked."""
        return Invoking(
            call_s=self.call_ms / 1000, at_once=self.calls_at_once, fan_out=self.fan_out
        )


class LocalPlatform(Platform):
    """Functions on this machine.

    Functions see `sys.path` and the environment as they are when they are invoked.

    Args:
        session: stays open until the platform was closed; its owner closes it.
        logs: a directory, made if missing; `<function>.log` each, and `_zygote.log`.
        preload: modules that the zygote imports besides torch, so that functions need not; they
            must run no tensor operation.
        enforcer: how memory is limited; auto takes cgroups if this user may make them.
        gpu_names: of the GPUs to give away, as CUDA_VISIBLE_DEVICES names them; None: all that
            torch can use here.
        variables: which instruction sets libraries may use (`life.processor`); None: as of a run
            that begins here.
        spaces: network namespaces that functions enter; empty: they stay in this one.
        invoking: how functions that start together are invoked; None: one after the other, by
            calls that take no time.

    Raises:
        RequestError: the enforcer cannot be used here, or variables of the environment ask for what
            this CPU lacks.
    """

    name = "local"
    Options: ClassVar[type] = LocalOptions
    on_this_machine = True
    ends_stopped = True

    @classmethod
    def open(cls, opening: Opening, options: LocalOptions) -> Self:
        """As `Platform.open`."""
        names = None if options.gpus is None else tuple(options.gpus.split(","))
        return cls(
            opening.session,
            opening.logs,
            opening.preload,
            options.memory,
            names,
            opening.variables,
            network.namespaces_of(options.netns),
            options.invoking,
        )

    def __init__(
        self,
        session: Session,
        logs: Path,
        preload: Sequence[str] = (),
        enforcer: Enforcer = "auto",
        gpu_names: Sequence[str] | None = None,
        variables: Mapping[str, str] | None = None,
        spaces: Sequence[str] = (),
        invoking: Invoking | None = None,
    ) -> None:
        self._invoking = invoking or Invoking()
        self._logs = LogFiles(logs)
        self._spaces = spaces
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

    def prepare(self) -> None:
        """Have a zygote ready soon (seconds: it imports torch); does not wait for it."""
        self._monitor.want_zygote()

    def keep_warm(self) -> None:
        """When this platform is closed, leave its zygote to the next one of this process.

        If it is not at rest by then, it ends with the platform as ever.
        """
        self._keeps_zygote = True

    def least_memory_mib(self) -> int:
        """As `Platform.least_memory_mib`; waits for a zygote to know it."""
        return footprint.least_mib(self._monitor.base_bytes())

    def check(self, specs: Sequence[FunctionSpec]) -> Sequence[str]:
        """As `Platform.check`; waits for a zygote if memory is limited."""
        for spec in dict.fromkeys(specs):
            self._check(spec, len(specs))
        by_rlimit = not self.memory_by_cgroup and any(spec.memory_mib for spec in specs)
        notes = [
            footprint.BY_RLIMIT if by_rlimit else None,
            crowding([spec.cpu_cores for spec in specs]),
            overcommitted([spec.memory_mib for spec in specs], machine_mib()),
        ]
        return [note for note in notes if note is not None]

    def _check(self, spec: FunctionSpec, count: int) -> None:
        if spec.image is not None:
            raise RequestError(
                f"image {spec.image!r}: functions of the local platform are processes of this "
                "machine and have no image: leave it out, or give another --platform"
            )
        if spec.gpu_share is not None:
            gpus.check_gpus(spec.gpu_share, count, len(self.gpu_names()))
        if spec.memory_mib is not None:
            check_machine(spec.memory_mib, machine_mib())
            least = self.least_memory_mib()
            if spec.memory_mib < least:
                raise RequestError(
                    f"functions of {spec.memory_mib} MiB are too small: one with PyTorch in it "
                    f"needs at least {least} MiB here: raise --memory, or --stage-memory of that "
                    "stage"
                )
        self._confiner.check(spec)

    def invoke(self, invocation: Invocation) -> None:
        """As `Platform.invoke`; the first with a memory limit waits for the zygote.

        Raises also ValueError for a name or handler that cannot be.
        """
        self._start([invocation])

    def invoke_all(self, invocations: Iterable[Invocation]) -> None:
        """As `Platform.invoke_all`. Where calls take time or functions invoke functions, each has
        to know whom it invokes: all invocations are made then before the first function starts, and
        if one of them is refused, those behind it were made, but do not start.
        """
        if self._invoking == Invoking():
            super().invoke_all(invocations)
        else:
            self._start(tuple(invocations))

    def _start(self, invocations: Sequence[Invocation]) -> None:
        """Has functions invoked that start together, by the coordinator or by one of them."""
        how, until, calls = self._invoking, time.monotonic(), list[LocalCall]()
        for number, invocation in enumerate(invocations):
            names = [invocations[at].function for at in how.invoked_by(number, len(invocations))]
            invoker, called = how.invoker(number), Calls(tuple(names), how)
            if invoker is None:
                until += how.calling_s(number + 1) - how.calling_s(number)
                calls.append(self._submit(invocation, called, until))
            else:
                calls.append(self._submit(invocation, called, calls[invoker]))
        time.sleep(max(0.0, until - time.monotonic()))  # its own calls are taken by then

    def _submit(
        self, invocation: Invocation, calls: Calls, requested: LocalCall | float
    ) -> LocalCall:
        """Has a function started once it is invoked.

        Args:
            invocation: the function.
            calls: that it makes.
            requested: by the call of this function, or when the coordinator's is taken.
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
        memory_mib, own_bytes = invocation.spec.memory_mib, None
        if memory_mib is not None:
            own_bytes = footprint.own_bytes(function, memory_mib, self._monitor.base_bytes())
        gpu = self._seat(function, invocation.spec.gpu_share)
        with ExitStack() as undo:
            confinement = self._confiner.make(invocation, own_bytes)
            undo.callback(confinement.remove)
            environment = {**self._lineage.environment(), **invocation.spec.environment}
            space = network.namespace_of(gpus.number_of(function), self._spaces)
            surroundings = Surroundings(tuple(sys.path), environment, gpu, space)
            log = self.log_path(function)
            call = LocalCall(invocation, log, confinement, surroundings, calls, requested)
            undo.callback(call.discard)
            self._monitor.submit(call)
            undo.pop_all()
        return call

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """As `Platform.wait`. Raises RunFailed if functions cannot be started any more."""
        return self._monitor.take(timeout_s)

    def cancel(self, function: str) -> None:
        self._monitor.stop(function)

    def running(self) -> Sequence[str]:
        return self._monitor.names()

    def log(self, function: str, after: str = "") -> LogText:
        return self._logs.log(function, after)

    def log_end(self, function: str) -> str:
        return self._logs.log_end(function)

    def log_place(self, function: str) -> str:
        return str(self.log_path(function))

    def log_path(self, function: str) -> Path:
        """The file that a function's standard output and error go to."""
        return self._logs.path(function)

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
        return self._lineage.spawn(self._logs.path("_zygote"))
