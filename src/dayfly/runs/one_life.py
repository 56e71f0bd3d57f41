"""One life of a job's run: one coordinator, from a checkpoint to the end or to the next life.

A life is one generation of workers after another, each with a channel of its own, if the channel
keeps nothing from which a worker could catch up alone; else it is a single one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.coordinator import Coordinator
from dayfly.life.faults import Fault, Faults
from dayfly.life.platforms.base import Invocation
from dayfly.life.rollback import ROLLED_BACK, Past
from dayfly.planning.plan import Plan
from dayfly.runs.directory import PLAN
from dayfly.runs.home import WEIGHTS, Home
from dayfly.runs.job_record import Record
from dayfly.runs.log_budget import channel_plan, log_rounds, replays
from dayfly.runs.measured import check_gathering
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.protocols.local_sgd import PRIVATE
from dayfly.runs.recorder import Display, Recorder
from dayfly.runs.result import Result
from dayfly.runs.results import write_results
from dayfly.runs.run import Run
from dayfly.runs.run_life import RunLife
from dayfly.runs.settings import Settings
from dayfly.runs.task import Task
from dayfly.runs.task_size import check_task
from dayfly.runs.workplace import Workplace
from dayfly.training.order import Epochs
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import Plan as ChannelPlan
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.pipelines.messages import worthwhile_bytes


class OneLife(RunLife[Recorder, Run]):
    """A job's. It starts from the last checkpoint that was committed. plan: of what runs."""

    handler = "dayfly.runs.worker:main"
    inputs = ("data", "faults", PRIVATE)
    recorder_kind = Recorder

    _record: Record
    _settings: Settings

    def __init__(
        self,
        job: Job,
        record: Record,
        home: Home,
        display: Display,
        faults: Sequence[Fault],
        workplace: Workplace,
        plan: Plan | None = None,
    ) -> None:
        super().__init__(record, home, display, faults, workplace)
        self._job = job
        self._plan = plan
        self._coordinator_faults = Faults(self._faults, COORDINATOR, self._store)
        self._log_rounds: int | None = None
        self._replays = replays(self._settings, self._channel_url)
        try:
            committed = checkpoints.latest(self._store)
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error
        if committed is None:
            raise RequestError(f"{str(self._store)!r} holds no checkpoint: start the run anew")
        self._checkpoint = committed
        epochs = Epochs(record.samples, job.batch_size, job.seed)
        self._steps = epochs.steps * job.epochs

    def check(self) -> None:
        super().check()
        try:
            for stage in range(checkpoints.stages(self._checkpoint)):  # one in memory at a time
                checkpoints.read(self._store, self._checkpoint, stage)
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error

    def _planned(self) -> ChannelPlan:
        return channel_plan(self._settings, self._channel_url, self._record.round_bytes)

    def _check_own(self) -> None:
        self._log_rounds = log_rounds(
            self._settings, self._channel_url, self._channel_plan, self._record.round_bytes
        )
        least_mib = self._workplace.platform.least_memory_mib
        check_gathering(self._record.round_bytes, self._settings, least_mib)
        task = self._task(0, 0, self._checkpoint, 0, 0.0)
        check_task(task, self._allotment_of(0).spec.payload_bytes)

    def _keep_own(self) -> None:
        if self._plan is not None:
            self._store.put(PLAN, self._plan.text().encode())

    def _own_notes(self) -> Iterator[str]:
        if self._record.planned is not None and (words := self._record.planned.words()):
            yield words
        if not self._replays:
            yield (
                f"{self._settings.algorithm} over {channel_kind(self._channel_url).schemes[0]} "
                "keeps nothing for a worker that starts again: when one dies, all go back to the "
                "run checkpoint"
            )
        line = self._record.pipelining
        if line is not None and line.micro_batches == 1:
            yield (
                "with one micro-batch a step the stages take turns: give --micro-batches 4 or more"
            )
        if self._settings.workers == 1 and self._settings.compress != "none":
            yield "with one worker nothing travels, so nothing is compressed"

    def _generations(self, recorder: Recorder) -> str:
        self._store.clear(PRIVATE)  # of an earlier life, whose messages are gone
        self._display.started(self._checkpoint.step, self._steps)
        past = Past(self._checkpoint.step)
        while True:
            with self._fresh_channel(recorder) as channel:
                recorder.measure(channel.size_bytes)
                status = self._coordinate(channel, recorder, past)
            if status != ROLLED_BACK:
                return status
            self._record = self._record.rolled_back()
            self._record.save(self._store)
            recorder.generation = self._record.generation
            if self._stop_asked():
                return "stopped"

    def _coordinate(self, channel: Channel, recorder: Recorder, past: Past) -> str:
        def invocation(
            rank: int, attempt: int, checkpoint: Checkpoint, trimmed_step: int
        ) -> Invocation:
            age_s = recorder.checkpoint_age_s
            task = self._task(rank, attempt, checkpoint, trimmed_step, age_s)
            return self._invocation(rank, attempt, task.dump())

        coordinator = Coordinator(
            platform=self._workplace.platform,
            channel=channel,
            store=self._store,
            world_size=self._settings.workers,
            replays=self._replays,
            past=past,
            checkpoint=self._checkpoint,
            invocation=invocation,
            stop_asked=self._stop_asked,
            audience=recorder,
            faults=self._coordinator_faults,
        )
        try:
            return coordinator.run()
        finally:
            self._checkpoint = coordinator.checkpoint

    def _task(
        self,
        rank: int,
        attempt: int,
        checkpoint: Checkpoint,
        trimmed_step: int,
        checkpoint_age_s: float,
    ) -> Task:
        settings, record = self._settings, self._record
        return Task(
            run=record.run_id,
            token=self._workplace.token,
            generation=record.generation,
            rank=rank,
            attempt=attempt,
            world_size=settings.workers,
            store=self._store.url,
            channel=self._channel_url,
            shipped=record.shipped,
            parts=record.parts,
            samples=record.samples,
            steps=self._steps,
            sync=settings.sync,
            k=settings.round_steps,
            collective=settings.algorithm,
            aggregators=settings.aggregators,
            compress=settings.compress,
            target_accuracy=settings.target_accuracy,
            log_rounds=self._log_rounds,
            replays=self._replays,
            checkpoint_every_s=settings.checkpoint_every_s,
            wait_timeout_s=settings.wait_timeout_s,
            scratch=str(self._workplace.session.root / "scratch"),
            checkpoint=checkpoint,
            trimmed_step=trimmed_step,
            checkpoint_age_s=checkpoint_age_s,
            faults=self._faults,
            pieces=settings.micro_batches or self._job.accumulate,
            on_nan=settings.on_nan,
            rates=self._allotment_of(rank).rates,
            pipelining=self._pipelining(),
            weighting=record.weighting,
            made_with=record.made_with or {},
            allow_other_cpu=settings.allow_other_cpu,
        )

    def _pipelining(self) -> Pipelining | None:
        """Of a model that is cut, with messages as large as the way to this channel wants them."""
        line = self._record.pipelining
        if line is None:
            return None
        in_flight = channel_kind(self._channel_url).abilities.in_flight
        ways = (one.rates for one in self._allotments)
        return replace(line, chunk_bytes=worthwhile_bytes(ways, in_flight))

    def _results(self, summary: Result, recorder: Recorder) -> Result:
        if self._plan is not None and (predicted := self._plan.prediction) is not None:
            summary = replace(
                summary,
                predicted_step_s=predicted.step_s,
                predicted_cost_usd=predicted.cost_usd,
            )
        result = write_results(
            self._store,
            self._workplace.directory,
            self._job,
            self._checkpoint,
            recorder,
            self._priced_as,
            summary,
        )
        if result.status == "done":
            self._home.keep(WEIGHTS)
        checkpoints.tidy(self._store, self._checkpoint)
        self._coordinator_faults.at(self._checkpoint.step, "save")
        return result

    def _over(self, result: Result) -> Run:
        return Run(
            self._workplace.directory,
            self._job,
            result,
            self._signals.received,
            sure_to_fail=self._sure_to_fail,
        )
