"""Seconds of an epoch behind the kernel's token bucket, the ways by turns.

    round 0   gloo  bsp  average k 4  ...
    round 1   ...  average k 4  bsp  gloo

A star of network namespaces with Redis in its hub. Each function of dayfly, and each process of
DDP, is in a namespace of its own, whose cable is held to the rate, each way. dayfly's messages go
over Redis, as functions cannot reach each other; gloo's from process to process, over both cables.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import dayfly
from benchmarks.parts import namespaces, recorded
from benchmarks.parts.accuracy.curves import on_all
from benchmarks.parts.accuracy.forms import Form
from benchmarks.parts.accuracy.peers import Peers
from benchmarks.parts.accuracy.ways import Way
from benchmarks.parts.redis_server import RedisOptions, RedisServer
from benchmarks.parts.spread import say
from benchmarks.parts.star import DEVICE, HUB_HOST, Star


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What an epoch took, in a run behind the bucket.

    Attributes:
        epoch_s: seconds from the end of the epoch before to the end of its validation, mean of all
            epochs but the first.
        mb: that passed the buckets at a worker's cable, the mean of both ways, of an epoch on
            average; headers and the run's start are included.
    """

    epoch_s: float
    mb: float


class Lines:
    """Sides behind the bucket. Made by `lines`.

    Args:
        star: with a namespace for each worker.
        redis: URL of the server in its hub.
        peers: DDP's ranks, in the namespaces.
        scratch: directory for runs and data.
        bytes_per_s: of each worker, each way.
    """

    def __init__(
        self,
        star: Star,
        redis: str,
        peers: Peers,
        scratch: Path,
        bytes_per_s: float,
    ) -> None:
        self._star, self._redis, self._peers = star, redis, peers
        self._scratch, self._bytes_per_s = scratch, bytes_per_s

    def epoch(self, form: Form, way: Way, workers: int) -> Took:
        """Returns what an epoch takes.

        Args:
            form: what is trained.
            way: how.
            workers: on which.
        """
        job = on_all(form.job(self._scratch), workers, seed=0)
        job = replace(job, epochs=form.timed_epochs)
        with self._star.limited(self._bytes_per_s):
            if way.settings is None:
                ended_s = self._peers.fit(job, workers).ended_s
            else:
                run = dayfly.train(
                    job,
                    workers=workers,
                    run_dir=self._scratch / "timed",
                    progress=False,
                    channel=self._redis,
                    platform_options={"netns": ",".join(self._star.spaces)},
                    **way.settings,
                )
                told = recorded.events(run.directory, "worker-0")
                ended_s = [one["at"] for one in told if one["kind"] == "epoch"]
                shutil.rmtree(run.directory)
            sent_bytes = self._star.sent_bytes()
        return Took(
            epoch_s=fmean(end - start for start, end in pairwise(ended_s)),
            mb=sent_bytes / 2 / workers / len(ended_s) / 1e6,
        )


@contextmanager
def lines(scratch: Path, workers: int, bytes_per_s: float) -> Iterator[Lines]:
    """Makes the star and its server, and removes them and DDP's ranks in the end.

    Args:
        scratch: directory for runs and data.
        workers: the most that train at once.
        bytes_per_s: of each worker, each way.
    """
    with ExitStack() as stack:
        star = stack.enter_context(Star(workers))
        server = star.in_hub(RedisServer, RedisOptions(host=HUB_HOST))
        stack.callback(star.in_hub, server.close)
        peers = stack.enter_context(Peers(scratch, star.spaces, DEVICE))
        # The coordinator is where the server is; functions have namespaces of their own.
        stack.enter_context(namespaces.within(star.hub))
        yield Lines(star, server.url, peers, scratch, bytes_per_s)


def measure(
    sides: Lines, form: Form, ways: Sequence[Way], workers: int, rounds: int
) -> dict[str, list[Took]]:
    """Returns what an epoch took, by way and round.

    Args:
        sides: behind the bucket.
        form: what is trained.
        ways: which take turns, forwards and backwards.
        workers: on which.
        rounds: how many turns each way has.
    """
    took: dict[str, list[Took]] = {one.name: [] for one in ways}
    for number in range(rounds):
        for way in ways[:: -1 if number % 2 else 1]:
            took[way.name].append(sides.epoch(form, way, workers))
            last = took[way.name][-1]
            say(
                f"{form.name} on {workers}, round {number + 1} of {rounds}: {way.name} "
                f"{last.epoch_s:.2f} s an epoch, {last.mb:.2f} MB"
            )
    return took
