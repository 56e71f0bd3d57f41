"""A place where functions run: what every platform promises.

A function is started with a small payload, runs one handler, and ends with a small result or dies.
It has a memory limit and a lifetime that bite, writes a log, and is billed by time. What it gets is
described by a `FunctionSpec`, the same for every platform; a platform's own settings are its
`Options`. Platforms have names in a registry (registry.py), and the conformance suite
(conformance.py) runs over all of them.

Delivery is at least once on real platforms, so handlers are idempotent; an invocation carries its
attempt, which fences late duplicates.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from dayfly.closing import Closing
from dayfly.dataclass_json import read
from dayfly.life.failure import Failure
from dayfly.life.sessions import Session
from dayfly.registry import Registry
from dayfly.specs.functions import FunctionSpec

#: What travels in and out of a function: JSON objects.
Json = Mapping[str, Any]
#: A function's code: takes the payload and the context, returns the result.
Handler = Callable[[Json, "Context"], Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of a function.

    Args:
        function: name in logs and errors, such as `worker-3` (letters, digits, hyphens).
        attempt: 0 for the first; with the function's name it identifies the invocation.
        handler: `package.module:attribute` of a `Handler`, importable where the function runs.
        payload: a JSON object. It has the coordinator's token, and is not shown.
        spec: what the function gets.
    """

    function: str
    attempt: int
    handler: str
    payload: Json = field(repr=False)  # it has the coordinator's token
    spec: FunctionSpec


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler is told about its own lifetime, as Lambda's context object tells it.

    Args:
        function: its name.
        attempt: of its invocation.
        started_at: begin of its lifetime, `time.monotonic()` of this machine.
        deadline: end of its lifetime; None: no lifetime imposed.
        memory_mib: its memory limit in MiB; None: not limited.
        gpu_share: of the one GPU that it sees; None: it has none.
    """

    function: str
    attempt: int
    started_at: float
    deadline: float | None
    memory_mib: int | None
    gpu_share: float | None = None

    def remaining_s(self) -> float:
        """Returns the seconds until the platform kills this function; infinite if it never does."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()


class Outcome(Enum):
    """How an invocation ended."""

    RETURNED = "returned"  # the handler returned; `result` is set
    RAISED = "raised"  # the handler raised; `detail` is the traceback
    OUT_OF_MEMORY = "out of memory"  # killed at, or stopped by, its memory limit
    LIFETIME = "lifetime"  # killed at the end of its lifetime
    CANCELLED = "cancelled"  # killed by `cancel` or `close`
    EXITED = "exited"  # ended itself without a result: exit code or a fatal signal of its own
    KILLED = "killed"  # SIGKILL or SIGTERM from outside
    SILENT = "silent"  # cancelled, as no heartbeat came; only the supervisor says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An invocation that is over.

    Args:
        invocation: which one.
        outcome: how it ended.
        result: for RETURNED: a JSON object; else None.
        failure: for RAISED: what was raised, and where; else None.
        detail: for people: a traceback, `exit code 3`, `signal SIGSEGV`, `256 MiB limit, peak 251
            MiB`.
        init_s: seconds from the request until the handler began; billed.
        run_s: seconds from there to the end; billed.
        peak_mib: the most memory that it held; None: the platform cannot tell.
        on_gpu: for OUT_OF_MEMORY, whether it was the GPU's.
    """

    invocation: Invocation
    outcome: Outcome
    result: Json | None = None
    failure: Failure | None = None
    detail: str = ""
    init_s: float
    run_s: float
    peak_mib: float | None = None
    on_gpu: bool = False

    @property
    def error(self) -> str | None:
        """The exception of RAISED in one line, type and text; None for other outcomes."""
        return None if self.failure is None else self.failure.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a platform is opened with: the run's side of it.

    Args:
        session: of this process; what a platform makes on this machine is recorded in it, and
            removed when the session is closed or found dead. It stays open until the platform was
            closed.
        logs: a directory for what functions print, made if missing.
        preload: modules that may be imported before a function starts; they run no tensor
            operation.
        variables: environment variables that libraries read while they are loaded, such as the
            instruction sets that they may use (`life.processor`); None: as of a run that begins
            here.
    """

    session: Session
    logs: Path
    preload: Sequence[str] = ()
    variables: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class LogText:
    """What a function printed.

    Args:
        text: bytes of standard output and error.
        position: where to read on; only the platform knows its form.
    """

    text: bytes
    position: str


class Logs(Protocol):
    """Where a function's log can be read; every platform is one."""

    def log(self, function: str, after: str = "") -> LogText:
        """As `Platform.log`."""

    def log_end(self, function: str) -> str:
        """As `Platform.log_end`."""


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Of a platform that has no settings of its own."""


class Platform(Closing):
    """Starts functions and tells how they ended. Use as a context manager, or close it.

    One thread uses a platform at a time. A new one is a subclass and a line in the registry, or an
    entry point `dayfly.platforms` of another package.
    """

    #: As `--platform` and the registry have it.
    name: ClassVar[str]
    #: A dataclass of its own settings, as `--platform-option NAME=VALUE` gives them; its fields
    #: have defaults, and its docstring says what they mean.
    Options: ClassVar[type] = NoOptions
    #: Whether functions share this machine, its cores and its memory.
    on_this_machine: ClassVar[bool] = False
    #: Whether it ends functions that were stopped, so that they cannot come back, and `wait` tells
    #: of them. Where it does not, workers send heartbeats.
    ends_stopped: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def open(cls, opening: Opening, options: Any) -> Self:
        """Returns a platform for a run's functions.

        Args:
            opening: the run's side of it.
            options: an object of `Options`.

        Raises:
            RequestError: options that cannot be had here.
        """

    @abstractmethod
    def check(self, specs: Sequence[FunctionSpec]) -> Sequence[str]:
        """Checks a request for so many functions at once, before any is started.

        Args:
            specs: one a function.

        Returns:
            Sentences for the user about what is kept in another way than asked for.

        Raises:
            RequestError: a function cannot be had here; with a remedy.
        """

    def prepare(self) -> None:
        """Begins to prepare quick starts, which is not billed; returns at once.

        Such as a checked image, or a process with torch in it. By default there is nothing.
        """
        return None

    def keep_warm(self) -> None:
        """Leaves the result of `prepare` to the process's next platform, when this is closed."""
        return None

    @abstractmethod
    def least_memory_mib(self) -> int:
        """Returns the smallest memory size that a function can have here, in MiB."""

    @abstractmethod
    def invoke(self, invocation: Invocation) -> None:
        """Starts a function; returns as soon as the request is taken.

        Raises:
            ValueError: an invocation of this function is still running (one at a time by name), or
                its payload is no JSON object or longer than its limit.
            RequestError: as `check` does.
            RunFailed: the platform cannot start functions at all.
        """

    def invoke_all(self, invocations: Iterable[Invocation]) -> None:
        """Starts functions together, such as the workers of a generation.

        Returns as soon as the requests are taken. By default one is invoked after the other. A
        platform whose calls take long may have several under way at once, or have functions invoke
        functions (`specs.invoking`). Then, too, `running` has the names of all from here on, and
        one whose invoker died before it invoked it is invoked by the platform itself, in the same
        attempt.

        Args:
            invocations: of different functions; each is made when it is asked for.

        Raises:
            ValueError, RequestError, RunFailed: as of `invoke`; some may have been started.
        """
        for invocation in invocations:
            self.invoke(invocation)

    @abstractmethod
    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Returns the invocations that ended since the last call.

        Args:
            timeout_s: longest wait for the first.

        Raises:
            RunFailed: the platform cannot start functions any more.
        """

    @abstractmethod
    def cancel(self, function: str) -> None:
        """Kills a running function; `wait` reports it. One that has ended is passed over.

        Where a function cannot be killed, `wait` reports it all the same: what it does later does
        no harm, as its attempt is fenced.
        """

    @abstractmethod
    def running(self) -> Sequence[str]:
        """Returns the names of the functions that have not been reported as ended, sorted."""

    @abstractmethod
    def log(self, function: str, after: str = "") -> LogText:
        """Returns standard output and error of a function, all attempts one after another.

        Args:
            function: its name; of one that never ran there is nothing.
            after: a position that this method returned, "" for the beginning. More can come while
                the function runs.
        """

    @abstractmethod
    def log_end(self, function: str) -> str:
        """Returns the position after all that a function has printed so far."""

    @abstractmethod
    def log_place(self, function: str) -> str:
        """Returns where people find that log: a path or a URL."""

    @abstractmethod
    def close(self) -> None:
        """Kills all functions, waits for their end and removes everything. May be called twice."""


_BUILT_IN = {"local": "dayfly.life.platforms.local:LocalPlatform"}

PLATFORMS: Registry[type[Platform]] = Registry("platform", "dayfly.platforms", _BUILT_IN)


def platform_options(name: str, given: Mapping[str, Any]) -> Any:
    """A platform's own settings, checked.

    Args:
        name: of the platform.
        given: by the names of `Options`; a number or truth value may be a text, as on the command
            line.

    Returns:
        An object of the platform's `Options`.

    Raises:
        RequestError: for an unknown platform, and options that it does not have.
    """
    PLATFORMS.check(name)
    options = PLATFORMS[name].Options
    tree = {key: _plain(value) for key, value in given.items()}
    return read(options, tree, f"settings of platform {name}")


def _plain(value: Any) -> Any:
    """What a text of the command line means."""
    with suppress(TypeError, ValueError):
        found = json.loads(value)
        if isinstance(found, bool | int | float):
            return found
    return value
