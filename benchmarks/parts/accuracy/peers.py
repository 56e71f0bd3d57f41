"""DDP's processes, from the side that asks them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.parts.accuracy.ddp import Fitted, Peer
from benchmarks.parts.member import Meeting
from benchmarks.parts.ranks import Ranks
from dayfly.closing import Closing
from dayfly.job import Job


class Peers(Closing):
    """Groups of DDP over gloo, each started when it is first asked. Close it to end them.

    Args:
        scratch: directory for the files by which groups meet.
        spaces: network namespace of each rank; empty: they stay in this one.
        device: network device that they talk over.
    """

    def __init__(self, scratch: Path, spaces: Sequence[str] = (), device: str = "lo") -> None:
        self._scratch, self._spaces, self._device = scratch, spaces, device
        self._groups: dict[int, Ranks] = {}
        self._open = ExitStack()

    def fit(self, job: Job, workers: int) -> Fitted:
        """Returns what a training by so many ranks came to, as rank 0 tells it.

        Args:
            job: with a batch of all ranks.
            workers: how many ranks.

        Raises:
            RunFailed: a rank failed.
        """
        if workers not in self._groups:
            ranks = Ranks(Peer, workers, spaces=self._spaces[:workers])
            self._groups[workers] = self._open.enter_context(ranks)
            meet = self._scratch / f"gloo-{workers}-{self._device}"
            ranks.ask("join", Meeting(meet=meet, world_size=workers, device=self._device))
        fitted: Fitted = self._groups[workers].together("fit", job)[0]
        return fitted

    def close(self) -> None:
        self._open.close()
