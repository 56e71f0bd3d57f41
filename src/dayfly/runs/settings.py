"""How a job is to be run: what the command line's flags say, checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dayfly.errors import RequestError
from dayfly.wire.channels import check_channel
from dayfly.wire.collectives import COLLECTIVES

PLATFORMS = ("local",)
PROTOCOLS = ("bsp",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of a run. Raises RequestError, in one sentence, for what cannot be.

    workers: functions that train at once. platform: where they run. channel: URL of the store
    through which they talk; None: files in memory. sync: protocol. collective: all-reduce
    algorithm. memory_mib: a function's memory; None: not limited. lifetime_s: a function's life;
    None: not limited. target_accuracy: end early once the validation accuracy is at least this.
    log_budget_mib: bound of the messages in the channel; None: the lesser of 1 GiB and a quarter
    of the free space. checkpoint_every_s: longest time between run checkpoints.
    wait_timeout_s: how long a worker waits for a message before it gives up. catalogue: directory
    of the user's own limits and prices, whose rows go before the built-in ones.
    """

    workers: int = 1
    platform: str = "local"
    channel: str | None = None
    sync: str = "bsp"
    collective: str = "scatter-reduce"
    memory_mib: int | None = None
    lifetime_s: float | None = None
    target_accuracy: float | None = None
    log_budget_mib: int | None = None
    checkpoint_every_s: float = 60.0
    wait_timeout_s: float = 900.0
    catalogue: str | None = None

    def __post_init__(self) -> None:
        _among("platform", self.platform, PLATFORMS)
        _among("sync", self.sync, PROTOCOLS)
        _among("collective", self.collective, tuple(COLLECTIVES))
        if self.channel is not None:
            check_channel(self.channel)
        if not 1 <= self.workers <= 10_000:
            raise RequestError(f"--workers {self.workers}: give 1 to 10000")
        for name in ("memory_mib", "lifetime_s", "log_budget_mib"):
            _above_zero(name, getattr(self, name))
        for name in ("checkpoint_every_s", "wait_timeout_s"):
            _above_zero(name, getattr(self, name))
        if self.catalogue is not None:
            # The run may go on from another directory.
            absolute = Path(self.catalogue).expanduser().absolute()
            object.__setattr__(self, "catalogue", str(absolute))
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise RequestError(
                f"--target-accuracy {self.target_accuracy:g}: give a share of 1, such as 0.97"
            )

    @classmethod
    def load(cls, tree: Mapping[str, Any]) -> Self:
        """From what `asdict` gave, by way of JSON."""
        return cls(**tree)


def _among(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise RequestError(f"--{name} {value!r} is not known: give one of {', '.join(known)}")


def _above_zero(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        flag, _, unit = name.rpartition("_")
        unit = {"mib": "MiB"}.get(unit, unit)
        raise RequestError(
            f"--{flag.replace('_', '-')} {value:g} {unit}: give a number above 0, or leave it out"
        )
