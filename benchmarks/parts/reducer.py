"""One rank of the bench of collectives: all-reduces over a channel, at given rates, or by gloo."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.parts import sums
from benchmarks.parts.memory import growth_bytes
from benchmarks.parts.predictions import ITEM_BYTES, algorithm
from dayfly.credentials import channel_password
from dayfly.errors import RunFailed
from dayfly.wire.authentication import new_token
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.kind import Site
from dayfly.wire.engine import Engine
from dayfly.wire.shaped import shaped_channel
from dayfly.wire.shaping import Rates, ShapedLink
from dayfly.wire.stores.files import FileStore

_OPERATION = "bench"
#: Longest wait for a message. Every one comes, unless a rank has failed.
_TIMEOUT_S = 120.0
#: A buffer so small that it takes no memory, and still has elements for every rank.
_TINY_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a channel is, for all who open it: `site()`. rendezvous: a directory.

    token: by which its messages are known.
    """

    url: str
    namespace: Namespace
    rendezvous: Path
    token: str = field(default_factory=new_token, repr=False)

    def site(self) -> Site:
        """With the password that this process's environment has."""
        return Site(
            url=self.url,
            namespace=self.namespace,
            rendezvous=FileStore(self.rendezvous),
            token=self.token,
            password=channel_password(os.environ),
        )


class Reducer:
    """A rank; its methods are asked through `Ranks`.

    Those of a collective: `open` a channel, `prepare`, `run` and `check`, any number of times, and
    `close`. Those of gloo: `open_gloo`, `prepare_gloo`, `run` and `check`, and `close_gloo`.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._channel: Channel | None = None
        self._engine: Engine | None = None
        self._world_size = 0
        self._step = 0
        self._summed = 0
        self._reduce: Callable[[torch.Tensor], object] | None = None
        self._buffer_P = torch.empty(0)

    def open(self, place: Place, world_size: int) -> None:
        """Open a channel that was made."""
        self._channel = channel_kind(place.url).open(place.site(), self._rank)
        self._world_size = world_size

    def close(self) -> None:
        """Let go of the channel."""
        self._stop()
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def prepare(self, collective: str, nbytes: int, rates: Rates | None, step: int) -> None:
        """Be ready to sum so many bytes, from this step on; at these rates, if any.

        The line is new: nothing is saved up, and nothing is under way.
        """
        assert self._channel is not None, "open it first"
        self._stop()
        channel = shaped_channel(self._channel, None if rates is None else ShapedLink(rates))
        chosen = algorithm(collective, self._world_size)
        engine = Engine(channel, chosen, self._rank, self._world_size, timeout_s=_TIMEOUT_S)
        self._engine, self._step = engine, step

        def reduce(buffer_P: torch.Tensor) -> None:
            engine.all_reduce(buffer_P, self._step, _OPERATION)
            self._step += 1

        self._reduce = reduce
        self._take(nbytes)

    def open_gloo(self, rendezvous: Path, world_size: int) -> None:
        """Join the other ranks by gloo, over loopback."""
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        self._world_size = world_size
        dist.init_process_group(
            "gloo", init_method=f"file://{rendezvous}", rank=self._rank, world_size=world_size
        )

    def prepare_gloo(self, nbytes: int) -> None:
        """Be ready to sum so many bytes by gloo."""
        self._stop()
        self._reduce = dist.all_reduce
        self._take(nbytes)

    def close_gloo(self) -> None:
        """Leave the others."""
        self._stop()
        dist.destroy_process_group()

    def run(self, operations: int) -> tuple[float, float]:
        """All-reduces one right after another; when they began and ended, by `time.monotonic()`."""
        assert self._reduce is not None, "prepare first"
        began = time.monotonic()
        for _ in range(operations):
            self._reduce(self._buffer_P)
        ended = time.monotonic()
        self._summed += operations
        return began, ended

    def check(self) -> None:
        """Raise RunFailed unless the buffer holds the exact sums; then begin with a fresh one."""
        if not sums.is_sum(self._buffer_P, self._world_size, self._summed):
            raise RunFailed(f"the result of {self._summed} all-reduces in a row is wrong")
        self._refill()

    def growth_bytes(self) -> int:
        """The most memory that one all-reduce takes beside the buffer."""
        assert self._reduce is not None, "prepare first"
        # What stays, such as threads and connections, is there after the first.
        self._reduce(torch.zeros(_TINY_BYTES // ITEM_BYTES))
        return growth_bytes(lambda: self.run(1))

    def traffic_bytes(self) -> int:
        """What this rank sent and received over the channel since it was opened."""
        assert self._channel is not None, "open it first"
        counters = self._channel.traffic.counters()
        return counters["bytes_up"] + counters["bytes_down"]

    def _take(self, nbytes: int) -> None:
        if self._buffer_P.nbytes != nbytes:
            self._buffer_P = torch.empty(nbytes // ITEM_BYTES)
        self._refill()

    def _refill(self) -> None:
        sums.fill(self._buffer_P, self._rank)
        self._summed = 0

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = self._reduce = None
