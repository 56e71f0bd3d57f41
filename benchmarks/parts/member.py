"""One process of the bench of distributed programs: in a group of one backend or the other."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.parts.examples import ALL
from benchmarks.parts.programs import Program
from benchmarks.parts.reducer import Place
from dayfly.wire.channels import channel_kind
from dayfly.wire.process_group import endpoint
from dayfly.wire.shaped import shaped_channel
from dayfly.wire.shaping import Rates, ShapedLink

GLOO, DAYFLY = "gloo", "dayfly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """How a group comes to be. meet: a file that is not there yet, for torch's own store.

    place: of the channel, and rates of the way to it; None: gloo, by TCP over a network device.
    """

    meet: Path
    world_size: int
    place: Place | None = None
    rates: Rates | None = None
    device: str = "lo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps in a row. began, ended: by `time.monotonic()`. cpu_s: processor time of all of them.

    losses: None where none is known.
    """

    began_s: float
    ended_s: float
    cpu_s: float
    losses: list[float | None]


class Member:
    """A rank; its methods are asked through `Ranks`: `join`, `make` and `take`, `leave`."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._programs: dict[str, Program] = {}
        self._joined = ExitStack()

    def join(self, meeting: Meeting) -> None:
        """Make the default group of this process."""
        backend = GLOO if meeting.place is None else DAYFLY
        if meeting.place is None:
            os.environ["GLOO_SOCKET_IFNAME"] = meeting.device
        else:
            channel = channel_kind(meeting.place.url).open(meeting.place.site(), self._rank)
            self._joined.callback(channel.close)
            way = None if meeting.rates is None else ShapedLink(meeting.rates)
            end = endpoint.Endpoint(
                channel=shaped_channel(channel, way),
                rank=self._rank,
                world_size=meeting.world_size,
            )
            endpoint.join(end)
            self._joined.callback(endpoint.leave)
        dist.init_process_group(
            backend,
            init_method=f"file://{meeting.meet}",
            rank=self._rank,
            world_size=meeting.world_size,
        )
        self._joined.callback(dist.destroy_process_group)

    def make(self, name: str) -> None:
        """Make a program, by its name among the examples."""
        self._programs[name] = ALL[name].make()

    def take(self, name: str, count: int) -> Steps:
        """Take so many steps of a program."""
        program, losses = self._programs[name], list[float | None]()
        began_s, cpu_s = time.monotonic(), time.process_time()
        for _ in range(count):
            losses.append(program.step())
        ended_s, cpu_s = time.monotonic(), time.process_time() - cpu_s
        return Steps(began_s=began_s, ended_s=ended_s, cpu_s=cpu_s, losses=losses)

    def drop(self) -> None:
        """Forget the programs."""
        self._programs.clear()

    def buckets(self, name: str) -> list[int]:
        """Bytes of each bucket that a program has communicated in its last step."""
        return list(getattr(self._programs[name], "buckets", ()))

    def leave(self) -> None:
        """Leave the group."""
        self.drop()
        self._joined.close()

    def gpus(self) -> int:
        """How many GPUs this process sees."""
        return torch.cuda.device_count()
