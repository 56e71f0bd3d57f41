"""Disturbs a run by chance: kills, requests for other plans, outages, each after a random gap."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.parts.redis_server import RedisServer

from dayfly.life.control import Request, ask
from dayfly.wire.stores.files import FileStore
from tests.soak import processes
from tests.soak.one_run import Disturbance
from tests.soak.plan import FILES, REDIS, Kill, Plan

#: Kills without a step between them: a run that is killed before it can do a step never ends, and
#: a slow machine needs its time for one. `zygote`: dayfly gives up when three die unused in a row.
MOST_KILLS, _MOST = 3, {"zygote": 1, "coordinator": 2, "stop": 1}


class ByChance(Disturbance):
    """The kills, requests and outages of a plan.

    Args:
        plan: of the run.
        directory: of the run.
        server: Redis's.
        until: time.monotonic() after which the run is let be.
    """

    def __init__(self, plan: Plan, directory: Path, server: RedisServer, until: float) -> None:
        super().__init__()
        self._plan = plan
        self._directory = directory
        self._server = server
        self._until = until
        self._kills = deque(plan.kills)
        self._last_kill = self._last_ask = self._last_outage = time.monotonic()
        self._asks, self._outages = deque(plan.asks), deque(plan.outages)
        self._back_at: float | None = None
        self._since_a_step: Counter[str] = Counter()

    def look(self, process: subprocess.Popen[bytes], *, stepped: bool, now: float) -> None:
        if stepped:
            self._since_a_step.clear()
        if self._kills and now < self._until:
            self._kill_if_due(process, self._kills[0])
        if self._back_at is not None and now > self._back_at:
            self.life_ends()
        if now < self._until:
            self._disturb(now)

    def life_ends(self) -> None:
        """An outage of Redis ends."""
        if self._back_at is not None:
            self._server.resume()
            self._back_at = None

    def _disturb(self, now: float) -> None:
        """Ask for another plan, or let Redis be away for a while, if that is due."""
        if not (self._directory / "run.json").exists():
            self._last_ask = self._last_outage = now
        elif self._asks and now - self._last_ask >= self._asks[0].gap_s:
            self._last_ask = now
            changes = placed(self._asks.popleft().changes, self._directory, self._server)
            ask(FileStore(self._directory), Request(kind="scale", changes=changes))
            self.counts["asked"] += 1
        elif self._back_at is not None:
            self._last_outage = now
        elif self._outages and now - self._last_outage >= self._outages[0].gap_s:
            self._server.pause()
            self._back_at = now + self._outages.popleft().away_s
            self.counts["outage"] += 1

    def _kill_if_due(self, process: subprocess.Popen[bytes], kill: Kill) -> None:
        now = time.monotonic()
        most = _MOST.get(kill.victim, MOST_KILLS)
        if self._since_a_step.total() >= MOST_KILLS or self._since_a_step[kill.victim] >= most:
            return
        found = {**processes.functions(process.pid), "coordinator": process.pid}
        found["stop"] = process.pid
        victim = self._living(kill.victim, found)
        if victim not in found:
            self._last_kill = now  # it lives that long before it dies
        elif now - self._last_kill >= kill.gap_s:
            self._kills.popleft()
            self._last_kill = now
            if sent(found[victim], signal.SIGTERM if victim == "stop" else signal.SIGKILL):
                self._since_a_step[victim] += 1
                self.counts["function" if victim[-1].isdigit() else victim] += 1

    def _living(self, victim: str, found: Mapping[str, int]) -> str:
        """The worker by the other of its names, by turns, if it has that; or another worker, if a
        run whose size changes does not have this one."""
        other = victim.replace("worker", "successor")
        if other in found and (victim not in found or len(self._kills) % 2):
            return other
        if victim in found or "virtual_workers" not in self._plan.settings:
            return victim
        workers = sorted(name for name in found if name.startswith(("worker-", "successor-")))
        return workers[0] if victim.startswith("worker-") and workers else victim


def placed(settings: Mapping[str, Any], directory: Path, server: RedisServer) -> dict[str, Any]:
    """Returns settings with the URL of their channel, for the run of a directory."""
    urls = {FILES: f"file://{directory}-messages", REDIS: server.url}
    return {name: urls.get(str(value), value) for name, value in settings.items()}


def sent(pid: int, number: signal.Signals) -> bool:
    """Sends a signal; returns whether the process was there to get it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
