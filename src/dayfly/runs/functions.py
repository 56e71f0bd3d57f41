"""Settings that all kinds of runs share: functions, channel, price list and catalogue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from dayfly.catalogue.lookup import Catalogue
from dayfly.dataclass_json import PathText
from dayfly.errors import RequestError
from dayfly.life.platforms.base import PLATFORMS
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import ChannelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings:
    """Options about a run's functions and its channel.

    Args:
        workers: functions at once.
        platform: where they run.
        platform_options: the platform's own settings, by the names of its `Options`.
        channel: URL of the store through which they talk; None: files in memory.
        memory_mib: a function's memory in MiB; None: not limited, and so of the limits below.
        lifetime_s: a function's life.
        cpu_cores: a function's CPU time a second.
        uplink_mb_per_s: bandwidth to the store, messages and data together; MB is 10^6 bytes.
        downlink_mb_per_s: bandwidth from the store.
        latency_ms: of each request to the store.
        cold_start_s: seconds that each start takes longer.
        payload_kb: of an invocation and of its result; KB is 1000 bytes.
        gpu_share: of one of this machine's GPUs; None: the function computes on the CPU.
        imitate: platform of the catalogue; it gives what of life, CPU, bandwidth and payload is
            None, and the prices of the bill.
        log_budget_mib: bound of the messages in the channel; None: by the space that is free.
        wait_timeout_s: longest wait of a worker for a message.
        catalogue: directory of the user's own limits and prices, whose rows override the built-in
            ones.
        max_cost_usd: dollars that the run's functions may cost, over all its lives; None: any.
        max_time_s: total time after which the run stops, over all its lives; None: none.
        coordinator_lifetime_s: of the process that supervises them; before its end it stops them at
            a checkpoint, and another one goes on with the run. None: not limited.
        allow_other_cpu: go on where CPU type, torch build or number of threads are not those that
            the run began with.

    Raises:
        RequestError: options that cannot be; in a sentence.
    """

    workers: int = 1
    platform: str = "local"
    platform_options: Mapping[str, str | float | bool] = field(default_factory=dict, hash=False)
    channel: str | None = None
    memory_mib: int | None = None
    lifetime_s: float | None = None
    cpu_cores: float | None = None
    uplink_mb_per_s: float | None = None
    downlink_mb_per_s: float | None = None
    latency_ms: float | None = None
    cold_start_s: float | None = None
    payload_kb: float | None = None
    gpu_share: float | None = None
    imitate: str | None = None
    log_budget_mib: int | None = None
    wait_timeout_s: float = 900.0
    catalogue: PathText | None = None
    max_cost_usd: float | None = None
    max_time_s: float | None = None
    coordinator_lifetime_s: float | None = None
    allow_other_cpu: bool = False

    #: Numbers that are above zero if they are given: what the command line calls them, their unit.
    positive: ClassVar[Mapping[str, tuple[str, str]]] = {
        "memory_mib": ("--memory", "MiB"),
        "lifetime_s": ("--lifetime", "s"),
        "cpu_cores": ("--cpu", "cores"),
        "uplink_mb_per_s": ("--uplink", "MB/s"),
        "downlink_mb_per_s": ("--downlink", "MB/s"),
        "latency_ms": ("--latency", "ms"),
        "cold_start_s": ("--cold-start", "s"),
        "payload_kb": ("--payload", "KB"),
        "log_budget_mib": ("--log-budget", "MiB"),
        "wait_timeout_s": ("--wait-timeout", "s"),
        "max_cost_usd": ("--max-cost", "USD"),
        "max_time_s": ("--max-time", "s"),
        "coordinator_lifetime_s": ("--coordinator-lifetime", "s"),
    }

    def __post_init__(self) -> None:
        PLATFORMS.check(self.platform)
        if not 1 <= self.workers <= 10_000:
            raise RequestError(f"--workers {self.workers}: give 1 to 10000")
        self._channel_kind()
        for name, (flag, unit) in self.positive.items():
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise RequestError(
                    f"{flag} {value:g} {unit}: give a number above 0, or leave it out"
                )
        if self.gpu_share is not None and not 0 < self.gpu_share <= 1:
            raise RequestError(
                f"--gpu {self.gpu_share:g}: give the share of a GPU that each function gets, above "
                "0 and at most 1, such as 0.5"
            )
        if self.cpu_cores is not None and self.cpu_cores < 0.001:
            raise RequestError(f"--cpu {self.cpu_cores:g}: give at least 0.001 cores")
        if self.catalogue is not None:
            # The run may go on from another directory.
            absolute = Path(self.catalogue).expanduser().absolute()
            object.__setattr__(self, "catalogue", str(absolute))

    def _channel_kind(self) -> ChannelKind:
        return channel_kind(self.channel or "file:///")

    @property
    def kinds(self) -> tuple[Self, ...]:
        """What each kind of function gets, where they differ; here all are of one kind."""
        return (self,)

    def kind_of(self, rank: int) -> int:
        """Which of the kinds a worker's function is."""
        return 0


def among(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise RequestError unless the value of a flag is one of those that are known."""
    if value not in known:
        raise RequestError(f"--{name} {value!r} is not known: give one of {', '.join(known)}")


def price_list(settings: FunctionSettings) -> str:
    """Name of the platform under whose prices a run is billed."""
    return settings.imitate or "aws-lambda"


def catalogue(settings: FunctionSettings) -> Catalogue:
    """The catalogue with the rows of the user's own that the run was asked to use."""
    return Catalogue(Path(settings.catalogue) if settings.catalogue is not None else None)
