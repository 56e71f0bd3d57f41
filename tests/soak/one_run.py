"""One run of a soak: started, disturbed and resumed until it is done."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dayfly.life.faults import Fault
from dayfly.wire.keys import COORDINATOR
from tests.soak import command, processes

_POLL_S = 0.02
#: Longest time without a step before a run is taken to hang.
_HANG_S = 240.0


class Disturbance:
    """What is done to a run from outside. This one does nothing.

    Attributes:
        counts: what was done, by the names in `summary.ROWS`.
        done: what was done last, in words; "" if nothing was.
        wrong: why nothing more can be done to the run; None: it can.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.done = ""
        self.wrong: str | None = None

    def look(self, process: subprocess.Popen[bytes], *, stepped: bool, now: float) -> None:
        """Does what is due.

        Args:
            process: of the command, which lives.
            stepped: whether the run has told of a step since the last look.
            now: time.monotonic().
        """

    def life_ends(self) -> None:
        """The process of the command is gone."""


class OneRun:
    """A run in `directory`, from its command to its end.

    Args:
        directory: of the run, which the command makes.
        data: from `small.write_data`.
        settings: of the run.
        job: arguments of `job.job`.
        faults: deaths at places in steps.
        disturbance: what happens to it from outside.
        mark: in the environment of everything that it starts.
        temporary: directory for its temporary files.
        refused: whether the command may refuse the request, with exit code 2.

    Attributes:
        counts: what was done to it, by the names in `summary.ROWS`.
        mark, temporary: as given.
        sessions: ids of the sessions that its lives had.
        log: what the command said.
    """

    def __init__(
        self,
        directory: Path,
        *,
        data: Path,
        settings: Mapping[str, Any],
        job: Mapping[str, Any],
        faults: Sequence[Fault],
        disturbance: Disturbance,
        mark: str,
        temporary: Path,
        refused: bool = False,
    ) -> None:
        self.directory = directory
        self.counts = disturbance.counts
        self.sessions: set[str] = set()
        self.log = directory.with_name(f"{directory.name}.log")
        self._spec: dict[str, Any] = {
            "data": data,
            "run_dir": directory,
            "settings": settings,
            "job": job,
            "faults": [fault.dump() for fault in faults],
        }
        self._faults = faults
        self._disturbance = disturbance
        self.mark, self.temporary = mark, temporary
        self._ends = (0, 2) if refused else (0,)
        self._happened: set[str] = set()
        self._steps = _Steps(directory)

    def carry_out(self) -> str | None:
        """Runs and resumes until the run is over. Returns what went wrong, if something did."""
        while True:
            environment = {processes.MARK: self.mark, "TMPDIR": str(self.temporary)}
            process = command.start(self._spec, self.log, **environment)
            try:
                before = self.counts.copy()
                if not self._live(process):
                    return self._disturbance.wrong or f"no step in {_HANG_S:.0f} s{self._after}"
            finally:
                process.kill()
                process.wait()
                self._disturbance.life_ends()
            code = process.returncode
            if code in self._ends:
                return None
            if code not in self._expected(self.counts - before):
                return f"exit code {code}{self._after}: {self.log.read_text()[-2000:]}"
            if (self.directory / "run.json").exists():
                self.counts["resume"] += 1
            else:
                self.counts["begun again"] += 1
                shutil.rmtree(self.directory, ignore_errors=True)
                self._happened.clear()

    @property
    def _after(self) -> str:
        return f" after {self._disturbance.done}" if self._disturbance.done else ""

    @staticmethod
    def _expected(done: Counter[str]) -> set[int]:
        """Exit codes of a life to which that was done."""
        codes: set[int] = set()
        if done["coordinator"] or done["injected coordinator"]:
            codes |= {-signal.SIGKILL}
        if done["stop"]:  # the latter until the command has its own handlers
            codes |= {128 + signal.SIGTERM, -signal.SIGTERM}
        return codes

    def _live(self, process: subprocess.Popen[bytes]) -> bool:
        """One life, to its end; False if it hangs, or nothing more can be done to it."""
        hangs_at = time.monotonic() + _HANG_S
        while process.poll() is None:
            now = time.monotonic()
            stepped = self._steps.more()
            if stepped:
                hangs_at = now + _HANG_S
            if now > hangs_at:
                return False
            self._look(process.pid)
            self._disturbance.look(process, stepped=stepped, now=now)
            if self._disturbance.wrong is not None:
                return False
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
                worker = self._faults[int(number)].worker
                self.counts["injected coordinator" if worker == COORDINATOR else "injected"] += 1


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
