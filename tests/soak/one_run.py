"""One run of a soak: started, killed at and resumed until it is done."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.parts.redis_server import RedisServer

from dayfly.life.control import Request, ask
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.soak import command, processes
from tests.soak.plan import FILES, REDIS, Kill, Plan

_POLL_S = 0.02
#: Longest time without a step before a run is taken to hang.
_HANG_S = 240.0
#: Kills without a step between them: a run that is killed before it can do a step never ends, and
#: a slow machine needs its time for one. `zygote`: dayfly gives up when three die unused in a row.
_MOST_KILLS, _MOST = 3, {"zygote": 1, "coordinator": 2, "stop": 1}


class OneRun:
    """Carries out a plan in `directory`. counts: what was done to it, as in `summary.ROWS`.

    sessions: ids of the sessions that its lives had. environment: of the command. server: Redis's.
    """

    def __init__(
        self,
        plan: Plan,
        data: Path,
        directory: Path,
        environment: Mapping[str, str],
        server: RedisServer,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.sessions: set[str] = set()
        self.directory = directory
        self.log = directory.with_name(f"{directory.name}.log")
        self._plan = plan
        self._environment = environment
        self._spec: dict[str, Any] = {
            "data": data,
            "run_dir": directory,
            "workers": plan.workers,
            "settings": self._placed(plan.settings, server),
            "least_s": plan.least_s,
            "faults": [fault.dump() for fault in plan.faults],
        }
        self._kills = deque(plan.kills)
        self._last_kill = self._last_ask = self._last_outage = time.monotonic()
        self._asks, self._outages = deque(plan.asks), deque(plan.outages)
        self._server = server
        self._back_at: float | None = None
        self._since_a_step: Counter[str] = Counter()
        self._happened: set[str] = set()
        self._steps = _Steps(directory)

    def carry_out(self, kill_until: float) -> str | None:
        """Until the run is done; kills from outside end with the plan's, or at that time
        (time.monotonic()). Returns what went wrong, if something did."""
        while True:
            process = command.start(self._spec, self.log, **self._environment)
            try:
                before = self.counts.copy()
                if not self._live(process, kill_until):
                    return f"no step in {_HANG_S:.0f} s"
            finally:
                process.kill()
                process.wait()
                self._end_outage()
            code = process.returncode
            if code == 0:
                return None
            if code not in self._expected(self.counts - before):
                return f"exit code {code}: {self.log.read_text()[-2000:]}"
            if (self.directory / "run.json").exists():
                self.counts["resume"] += 1
            else:
                self.counts["begun again"] += 1
                shutil.rmtree(self.directory, ignore_errors=True)
                self._happened.clear()

    @staticmethod
    def _expected(done: Counter[str]) -> set[int]:
        """Exit codes of a life to which that was done."""
        codes: set[int] = set()
        if done["coordinator"] or done["injected coordinator"]:
            codes |= {-signal.SIGKILL}
        if done["stop"]:  # the latter until the command has its own handlers
            codes |= {128 + signal.SIGTERM, -signal.SIGTERM}
        return codes

    def _live(self, process: subprocess.Popen[bytes], kill_until: float) -> bool:
        """One life, to its end; False if it hangs."""
        hangs_at = time.monotonic() + _HANG_S
        while process.poll() is None:
            now = time.monotonic()
            if self._steps.more():
                self._since_a_step.clear()
                hangs_at = now + _HANG_S
            if now > hangs_at:
                return False
            self._look(process.pid)
            if self._kills and now < kill_until:
                self._kill_if_due(process, self._kills[0])
            if self._back_at is not None and now > self._back_at:
                self._end_outage()
            if now < kill_until:
                self._disturb(now)
            time.sleep(_POLL_S)
        self._look(process.pid)
        return True

    def _look(self, coordinator: int) -> None:
        """Note the sessions, and which of the injected faults happened."""
        self.sessions |= processes.sessions(coordinator)
        with suppress(FileNotFoundError):
            new = set(os.listdir(self.directory / "faults")) - self._happened
            for number in filter(str.isdigit, new):  # others are on their way to their name
                self._happened.add(number)
                worker = self._plan.faults[int(number)].worker
                self.counts["injected coordinator" if worker == COORDINATOR else "injected"] += 1

    def _placed(self, settings: Mapping[str, Any], server: RedisServer) -> dict[str, Any]:
        """Settings with the URL of their channel."""
        urls = {FILES: f"file://{self.directory}-messages", REDIS: server.url}
        return {name: urls.get(str(value), value) for name, value in settings.items()}

    def _disturb(self, now: float) -> None:
        """Ask for another plan, or let Redis be away for a while, if that is due."""
        if not (self.directory / "run.json").exists():
            self._last_ask = self._last_outage = now
        elif self._asks and now - self._last_ask >= self._asks[0].gap_s:
            self._last_ask = now
            changes = self._placed(self._asks.popleft().changes, self._server)
            ask(FileStore(self.directory), Request(kind="scale", changes=changes))
            self.counts["asked"] += 1
        elif self._back_at is not None:
            self._last_outage = now
        elif self._outages and now - self._last_outage >= self._outages[0].gap_s:
            self._server.pause()
            self._back_at = now + self._outages.popleft().away_s
            self.counts["outage"] += 1

    def _end_outage(self) -> None:
        if self._back_at is not None:
            self._server.resume()
            self._back_at = None

    def _kill_if_due(self, process: subprocess.Popen[bytes], kill: Kill) -> None:
        now = time.monotonic()
        most = _MOST.get(kill.victim, _MOST_KILLS)
        if self._since_a_step.total() >= _MOST_KILLS or self._since_a_step[kill.victim] >= most:
            return
        found = {**processes.functions(process.pid), "coordinator": process.pid}
        found["stop"] = process.pid
        victim = self._living(kill.victim, found)
        if victim not in found:
            self._last_kill = now  # it lives that long before it dies
        elif now - self._last_kill >= kill.gap_s:
            self._kills.popleft()
            self._last_kill = now
            if _signal(found[victim], stop=victim == "stop"):
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


class _Steps:
    """Looks for reports of computed steps in a run's events."""

    def __init__(self, directory: Path) -> None:
        self._events = directory / "events"
        self._read: dict[Path, int] = {}

    def more(self) -> bool:
        """Whether there are some that the last call did not see."""
        found = False
        for file in self._events.glob("worker-*.jsonl"):
            with suppress(OSError), file.open("rb") as raw:
                raw.seek(self._read.get(file, 0))
                new = raw.read()
                self._read[file] = raw.tell()
                found = found or b'"computed": true' in new
        return found


def _signal(pid: int, *, stop: bool) -> bool:
    """Whether the process was there to get it."""
    try:
        os.kill(pid, signal.SIGTERM if stop else signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
