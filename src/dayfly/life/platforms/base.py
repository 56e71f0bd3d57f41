"""A place where functions run: what every platform promises.

A function is started with a small payload, runs one handler, and ends with a small result or dies.
It has a memory limit and a lifetime that bite, writes a log, and is billed by time. The conformance
suite in `tests/platforms` runs over every platform.

Delivery is at least once on real platforms, so handlers are idempotent; an invocation carries its
attempt, which fences late duplicates.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from dayfly.closing import Closing
from dayfly.life.failure import Failure

#: What travels in and out of a function: JSON objects.
Json = Mapping[str, Any]
#: A function's code: takes the payload and the context, returns the result.
Handler = Callable[[Json, "Context"], Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a function gets. None: not limited.

    memory_mib: memory in MiB, as the platforms count it, the runtime's own included.
    lifetime_s: seconds from the start of the handler's process to its kill; the cold start comes
    before, as Lambda's 900 s do not count initialisation.
    cpu_cores: seconds of CPU time a second, from 0.001, all threads together.
    cold_start_s: seconds that each start takes longer, before the handler begins.
    payload_bytes: the longest payload, and the longest result, as JSON. gpu_share: of one GPU, its
    memory included; None: no GPU is given to it.
    """

    memory_mib: int | None = None
    lifetime_s: float | None = None
    cpu_cores: float | None = None
    cold_start_s: float = 0.0
    payload_bytes: int | None = None
    gpu_share: float | None = None

    def __post_init__(self) -> None:
        if self.memory_mib is not None and self.memory_mib < 1:
            raise ValueError(f"memory of {self.memory_mib} MiB: must be at least 1")
        if self.lifetime_s is not None and not self.lifetime_s > 0:
            raise ValueError(f"lifetime of {self.lifetime_s} s: must be above 0")
        if self.cpu_cores is not None and not self.cpu_cores >= 0.001:
            raise ValueError(f"a share of {self.cpu_cores} CPUs: must be at least 0.001")
        if not 0 <= self.cold_start_s < float("inf"):
            raise ValueError(f"a cold start of {self.cold_start_s} s: must be 0 or more")
        if self.payload_bytes is not None and self.payload_bytes < 1:
            raise ValueError(f"payloads of {self.payload_bytes} bytes: must be at least 1")
        if self.gpu_share is not None and not 0 < self.gpu_share <= 1:
            raise ValueError(f"a share of {self.gpu_share} of a GPU: must be above 0, at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of a function.

    function: name in logs and errors, such as `worker-3` (letters, digits, hyphens).
    attempt: 0 for the first; with the function's name it identifies the invocation.
    handler: `package.module:attribute` of a `Handler`, importable where the function runs.
    """

    function: str
    attempt: int
    handler: str
    payload: Json = field(repr=False)  # it has the coordinator's token
    limits: Limits


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler is told about its own life, as Lambda's context object tells it.

    started_at, deadline: begin and end of its lifetime, `time.monotonic()` of this machine;
    deadline None: no lifetime imposed. gpu_share: of the one GPU that it sees; None: it has none.
    """

    function: str
    attempt: int
    started_at: float
    deadline: float | None
    memory_mib: int | None
    gpu_share: float | None = None

    def remaining_s(self) -> float:
        """Seconds until the platform kills this function; infinite without a lifetime."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An invocation that is over.

    detail: for people: a traceback, `exit code 3`, `signal SIGSEGV`, `256 MiB limit, peak 251 MiB`.
    failure: for RAISED: what was raised, and where; else None.
    init_s: seconds from the request until the handler began; run_s: from there to the end. Both
    are billed. peak_mib: the most memory that it held, where the platform can tell. on_gpu: for
    OUT_OF_MEMORY, whether it was the GPU's.
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
        """For RAISED: the exception in one line, such as `ValueError: no`; else None."""
        return None if self.failure is None else self.failure.line


class Platform(Closing):
    """Starts functions and tells how they ended. Use as a context manager, or close it.

    One thread uses a platform at a time.
    """

    name: str

    @abstractmethod
    def check(self, limits: Limits) -> None:
        """Raise RequestError for limits that a function cannot have here; starts nothing."""

    @abstractmethod
    def invoke(self, invocation: Invocation) -> None:
        """Start a function; returns as soon as the request is taken.

        Raises ValueError if an invocation of this function is still running (one at a time by
        name) or its payload is no JSON object or longer than its limit, RequestError as `check`
        does, and RunFailed if the platform cannot start functions at all.
        """

    @abstractmethod
    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Invocations that ended since the last call; waits up to `timeout_s` for the first.

        Raises RunFailed if the platform cannot start functions any more.
        """

    @abstractmethod
    def cancel(self, function: str) -> None:
        """Kill a running function; `wait` reports it. One that has ended is passed over."""

    @abstractmethod
    def running(self) -> Sequence[str]:
        """Names of the functions that have not been reported as ended, sorted."""

    @abstractmethod
    def log_path(self, function: str) -> Path:
        """Where this function's standard output and error are, all attempts one after another."""

    @abstractmethod
    def close(self) -> None:
        """Kill what runs, wait for its end and remove everything. May be called twice."""
