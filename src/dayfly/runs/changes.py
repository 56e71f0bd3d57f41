"""The settings that may change from one generation of a run to the next.

Fixed for the run's life are seed, batch size, compression, the number of threads, the CPU type and
virtual workers, with which the micro-batches are fixed, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from dayfly.errors import RequestError
from dayfly.life.platforms.base import PLATFORMS
from dayfly.specs.protocols import PROTOCOLS
from dayfly.wire.channels import channel_kind

#: The flag that gives one size of all functions, or each worker's.
MEMORY = "--memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Settings that may change from one generation to the next; None: it stays as it is.

    Args:
        platform: where functions run, by its name.
        platform_options: settings of that platform.
        imitate: platform of the catalogue, whose limits and prices count.
        workers: functions at once.
        memory_mib: a function's memory.
        stage_memory_mib: memory of each stage's functions.
        each_memory_mib: memory of each worker's function; `workers` are as many.
        shares: each worker's share of a batch; `workers` are as many.
        cpu_cores: a function's CPU time a second.
        lifetime_s: a function's life.
        uplink_mb_per_s: bandwidth to the store.
        downlink_mb_per_s: bandwidth from the store.
        latency_ms: of each request to the store.
        cold_start_s: seconds that each start takes longer.
        channel: URL of the channel, without secrets.
        sync: protocol; what belongs to the one before alone, such as `k`, is as if not given.
        k: steps between two averages of local SGD, or "epoch".
        outer: outer optimizer of local SGD.
        outer_lr: its learning rate.
        outer_momentum: its momentum.
        fragments: in which an outer gradient is exchanged.
        overlap: inner steps after which the sum of a fragment is applied.
        collective: all-reduce algorithm.
        aggregators: workers that sum, of k-reduce and hap.
        cut: first layer of each stage but the first.
        replicas: functions of each stage: one number for all, or each stage's.
        micro_batches: pieces in which a worker computes its share of a batch.
        schedule: order of the micro-batches.
        log_budget_mib: bound of the messages in the channel.
        checkpoint_every_s: longest time between run checkpoints.

    Raises:
        RequestError: nothing is to change, or there is no such platform, channel or protocol.
    """

    platform: str | None = None
    platform_options: Mapping[str, Any] | None = None
    imitate: str | None = None
    workers: int | None = None
    memory_mib: int | None = None
    stage_memory_mib: tuple[int, ...] | None = None
    each_memory_mib: tuple[int, ...] | None = None
    shares: tuple[int, ...] | None = None
    cpu_cores: float | None = None
    lifetime_s: float | None = None
    uplink_mb_per_s: float | None = None
    downlink_mb_per_s: float | None = None
    latency_ms: float | None = None
    cold_start_s: float | None = None
    channel: str | None = None
    sync: str | None = None
    k: int | Literal["epoch"] | None = None
    outer: str | None = None
    outer_lr: float | None = None
    outer_momentum: float | None = None
    fragments: int | None = None
    overlap: int | None = None
    collective: str | None = None
    aggregators: int | None = None
    cut: tuple[int, ...] | None = None
    replicas: int | tuple[int, ...] | None = None
    micro_batches: int | None = None
    schedule: str | None = None
    log_budget_mib: int | None = None
    checkpoint_every_s: float | None = None

    def __post_init__(self) -> None:
        if not self.given:
            raise RequestError("nothing is to change: say what, such as --workers 8")
        if self.platform is not None:
            PLATFORMS.check(self.platform)
        if self.channel is not None:
            channel_kind(self.channel)  # whether it is a URL of a channel, without secrets
        if self.sync is not None:
            PROTOCOLS.check(self.sync, "--sync")

    @property
    def given(self) -> dict[str, Any]:
        """The settings that change, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def flag_of(setting: str) -> str:
    """Returns the flag of a setting that may change, such as `--memory` of `memory_mib`."""
    plain = re.sub("_(mib|s|ms|cores|mb_per_s)$", "", setting).replace("_", "-")
    return f"--{plain.replace('options', 'option')}"
