"""A soak: run after run is killed at random, and compared with the undisturbed one."""

from __future__ import annotations

import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.parts.redis_server import RedisServer

import dayfly
from dayfly.life.sessions import Session
from tests.runs import small
from tests.soak import job, processes
from tests.soak.one_run import OneRun
from tests.soak.plan import Plan
from tests.soak.summary import Summary, not_once, of_run

Bits = tuple[bytes, str]
#: How long the last process of a run may take to be gone, once the kernel was told to kill it.
_GONE_S = 60.0


class Soak:
    """Carries out plans below `directory`, which keeps the runs that went wrong."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.summary = Summary()
        self._directory = directory
        self._say = say
        self._token = secrets.token_hex(6)
        self._temporary = directory / "tmp"
        self._temporary.mkdir(parents=True)
        self._data = small.write_data(directory)
        self._undisturbed = cache(self._train_undisturbed)
        self._server = RedisServer()

    def close(self) -> None:
        """End Redis."""
        self._server.close()

    def carry_out(self, plans: Iterable[Plan], *, until: float, at_least: int) -> None:
        """One plan after the other; after `until` (time.monotonic()) nothing is begun or killed
        from outside, but in the first `at_least` plans."""
        for number, plan in enumerate(plans):
            whole = number < at_least
            if not whole and time.monotonic() > until:
                break
            self._one(plan, float("inf") if whole else until)

    def _one(self, plan: Plan, kill_until: float) -> None:
        began = time.monotonic()
        deciding = ("sync", "k", "virtual_workers")
        own = {name: plan.settings[name] for name in deciding if name in plan.settings}
        expected = self._undisturbed(plan.workers, *own.items())
        summary, run = Summary(), self._directory / f"run-{plan.number}"
        environment = {processes.MARK: self._token, "TMPDIR": str(self._temporary)}
        one = OneRun(plan, self._data, run, environment, self._server)
        wrong = one.carry_out(kill_until)
        summary.counts = one.counts + Counter(runs=1)
        if wrong is None:
            summary.counts += of_run(run)
            wrong = self._difference(run, expected) or self._left_behind(one)
            if wrong is None and "virtual_workers" in plan.settings:
                wrong = not_once(run)
        if wrong is None:
            summary.counts["equal"] = 1
            shutil.rmtree(run)
            one.log.unlink()
        else:
            summary.failures.append(f"{plan}: {wrong} (see {run})")
        self.summary.add(summary)
        counts = ", ".join(f"{number} {name}" for name, number in summary.counts.items())
        took_s = time.monotonic() - began
        self._say(f"{plan}: {wrong or 'equal'}; {took_s:.0f} s, {summary.deaths} deaths: {counts}")

    def _train_undisturbed(self, workers: int, *settings: tuple[str, Any]) -> Bits:
        run = self._directory / "-".join(
            ["undisturbed", str(workers), *map(str, dict(settings).values())]
        )
        dayfly.train(
            job.job(self._data, workers, 0),
            workers=workers,
            run_dir=run,
            **dict(settings),
            **small.SETTINGS,
        )
        return small.bits(run)

    def _difference(self, run: Path, expected: Bits) -> str | None:
        weights, history = small.bits(run)
        if weights != expected[0]:
            return "the final weights differ from those of the undisturbed run"
        return None if history == expected[1] else f"the history differs: {history}"

    def _left_behind(self, one: OneRun) -> str | None:
        # What a kill -9 leaves behind is gone at the next start: this is one.
        Session.open().close()
        until = time.monotonic() + _GONE_S
        while left := processes.left_behind(self._token, one.sessions, self._temporary):
            if time.monotonic() > until:
                return f"left behind: {', '.join(left)}"
            time.sleep(0.05)
        unfinished = processes.unfinished_files(one.directory)
        return f"left behind in the run: {', '.join(unfinished)}" if unfinished else None
