"""One life of a job's run: one coordinator, from a checkpoint to the end or to the next life.

A life is one generation of workers after another, each with a channel of its own, if the channel
keeps nothing from which a worker could catch up alone; else it is a single one. A supervisor keeps
them alive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.deaths import Deaths, Restart
from dayfly.life.ends import GenerationEnd
from dayfly.life.faults import Fault
from dayfly.life.reports import plain
from dayfly.planning.plan import Plan
from dayfly.runs.deciders import Boundary, Decision, Decisions, TargetAccuracy
from dayfly.runs.directory import PLAN
from dayfly.runs.display import Display
from dayfly.runs.function_resources import vcpus_sold
from dayfly.runs.home import AVERAGED, WEIGHTS, Home
from dayfly.runs.job_record import Record
from dayfly.runs.listeners import Listener
from dayfly.runs.log_budget import channel_plan, check_gathering, log_rounds, replays
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.progress import Progress
from dayfly.runs.protocols.local_sgd import PRIVATE
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import Result
from dayfly.runs.run import Run, write_results
from dayfly.runs.run_life import RunLife
from dayfly.runs.settings import Settings
from dayfly.runs.task import Task, check_task
from dayfly.runs.workplace import Workplace
from dayfly.specs.generations import GenerationPlan, RankPlan
from dayfly.training.order import Epochs
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.pipelines.step import Layout, StageRank, worthwhile_bytes


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
        listeners: Sequence[Listener] = (),
    ) -> None:
        super().__init__(record, home, display, faults, workplace, listeners)
        self._job = job
        self._plan = plan
        self._log_rounds: int | None = None
        self._replays = replays(self._settings, self._channel_url)
        self.policy = Deaths(
            Restart.ONE if self._replays else Restart.ALL, hears_stop_s=self._pace.look_s
        )
        try:
            committed = checkpoints.latest(self._store)
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error
        if committed is None:
            raise RequestError(f"{str(self._store)!r} holds no checkpoint: start the run anew")
        self._checkpoint = committed
        self._epochs = Epochs(record.samples, job.batch_size, job.seed)
        self._steps = self._epochs.steps * job.epochs
        target = self._settings.target_accuracy
        self._decisions = Decisions(
            self._store,
            [] if target is None else [TargetAccuracy(target)],
            record.shipped.job,
            self._own_faults,
        )
        self._history: dict[int, Mapping[str, Any]] = {}
        self._ended: Decision | None = None
        self._ended_at: int | None = None

    def check(self) -> None:
        super().check()
        try:
            for stage in range(checkpoints.stages(self._checkpoint)):  # one in memory at a time
                tree, _ = checkpoints.read(self._store, self._checkpoint, stage)
                self._note_epochs(plain(Progress.load(tree["progress"]).history))
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error

    def _kept(self) -> int:
        return self._checkpoint.step

    def _planned(self) -> ChannelSpec:
        return channel_plan(self._settings, self._channel_url, self._record.round_bytes)

    def _check_own(self) -> None:
        self._log_rounds = log_rounds(
            self._settings, self._channel_url, self._channel_plan, self._record.round_bytes
        )
        least_mib = self._workplace.platform.least_memory_mib
        check_gathering(self._record.round_bytes, self._settings, least_mib)
        task = self._task(self.plan(), 0, 0, 0, 0.0)
        check_task(task, self._resources_of(0).spec.payload_bytes)

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

    def _generations(self) -> str:
        self._store.clear(PRIVATE)  # of an earlier life, whose messages are gone
        self._display.started(self._checkpoint.step, self._steps)
        step = self._checkpoint.step
        if step and not step % self._epochs.steps:
            self._decide(step)
        return super()._generations()

    def plan(self) -> GenerationPlan:
        return replace(
            super().plan(),
            protocol=self._settings.sync,
            collective=self._settings.algorithm,
            first_step=self._checkpoint.step,
            checkpoint=self._checkpoint.digest,
        )

    def _rank_plan(self, rank: int) -> RankPlan:
        settings = self._settings
        place = Layout(settings.stages, settings.members).place(rank)
        return replace(
            super()._rank_plan(rank),
            stage=place.stage,
            replica=place.replica,
        )

    @contextmanager
    def open(self, plan: GenerationPlan) -> Iterator[Channel]:
        with super().open(plan) as channel:
            self._recorder.measure(channel.size_bytes)
            yield channel

    def payload(
        self, plan: GenerationPlan, rank: int, attempt: int, trimmed_step: int
    ) -> Mapping[str, Any]:
        age_s = self._recorder.checkpoint_age_s
        told: Mapping[str, Any] = self._task(plan, rank, attempt, trimmed_step, age_s).dump()
        return told

    def committed(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def decide(self, step: int, record: Mapping[str, Any]) -> bytes | None:
        self._note_epochs([record])
        if not self._decisions or step >= self._steps:
            return None
        self._decide(step)
        return json.dumps({"ends": self._ended is not None}).encode()

    def _decide(self, step: int) -> None:
        """Ask whether the run ends after `step` steps, the end of an epoch."""
        if self._decisions and step < self._steps:
            epochs = range(1, step // self._epochs.steps + 1)
            history = tuple(self._history[epoch] for epoch in epochs)
            self._ended = self._decisions.at(Boundary(step=step, history=history))
            if self._ended is not None and self._ended_at is None:
                self._ended_at = step
                self._recorder.decided(step, self._ended.reason)

    def _note_epochs(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._history |= {int(record["epoch"]): record for record in records}

    def starts_again(self, end: GenerationEnd) -> None:
        self._recorder.rolled_back(end.reached, end.checkpoint_step, end.redone_steps, end.in_words)
        self._record = self._record.rolled_back()
        self._record.save(self._store)

    def _task(
        self,
        plan: GenerationPlan,
        rank: int,
        attempt: int,
        trimmed_step: int,
        checkpoint_age_s: float,
    ) -> Task:
        settings, record = self._settings, self._record
        return Task(
            run=record.run_id,
            token=self._workplace.token,
            generation=plan.number,
            rank=rank,
            attempt=attempt,
            place=StageRank(plan.layout[rank].stage, plan.layout[rank].replica),
            world_size=plan.world_size,
            store=plan.store,
            channel=plan.channel,
            shipped=record.shipped,
            parts=record.parts,
            samples=record.samples,
            steps=self._steps,
            sync=settings.sync,
            k=settings.round_steps,
            collective=settings.algorithm,
            aggregators=settings.aggregators,
            compress=settings.compress,
            decides=bool(self._decisions),
            ended=self._ended_at == self._checkpoint.step,
            log_rounds=self._log_rounds,
            replays=self._replays,
            checkpoint_every_s=settings.checkpoint_every_s,
            wait_timeout_s=settings.wait_timeout_s,
            scratch=str(self._workplace.session.root / "scratch"),
            checkpoint=self._checkpoint,
            trimmed_step=trimmed_step,
            checkpoint_age_s=checkpoint_age_s,
            faults=self._faults,
            pieces=settings.micro_batches or self._job.accumulate,
            on_nan=settings.on_nan,
            precision=settings.precision,
            rates=self._resources_of(rank).rates,
            pace=self._pace,
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
        ways = (one.rates for one in self._resources)
        return replace(line, chunk_bytes=worthwhile_bytes(ways, in_flight))

    def _summary(self, status: str, error: str | None) -> Result:
        summary = super()._summary(status, error)
        if status == "done" and self._ended is not None:
            summary = replace(summary, stop_reason=self._ended.reason)
        return summary

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
            vcpus_sold(self._settings),
        )
        if result.status == "done":
            self._home.keep(WEIGHTS)
            if self._job.ema is not None:
                self._home.keep(AVERAGED)
        checkpoints.tidy(self._store, self._checkpoint)
        self._own_faults.at(self._checkpoint.step, "save")
        return result

    def _over(self, result: Result) -> Run:
        return Run(
            self._workplace.directory,
            self._job,
            result,
            self._signals.received,
            sure_to_fail=self._sure_to_fail,
        )
