"""The coordinator of a script's run: one generation of workers after another, until they are done.

A bounded look at the directories of the script tells whether it has written anything.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from dayfly.errors import DayflyError, RequestError, RunFailed
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.deaths import Restart
from dayfly.life.ends import GenerationEnd, in_a_line
from dayfly.life.platforms import base
from dayfly.life.reports import Report
from dayfly.life.restarts import LoopRestarts, Restarts
from dayfly.runs.coordinator import RunCoordinator
from dayfly.runs.function_resources import check_payload
from dayfly.runs.log_budget import MIB, budget_bytes
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import Result, write_json
from dayfly.runs.run import with_bill
from dayfly.runs.run_context import RunContext
from dayfly.runs.scripts.environment import ScriptTask
from dayfly.runs.scripts.logs import Follower
from dayfly.runs.scripts.process import GROUPS, LOOP
from dayfly.runs.scripts.record import FILES, ScriptRecord, ScriptRun
from dayfly.runs.setup import Setup
from dayfly.runs.tariffs import billed
from dayfly.specs.events import Ended, StartedAgain
from dayfly.specs.generations import GenerationPlan
from dayfly.specs.pace import REPORT_EVERY_OVER_LINK_S
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.keys import Key
from dayfly.wire.process_group.store import StoreServer, is_request

#: What the run itself writes there.
_OWN = (
    *("bill.json", "checkpoint", "control", "events", "faults", "history.json", "lock", "logs"),
    *("rendezvous", "run.json"),
)
#: Kept ready for a worker's messages, where they are in memory: less than a step's, which nobody
#: knows. What is used once stays ready.
_AHEAD_BYTES = 8 * MIB
#: The same where readers come for messages: how much may wait for them.
_OUTBOX_BYTES = 512 * MIB
#: Where each message is paid for, nothing is kept ready.
_SMALL_BYTES = 256 * 1024
#: How often the functions' logs are looked at, in seconds.
_FOLLOW_EVERY_S = 0.1


class _ScriptRecorder(Recorder):
    """All workers start again when one dies, which is said once; or it does alone.

    Attributes:
        policy: of the run, which is told what workers tell of themselves.
        alone: called with a function that died, and starts again alone.
    """

    policy: LoopRestarts
    alone: Callable[[base.Ended], None]

    def reported(self, plan: GenerationPlan, report: Report) -> None:
        super().reported(plan, report)
        for record in report.records:
            if record["kind"] == LOOP:
                self.policy.entered(report.rank, alone=record["alone"])
            elif record["kind"] == GROUPS:
                self.policy.grouped()

    def ended(self, plan: GenerationPlan, rank: int, ended: base.Ended, *, death: bool) -> None:
        counts = death and ended.outcome not in self.policy.planned
        super().ended(plan, rank, ended, death=counts)
        if counts and self.policy.restart is Restart.ONE:
            self.alone(ended)

    def start_again(self, cause: str, *, died: bool) -> None:
        """All workers start again, in the next generation.

        Args:
            died: or a lifetime ended.
        """
        self.cause = cause
        self.write("coordinator", kind="started again", cause=cause, died=died)


class ScriptCoordinator(RunCoordinator[ScriptRecord, _ScriptRecorder, ScriptRun]):
    """A script's.

    Args:
        output: where the functions' output is shown.
    """

    handler = "dayfly.runs.scripts.worker:main"
    recorder_kind = _ScriptRecorder
    inputs = ("checkpoint", "faults")
    untold = (Ended, StartedAgain)  # one line says both

    def __init__(self, record: ScriptRecord, context: RunContext, output: TextIO) -> None:
        super().__init__(record, context)
        self._output = output
        together = Restarts(record.settings.max_restarts, written=self._kept, where=self._where)
        look_s = self._setup.pace.look_s
        self.policy: LoopRestarts = LoopRestarts(together, record.settings.workers, look_s)
        try:
            self._checkpoint = checkpoints.latest(self._store)
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error

    def check(self) -> None:
        super().check()
        # Functions are not billed for the platform's own start.
        self._workplace.platform.least_memory_mib()

    def _kept(self) -> object:
        return self._written(), self._step

    @property
    def _step(self) -> int:
        """Of the checkpoint from which the script's loop goes on; 0: it has none."""
        return 0 if self._checkpoint is None else self._checkpoint.step

    def _begins(self) -> None:
        self._recorder.policy, self._recorder.alone = self.policy, self._starts_alone

    def _starts_alone(self, ended: base.Ended) -> None:
        self._display.note(f"{in_a_line(ended)}: it starts again alone")
        self._record = replace(self._record, deaths=self._record.deaths + 1)
        self._record.save(self._store)

    def committed(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def _plan_by(self, record: ScriptRecord, setup: Setup) -> GenerationPlan:
        plan, committed = super()._plan_by(record, setup), self._checkpoint
        if committed is None:
            return plan
        return replace(plan, first_step=committed.step, checkpoint=committed.digest)

    def _set_up(self, record: ScriptRecord) -> Setup:
        """Nobody knows what a script will send."""
        url, settings = self._channel_url(record), record.settings
        kind = channel_kind(url)
        ahead_bytes = _AHEAD_BYTES if kind.immediate else _SMALL_BYTES
        if kind.abilities.direct:
            ahead_bytes = _OUTBOX_BYTES
        spec = ChannelSpec(
            senders=settings.workers,
            budget_bytes=budget_bytes(settings, url),
            ahead_bytes=ahead_bytes,
        )
        return Setup.of(settings, url, spec)

    def _check_own(self, record: ScriptRecord, setup: Setup) -> None:
        plan = self._plan_by(record, setup)
        rank, late = setup.settings.workers - 1, replace(plan, number=10**6 - 1)
        last = self._task(late, rank, 10**4 - 1, 10**9 - 1, 123456.78901234567)
        check_payload(last.dump(), setup.specs[0].payload_bytes, "fewer arguments")

    def plan(self) -> GenerationPlan:
        if (changed := self._record.script.changed()) is not None:
            raise RunFailed(changed)
        self.policy.begins()
        self._deaths_before = self.policy.together.deaths
        return super().plan()

    @contextmanager
    def open(self, plan: GenerationPlan) -> Iterator[Channel]:
        names = [f"worker-{rank}" for rank in range(plan.world_size)]
        follower = Follower(self._workplace.platform, names, self._output)
        with super().open(plan) as channel:
            self._attendant = _Attendant(channel, follower)
            try:
                yield channel
            finally:
                follower.drain()

    def payload(
        self,
        plan: GenerationPlan,
        rank: int,
        attempt: int,
        trimmed_step: int,
        *,
        waits: bool = False,
    ) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self._task(
            plan, rank, attempt, trimmed_step, self._recorder.checkpoint_age_s
        ).dump()
        return told

    def serve(self, keys: Sequence[Key]) -> bool:
        return self._attendant(keys)

    def starts_again(self, end: GenerationEnd) -> None:
        deaths = self.policy.together.deaths
        counts = deaths > self._deaths_before
        counted = f", restart {deaths} of {self._record.settings.max_restarts}"
        self._display.note(f"{end.in_words}: all workers start again{counted * counts}")
        self._recorder.start_again(end.in_words, died=not end.planned)
        self._home.keep_files(FILES)
        self._record = self._record.started_again(died=not end.planned)
        self._record.save(self._store)

    def _task(
        self,
        plan: GenerationPlan,
        rank: int,
        attempt: int,
        trimmed_step: int,
        checkpoint_age_s: float,
    ) -> ScriptTask:
        record, settings = self._record, self._record.settings
        return ScriptTask(
            run=record.run_id,
            token=self._workplace.token,
            generation=plan.number,
            rank=rank,
            world_size=plan.world_size,
            restarts=plan.number,
            max_restarts=settings.max_restarts,
            store=plan.store,
            channel=plan.channel,
            script=record.script.file,
            module=record.script.module,
            args=record.args,
            cwd=record.cwd,
            digest=record.script.digest,
            files=str(self._files),
            wait_timeout_s=settings.wait_timeout_s,
            faults=self._faults,
            rates=self._setup.resources_of(rank).rates,
            report_s=max(REPORT_EVERY_OVER_LINK_S, self._setup.pace.report_s),
            attempt=attempt,
            trimmed_step=trimmed_step,
            checkpoint_age_s=checkpoint_age_s,
            log_budget_bytes=self._setup.channel.budget_bytes,
            ahead_bytes=self._setup.channel.ahead_bytes,
            pace=self._setup.pace,
            made_with=record.made_with or {},
            allow_other_cpu=settings.allow_other_cpu,
        )

    @property
    def _files(self) -> Path:
        return self._workplace.directory / FILES

    @property
    def _where(self) -> str:
        return f"{self._files} (DAYFLY_RUN_DIR) or {self._record.cwd}"

    def _written(self) -> tuple[Footprint, ...]:
        root = self._workplace.directory
        own = [root, *(root / name for name in _OWN)]
        return footprint([self._files, Path(self._record.cwd)], without=own)

    def _summary(self, status: str, error: str | None) -> Result:
        return replace(super()._summary(status, error), restarts=self._record.deaths)

    def _results(self, summary: Result, recorder: _ScriptRecorder) -> Result:
        whole_bill = billed(
            recorder.used,
            self._record.settings,
            moved=recorder.moved,
            coordinator=recorder.coordinator_used(),
        )
        self._home.keep_files(FILES)
        write_json(self._store, "bill.json", whole_bill.dump())
        losses = [recorder.losses[step] for step in sorted(recorder.losses)]
        write_json(self._store, "history.json", {"epochs": [], "step_loss": losses})
        summary = replace(summary, steps=len(losses), step_s=recorder.median_step_s)
        return with_bill(summary, whole_bill, recorder)

    def _over(self, result: Result) -> ScriptRun:
        return ScriptRun(
            self._workplace.directory,
            result,
            self._signals.received,
            lives=self._record.generation + 1,
            changed=self._record.script.changed() is not None,
            sure_to_fail=self._sure_to_fail,
        )


class _Attendant:
    """What the coordinator does whenever it looks: it answers workers, and shows their output."""

    def __init__(self, channel: Channel, follower: Follower) -> None:
        self._store = StoreServer(channel)
        self._follower = follower
        self._follow_next_s = 0.0

    def __call__(self, keys: Sequence[Key]) -> bool:
        """keys: of what waits for the coordinator. Whether a worker asked something."""
        self._store.serve_once(keys)
        if time.monotonic() >= self._follow_next_s:
            self._follow_next_s = time.monotonic() + _FOLLOW_EVERY_S
            self._follower.follow()
        return any(is_request(key) for key in keys)


#: Entries that are looked at, of each place. Those near its top come first.
MOST_ENTRIES = 10_000
#: What running a script leaves behind by itself.
_NOT_THE_SCRIPTS = ("__pycache__",)


@dataclass(frozen=True, slots=True)
class Footprint:
    """entries: files and directories that were seen. newest_ns: the latest change of any."""

    entries: int
    newest_ns: int


def footprint(
    places: Sequence[Path], *, without: Collection[Path] = (), most: int = MOST_ENTRIES
) -> tuple[Footprint, ...]:
    """Of each place, as of now; two that are equal mean that nothing was written in between.

    Hidden entries are passed over, and so are those of `without`, with what is below, and files to
    which this process's own output goes. A place that is not there has no entries.
    """
    passed: set[str | tuple[int, int]] = {os.path.abspath(path) for path in without}
    for fd in (1, 2):
        with suppress(OSError):
            status = os.fstat(fd)
            passed.add((status.st_dev, status.st_ino))
    return tuple(_look(place, passed, most) for place in places)


def _look(place: Path, passed: Collection[str | tuple[int, int]], most: int) -> Footprint:
    entries, newest_ns = 0, 0
    ahead = deque([os.path.abspath(place)])
    while ahead:
        try:
            with os.scandir(ahead.popleft()) as found:
                here = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue  # removed meanwhile, or not ours to read
        for entry in here:
            if entry.name.startswith(".") or entry.name in _NOT_THE_SCRIPTS:
                continue
            if entry.path in passed:
                continue
            if entries >= most:
                return Footprint(entries, newest_ns)
            try:
                status = entry.stat(follow_symlinks=False)
                below = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            if (status.st_dev, status.st_ino) in passed:
                continue
            entries += 1
            if below:
                ahead.append(entry.path)
            else:
                newest_ns = max(newest_ns, status.st_mtime_ns)
    return Footprint(entries, newest_ns)
