"""How a job is to be run: what the command line's flags say, checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from dayfly.errors import RequestError
from dayfly.train.compression import compression
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import ChannelKind
from dayfly.wire.collectives import Collective, collective, default_collective

PLATFORMS = ("local",)
PROTOCOLS = ("bsp", "local-sgd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of a run. Raises RequestError, in one sentence, for what cannot be.

    workers: functions that train at once. platform: where they run. channel: URL of the store
    through which they talk; None: files in memory. sync: protocol. k: steps between two averages
    of local SGD, or "epoch". collective: all-reduce algorithm; None: what suits the channel, see
    `algorithm`. aggregators: of k-reduce. compress: form in which gradients travel: none, bf16,
    int8, powersgd or powersgd:RANK. target_accuracy: end early once the validation accuracy is at
    least this.

    Limits of a function; None: not limited. memory_mib: memory. lifetime_s: life. cpu_cores: CPU
    time a second. uplink_mb_per_s, downlink_mb_per_s: to and from the store, all of its messages
    and data together; MB is 10^6 bytes. latency_ms: of each request to the store. cold_start_s:
    seconds that each start takes longer. payload_kb: of an invocation and of its result; KB is
    1000 bytes. imitate: platform of the catalogue; it gives what of lifetime_s, cpu_cores, uplink,
    downlink and payload is None, and the prices of the bill.

    log_budget_mib: bound of the messages in the channel; None: the lesser of 1 GiB and a quarter
    of the free space. checkpoint_every_s: longest time between run checkpoints (of local SGD,
    between a worker's own, too).
    wait_timeout_s: how long a worker waits for a message before it gives up. catalogue: directory
    of the user's own limits and prices, whose rows go before the built-in ones.
    """

    workers: int = 1
    platform: str = "local"
    channel: str | None = None
    sync: str = "bsp"
    k: int | Literal["epoch"] | None = None
    collective: str | None = None
    aggregators: int | None = None
    compress: str = "none"
    memory_mib: int | None = None
    lifetime_s: float | None = None
    cpu_cores: float | None = None
    uplink_mb_per_s: float | None = None
    downlink_mb_per_s: float | None = None
    latency_ms: float | None = None
    cold_start_s: float | None = None
    payload_kb: float | None = None
    imitate: str | None = None
    target_accuracy: float | None = None
    log_budget_mib: int | None = None
    checkpoint_every_s: float = 60.0
    wait_timeout_s: float = 900.0
    catalogue: str | None = None

    def __post_init__(self) -> None:
        _among("platform", self.platform, PLATFORMS)
        _among("sync", self.sync, PROTOCOLS)
        self._check_k()
        if not 1 <= self.workers <= 10_000:
            raise RequestError(f"--workers {self.workers}: give 1 to 10000")
        self._check_collective()
        stores = bool(self.reducing.sums(2, 1, 1))
        check_compression(self.compress, self.sync, self.algorithm, stores=stores)
        for name in _FLAGS:
            _above_zero(name, getattr(self, name))
        if self.cpu_cores is not None and self.cpu_cores < 0.001:
            raise RequestError(f"--cpu {self.cpu_cores:g}: give at least 0.001 cores")
        if self.catalogue is not None:
            # The run may go on from another directory.
            absolute = Path(self.catalogue).expanduser().absolute()
            object.__setattr__(self, "catalogue", str(absolute))
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise RequestError(
                f"--target-accuracy {self.target_accuracy:g}: give a share of 1, such as 0.97"
            )

    @property
    def round_steps(self) -> int | None:
        """Steps after which replicas are equal; None: an epoch's."""
        return 1 if self.k is None else None if self.k == "epoch" else self.k

    @property
    def algorithm(self) -> str:
        """The name of the all-reduce algorithm: the one asked for, or what suits the channel best.

        That is push-pull where the channel sums, and ring where workers reach each other; over a
        store, overlapped, but for files without a limited way to them scatter-reduce: there is no
        link to keep busy, and it has the fewest messages that every worker has a share in.
        """
        if self.collective is not None:
            return self.collective
        kind = self._channel_kind()
        ways = (self.uplink_mb_per_s, self.downlink_mb_per_s, self.latency_ms, self.imitate)
        return default_collective(
            sums=kind.abilities.sums,
            direct=kind.abilities.direct,
            immediate=kind.immediate and all(way is None for way in ways),
        )

    @property
    def reducing(self) -> Collective:
        """The all-reduce algorithm."""
        return collective(self.algorithm, self.aggregators, self.workers)

    def _channel_kind(self) -> ChannelKind:
        return channel_kind(self.channel or "file:///")

    def _check_collective(self) -> None:
        kind = self._channel_kind()
        if self.reducing.server and not kind.abilities.sums:
            raise RequestError(
                f"--collective {self.algorithm} needs a channel that sums, and {kind.usage} only "
                "keeps messages: give --channel ps://HOST:PORT, or another --collective"
            )

    def _check_k(self) -> None:
        if self.sync != "local-sgd" and self.k is not None:
            raise RequestError(
                f"--k {self.k} is for --sync local-sgd: replicas of {self.sync} are equal after "
                "every step"
            )
        if self.sync == "local-sgd" and self.k is None:
            raise RequestError(
                "--sync local-sgd needs --k: the steps between two averages, or epoch"
            )
        whole = isinstance(self.k, int) and not isinstance(self.k, bool) and self.k >= 1
        if self.k is not None and self.k != "epoch" and not whole:
            raise RequestError(f"--k {self.k}: give a number of steps from 1, or epoch")

    @classmethod
    def load(cls, tree: Mapping[str, Any]) -> Self:
        """From what `asdict` gave, by way of JSON."""
        return cls(**tree)


def check_compression(compress: str, sync: str, collective: str, *, stores: bool) -> None:
    """Raise RequestError if gradients cannot be compressed so, with this protocol and collective.

    stores: whether the collective stores its sums. A codec needs that, so that all read the same: a
    ring adds to what it decoded again and again, and a server adds up what it does not know.
    """
    asked = compression(compress)
    if asked.method != "none" and sync != "bsp":
        raise RequestError(
            f"--compress {compress} is for the gradients of --sync bsp: {sync} averages the models "
            "themselves, whose weights must not be rounded"
        )
    if asked.codec and not stores:
        raise RequestError(
            f"--compress {compress} needs a collective that stores its sums, which {collective} "
            "does not: give another --collective, such as scatter-reduce, or --compress powersgd"
        )


def _among(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise RequestError(f"--{name} {value!r} is not known: give one of {', '.join(known)}")


#: Numbers that are above zero if they are given: what the command line calls them, and their unit.
_FLAGS = {
    "memory_mib": ("--memory", "MiB"),
    "lifetime_s": ("--lifetime", "s"),
    "cpu_cores": ("--cpu", "cores"),
    "uplink_mb_per_s": ("--uplink", "MB/s"),
    "downlink_mb_per_s": ("--downlink", "MB/s"),
    "latency_ms": ("--latency", "ms"),
    "cold_start_s": ("--cold-start", "s"),
    "payload_kb": ("--payload", "KB"),
    "log_budget_mib": ("--log-budget", "MiB"),
    "checkpoint_every_s": ("--checkpoint-every", "s"),
    "wait_timeout_s": ("--wait-timeout", "s"),
}


def _above_zero(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        flag, unit = _FLAGS[name]
        raise RequestError(f"{flag} {value:g} {unit}: give a number above 0, or leave it out")
