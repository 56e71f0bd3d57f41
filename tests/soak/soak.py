"""A soak: run after run is killed at random, and compared with the undisturbed one."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.parts.redis_server import RedisServer

import dayfly
from dayfly.life.sessions import Session
from tests.runs import small
from tests.soak import job, processes
from tests.soak.budgets import Budget, Watch, afforded, wrong_with
from tests.soak.by_chance import ByChance, placed
from tests.soak.in_order import SAMPLE_S, InOrder, epochs, planned
from tests.soak.one_run import Disturbance, OneRun
from tests.soak.plan import LEAVES, Plan
from tests.soak.summary import Summary, first_difference, not_once, of_run

#: How long the last process of a run may take to be gone, once the kernel was told to kill it.
_GONE_S = 60.0
#: Of the run with events, when it begins, and of the undisturbed one.
_WORKERS, _UNDISTURBED_WORKERS = 4, 2


class Soak:
    """Carries out plans below `directory`, which keeps the runs that went wrong.

    Args:
        directory: is made.
        say: shows a line.
    """

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.summary = Summary()
        self._directory = directory
        self._say = say
        self._counting = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
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

    def events(self, seed: int, number: int) -> None:
        """One run of virtual workers with so many events, one after another."""
        run, held = self._directory / "run", self._directory / "held"
        expected = self._undisturbed(
            _UNDISTURBED_WORKERS, epochs(number), ("virtual_workers", LEAVES)
        )
        disturbance = InOrder(planned(seed, number, _WORKERS), run, held, self._say)

        def wrong() -> str | None:
            disturbance.write(self._directory / "events.txt")
            if (missing := disturbance.missing()) is not None:
                return missing
            if (found := first_difference(run, expected, small.STEPS_AN_EPOCH)) is not None:
                difference, steps = found
                return f"{difference}; events in it: {disturbance.during(steps)}"
            return self._difference(run, expected) or not_once(run)

        settings = {
            "workers": _WORKERS,
            "virtual_workers": LEAVES,
            "lifetime_s": 3.0,
            "checkpoint_every_s": 2.0,
            "log_budget_mib": 1,
        }
        trained = {"epochs": epochs(number), "sample_s": SAMPLE_S, "held": str(held)}
        self._judge(f"{number} events", run, disturbance, wrong, settings=settings, job=trained)

    def budgets(self, plans: Iterable[Budget], *, at_once: int) -> None:
        """Runs that are to keep within their budgets, so many at once."""
        with ThreadPoolExecutor(at_once) as pool:
            for _ in pool.map(self._budget, plans):
                pass

    def _budget(self, plan: Budget) -> None:
        run, watch = self._directory / f"run-{plan.number}", Watch()

        def wrong() -> str | None:
            found = wrong_with(plan, one, watch)
            if found is None:
                kept = run.exists()
                watch.counts["within" if kept else "refused"] += 1
                watch.counts["afforded"] += kept and afforded(run)
            return found

        one = self._run(
            run, watch, settings=plan.settings, job=plan.job, faults=plan.faults, refused=True
        )
        self._judged(str(plan), one, wrong)

    def _one(self, plan: Plan, kill_until: float) -> None:
        deciding = ("sync", "k", "aggregators", "virtual_workers")
        own = {name: plan.settings[name] for name in deciding if name in plan.settings}
        expected = self._undisturbed(plan.workers, job.EPOCHS, *own.items())
        run = self._directory / f"run-{plan.number}"

        def wrong() -> str | None:
            found = self._difference(run, expected)
            return found or (not_once(run) if "virtual_workers" in plan.settings else None)

        settings = placed(plan.settings, run, self._server)
        pause_s = job.sample_s(plan.least_s, plan.workers)
        self._judge(
            str(plan),
            run,
            ByChance(plan, run, self._server, kill_until),
            wrong,
            settings={"workers": plan.workers, **settings},
            job={"sample_s": pause_s},
            faults=plan.faults,
        )

    def _judge(
        self,
        name: str,
        run: Path,
        disturbance: Disturbance,
        wrong: Callable[[], str | None],
        **more: Any,
    ) -> None:
        """A run whose bits are those of an undisturbed one, if nothing is wrong with it."""

        def equal() -> str | None:
            found = wrong()
            disturbance.counts["equal"] += found is None
            return found

        self._judged(name, self._run(run, disturbance, **more), equal)

    def _run(self, run: Path, disturbance: Disturbance, **more: Any) -> OneRun:
        """A run with a mark and a directory for temporary files of its own."""
        temporary = run.with_name(f"{run.name}-tmp")
        temporary.mkdir()
        return OneRun(
            run,
            data=self._data,
            disturbance=disturbance,
            mark=secrets.token_hex(6),
            temporary=temporary,
            **{"faults": (), **more},
        )

    def _judged(self, name: str, one: OneRun, check: Callable[[], str | None]) -> None:
        """Carries a run out, and says what came of it."""
        began, run = time.monotonic(), one.directory
        wrong = one.carry_out()
        one.counts["runs"] += 1
        wrong = wrong or self._left_behind(one) or check()
        summary = Summary(counts=+one.counts)
        if (run / "history.json").exists():
            summary.counts += of_run(run)
            summary.counts["all"] += summary.has_all
        if wrong is None:
            shutil.rmtree(run, ignore_errors=True)
            shutil.rmtree(one.temporary)
            one.log.unlink()
        else:
            summary.failures.append(f"{name}: {wrong} (see {run})")
        counts = ", ".join(f"{number} {kind}" for kind, number in summary.counts.items())
        took_s = time.monotonic() - began
        with self._counting:
            self.summary.add(summary)
            said = f"{wrong or 'right'}; {took_s:.0f} s, {summary.deaths} deaths: {counts}"
            self._say(f"{name}: {said}")

    def _train_undisturbed(self, workers: int, epochs: int, *settings: tuple[str, Any]) -> Path:
        values = map(str, dict(settings).values())
        run = self._directory / "-".join(["undisturbed", str(workers), str(epochs), *values])
        dayfly.train(
            job.job(self._data, epochs=epochs),
            workers=workers,
            run_dir=run,
            **dict(settings),
            **small.SETTINGS,
        )
        return run

    def _difference(self, run: Path, expected: Path) -> str | None:
        weights, history = small.bits(run)
        right, told = small.bits(expected)
        if weights != right:
            return "the final weights differ from those of the undisturbed run"
        return None if history == told else f"the history differs: {history}"

    def _left_behind(self, one: OneRun) -> str | None:
        # What a kill -9 leaves behind is gone at the next start: this is one.
        Session.open().close()
        until = time.monotonic() + _GONE_S
        while left := processes.left_behind(one.mark, one.sessions, one.temporary):
            if time.monotonic() > until:
                return f"left behind: {', '.join(left)}"
            time.sleep(0.05)
        if not one.directory.exists():
            return None
        unfinished = processes.unfinished_files(one.directory)
        return f"left behind in the run: {', '.join(unfinished)}" if unfinished else None
