"""The coordinator of a script's run: one generation of workers after another, until it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from dayfly.runs.scripts.footprint import Footprint, footprint
from dayfly.runs.scripts.logs import Follower, Output
from dayfly.runs.scripts.process import GROUPS, LOOP
from dayfly.runs.scripts.record import FILES, ScriptRecord, ScriptRun
from dayfly.runs.setup import Setup
from dayfly.runs.tariffs import billed
from dayfly.specs.events import Ended, EpochTold, Measured, StartedAgain, Told
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
#: How often a line says where a loop without epochs stands, in seconds.
_SAY_EVERY_S = 30.0
#: How often the functions' logs are looked at, in seconds.
_FOLLOW_EVERY_S = 0.1


class _ScriptRecorder(Recorder):
    """All workers start again when one dies, which is said once; or it does alone.

    Attributes:
        policy: of the run, which is told what workers tell of themselves.
        alone: called with a function that died, and starts again alone.
        steps: called as a loop takes its first step, with the number of its epochs (None: it has
            none), and of those that have ended.
        epochs: what workers told of each epoch of a loop, by its number.
    """

    policy: LoopRestarts
    alone: Callable[[base.Ended], None]
    steps: Callable[[int | None, int], None]

    def __init__(self, *args: Any, **named: Any) -> None:
        self.epochs: dict[int, Measured] = {}
        super().__init__(*args, **named)

    def reported(self, plan: GenerationPlan, report: Report) -> None:
        super().reported(plan, report)
        for record in report.records:
            if record["kind"] == LOOP and "steps" in record:
                self.steps(record["epochs"], record["ended"])
            elif record["kind"] == LOOP:
                self.policy.entered(report.rank, alone=record["alone"])
            elif record["kind"] == GROUPS:
                self.policy.grouped()

    def _note(self, rank: int, record: Told) -> None:
        super()._note(rank, record)
        if isinstance(record, EpochTold):
            self.epochs[record.epoch] = record.record

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

    def __init__(self, record: ScriptRecord, context: RunContext, output: Output) -> None:
        super().__init__(record, context)
        self._output = output
        self._steps_shown = False
        together = Restarts(record.settings.max_restarts, written=self._kept, where=self._where)
        pace, workers = self._setup.pace, record.settings.workers
        self.policy: LoopRestarts = LoopRestarts(together, workers, pace.look_s, pace.heartbeat_s)
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
        self._recorder.steps = self._loop_steps

    def _loop_steps(self, epochs: int | None, ended: int) -> None:
        """Show a loop that takes its first step in this life of the coordinator."""
        if not self._steps_shown:
            self._steps_shown = True
            self._display.started(self._step, None, epochs, ended)
            if epochs is None:
                self._display.bar(_SAY_EVERY_S)

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
        epochs = [recorder.epochs[number] for number in sorted(recorder.epochs)]
        write_json(self._store, "history.json", {"epochs": epochs, "step_loss": losses})
        last: Measured = epochs[-1] if epochs else {}
        summary = replace(
            summary,
            epochs=len(epochs),
            steps=len(losses),
            step_s=recorder.median_step_s,
            train_loss=last.get("train_loss"),
            val_loss=last.get("val_loss"),
            val_accuracy=last.get("val_accuracy"),
        )
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
