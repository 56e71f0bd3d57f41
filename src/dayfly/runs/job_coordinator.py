"""The coordinator of a job's run, from a checkpoint to the end or to the next coordinator.

Its work is one generation of workers after another, each with a channel of its own, if the channel
keeps nothing from which a worker could catch up alone; else it is a single one. A supervisor keeps
them alive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dayfly.callbacks.monitor import Monitor
from dayfly.callbacks.usual import ProgressBar
from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.deaths import Deaths, Restart
from dayfly.life.ends import GenerationEnd
from dayfly.life.reports import DONE, plain
from dayfly.planning.plan import Plan
from dayfly.runs.boundaries import Boundaries
from dayfly.runs.callbacks import Callbacks, View
from dayfly.runs.changing import NextPlan, batch_words, state_notes, sums_note
from dayfly.runs.changing_coordinator import ChangingCoordinator
from dayfly.runs.deciders import Decision, Decisions, own_deciders
from dayfly.runs.directory import PLAN
from dayfly.runs.home import AVERAGED, WEIGHTS
from dayfly.runs.job_record import Record
from dayfly.runs.listeners import Listeners
from dayfly.runs.log_budget import channel_plan, check_gathering, log_rounds, replays
from dayfly.runs.progress import Progress
from dayfly.runs.protocols.local_sgd import PRIVATE
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import Result
from dayfly.runs.run import Run, keep_weights, write_results
from dayfly.runs.run_context import RunContext
from dayfly.runs.setup import Setup
from dayfly.runs.task import Going, Task, check_task
from dayfly.runs.unequal import shares_of
from dayfly.specs.generations import Change, GenerationPlan
from dayfly.training.order import Epochs
from dayfly.wire.channels import channel_kind
from dayfly.wire.pipelines.step import StageRank


class JobCoordinator(ChangingCoordinator):
    """A job's, which starts from the last checkpoint that was committed.

    Args:
        job: what to train.
        record: of this life of the run.
        context: what the coordinator works with.
        plan: of what runs; None: there is none.
    """

    handler = "dayfly.runs.worker:main"
    inputs = ("data", "faults", PRIVATE)
    recorder_kind = Recorder

    def __init__(
        self, job: Job, record: Record, context: RunContext, plan: Plan | None = None
    ) -> None:
        super().__init__(record, context)
        self._job = job
        self._plan = plan
        self.policy = self._policy()
        try:
            committed = checkpoints.latest(self._store)
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error
        if committed is None:
            raise RequestError(f"{str(self._store)!r} holds no checkpoint: start the run anew")
        self._checkpoint = committed
        self._batches_follow()
        self._view = View(record.run_id, self._workplace.directory, job, self._check_changes)
        self._callbacks = Callbacks(
            job, record.settings, self._view, self._display.note, record.weighting.logged
        )
        for each in (one for one in job.callbacks if isinstance(one, ProgressBar)):
            self._display.bar(each.every_s)
        self._heard_by = self._callbacks.listeners
        self._listeners += tuple(self._heard_by)
        deciders = [*own_deciders(record.settings), *self._callbacks.deciders]
        decisions = Decisions(self._store, deciders, record.shipped.job, self._own_faults)
        noted = self._view.note
        self._boundaries = Boundaries(decisions, self._epochs, self._steps, noted)

    def _batches_follow(self) -> None:
        """Give batches the size of the workers that go on from the checkpoint, if they follow them;
        and say which steps there are."""
        record, job, step = self._record, self._job, self._checkpoint.step
        batches = tuple(one for one in record.batches if one[0] < step)
        size = job.sized(record.settings.members).batch_size
        before = dict([(0, job.batch_size), *batches])
        if job.batch_per_worker is not None and size != before[max(before)]:
            batches = (*batches, (step, size))
        if batches != record.batches:
            self._record = replace(record, batches=batches)
        self._epochs = Epochs.of(record.samples, job, changed=batches)
        self._steps = self._epochs.first(job.epochs)

    def _take_up(self, following: NextPlan, change: Change) -> None:
        super()._take_up(following, change)
        self._batches_follow()
        self._boundaries.follow(self._epochs, self._steps)
        self._display.steps(self._steps)

    def check(self) -> None:
        super().check()
        try:
            for stage in range(checkpoints.stages(self._checkpoint)):  # one in memory at a time
                tree, _ = checkpoints.read(self._store, self._checkpoint, stage)
                self._boundaries.note(plain(Progress.load(tree["progress"]).history))
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error

    def _kept(self) -> int:
        return self._checkpoint.step

    def _set_up(self, record: Record) -> Setup:
        url, settings = self._channel_url(record), record.settings
        spec = channel_plan(settings, url, record.round_bytes)
        return Setup.of(settings, url, spec, log_rounds(settings, url, spec, record.round_bytes))

    def _policy(self) -> Deaths:
        restart = Restart.ONE if self._replays(self._record) else Restart.ALL
        pace, protocol = self._setup.pace, self._record.settings.protocol
        return Deaths(
            restart,
            hears_stop_s=pace.look_s,
            heartbeat_s=pace.heartbeat_s,
            by_rounds=protocol.averages and not protocol.hands_over_within,
        )

    def _replays(self, record: Record) -> bool:
        return replays(record.settings, self._channel_url(record))

    def _check_own(self, record: Record, setup: Setup) -> None:
        least_mib = self._workplace.platform_for(record.settings).least_memory_mib
        check_gathering(record.round_bytes, record.settings, least_mib)
        plan = self._plan_by(record, setup)
        check_task(self._task(plan, record, setup), setup.specs[0].payload_bytes)

    def _keep_own(self) -> None:
        if self._plan is not None:
            self._store.put(PLAN, self._plan.text().encode())

    def _own_notes(self, record: Record, setup: Setup) -> Iterator[str]:
        settings = record.settings
        before = self._context.before if record is self._record else self._record
        if isinstance(before, Record):
            if (note := sums_note(before.settings, settings)) is not None:
                yield note
            yield from state_notes(before.settings, settings)
            if record is self._record:
                yield from batch_words(self._job, before.settings, settings)
        if record.planned is not None and (words := record.planned.words()):
            yield words
        if not self._replays(record):
            yield (
                f"{settings.algorithm} over {channel_kind(setup.channel_url).schemes[0]} "
                "keeps nothing for a worker that starts again: when one dies, all go back to the "
                "run checkpoint"
            )
        line = record.pipelining
        if line is not None and line.micro_batches == 1:
            flag = "--micro-batches" if line.virtual_workers is None else "--virtual-workers"
            yield f"with one micro-batch a step the stages take turns: give {flag} 4 or more"
        if settings.workers == 1 and settings.compress != "none":
            yield "with one worker nothing travels, so nothing is compressed"

    def _generations(self) -> str:
        self._store.clear(PRIVATE)  # of an earlier life, whose messages are gone
        self._display.started(self._checkpoint.step, self._steps, self._job.epochs)
        step = self._checkpoint.step
        if self._boundaries.is_at(step):
            self._decide(step)
            self._keep_weights(self._checkpoint)  # this coordinator may have died before it did
            self._carry_out_decided(but=self._given_again())
        ended = super()._generations()
        if (change := self._change_under_way) and (ended == DONE or self._asked_to_end()):
            self._answer(change, f"the run was {ended} before")
        return ended

    def _begins(self) -> None:
        super()._begins()
        self._callbacks.start()

    def _ends(self, result: Result, listeners: Listeners) -> None:
        listeners.end(self._heard_by)
        self._callbacks.end(result)
        self._callbacks.check()

    def _stop_asked(self) -> bool:
        self._callbacks.check()
        return super()._stop_asked()

    def _plan_by(self, record: Record, setup: Setup) -> GenerationPlan:
        plan, settings = super()._plan_by(record, setup), record.settings
        layout = settings.layout
        stage_ranks = [layout.stage_rank(rank) for rank in range(plan.world_size)]
        shares = shares_of(settings) or (1,) * plan.world_size
        return replace(
            plan,
            protocol=settings.sync,
            collective=settings.algorithm,
            first_step=self._checkpoint.step,
            checkpoint=self._checkpoint.digest,
            layout=[
                replace(
                    one,
                    stage=own.stage,
                    replica=own.replica,
                    share=share,
                    lags=settings.lags(rank),
                )
                for rank, (one, own, share) in enumerate(
                    zip(plan.layout, stage_ranks, shares, strict=True)
                )
            ],
        )

    def payload(
        self,
        plan: GenerationPlan,
        rank: int,
        attempt: int,
        trimmed_step: int,
        *,
        waits: bool = False,
    ) -> Mapping[str, Any]:
        record, setup = self._of(plan)
        task = replace(
            self._task(plan, record, setup, rank),
            attempt=attempt,
            trimmed_step=trimmed_step,
            checkpoint_age_s=self._recorder.checkpoint_age_s,
            waits=waits,
        )
        return dict(task.dump())

    def committed(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._keep_weights(checkpoint)

    def decide(self, step: int, record: Mapping[str, Any]) -> bytes | None:
        self._boundaries.note([record])
        if not self._boundaries:
            return None
        found = self._decide(step)
        if step >= self._steps:
            return None
        answer = {"ends": found.reason, "keeps": found.keep, "changes": self._decided}
        return json.dumps({name: bool(what) for name, what in answer.items()}).encode()

    def _decide(self, step: int) -> Decision:
        """Ask what happens after `step` steps, the end of an epoch."""
        goes_on = self._boundaries.ended_at is None
        found = self._boundaries.ask(step)
        if found.reason is not None and goes_on:
            self._recorder.decided(step, found.reason)
        if found.changes is not None:
            self._note_decided(step, found.changes)
        return found

    def _keep_weights(self, checkpoint: Checkpoint) -> None:
        """Write the weights of a checkpoint as what was decided at its boundary keeps them."""
        for name in self._boundaries.kept_at(checkpoint.step):
            self._own_faults.at(checkpoint.step, "keep")
            keep_weights(self._home, self._job, checkpoint, name)

    def go(self) -> bytes:
        ended = self._boundaries.ended_at == self._checkpoint.step
        return Going(
            checkpoint=self._checkpoint,
            ended=ended,
            steps=self._steps,
            batches=self._record.batches,
        ).text()

    def starts_again(self, end: GenerationEnd) -> None:
        self._recorder.rolled_back(end.reached, end.checkpoint_step, end.redone_steps, end.in_words)
        self._record = self._record.rolled_back()
        self._record.save(self._store)

    def _task(self, plan: GenerationPlan, record: Record, setup: Setup, rank: int = 0) -> Task:
        """What a rank's first attempt is told."""
        settings, own = record.settings, plan.layout[rank]
        return Task(
            run=record.run_id,
            token=self._workplace.token,
            generation=plan.number,
            turn=plan.turn,
            rank=rank,
            attempt=0,
            stage_rank=StageRank(own.stage, own.replica),
            world_size=plan.world_size,
            store=plan.store,
            channel=plan.channel,
            shipped=record.shipped,
            parts=record.parts,
            samples=record.samples,
            steps=self._steps,
            batches=record.batches,
            sync=settings.sync,
            k=settings.round_steps,
            outer=settings.outer_optimizer,
            shares=plan.shares,
            lags=own.lags,
            collective=settings.algorithm,
            aggregators=settings.aggregators,
            compress=settings.compress,
            decides=bool(self._boundaries),
            ended=self._boundaries.ended_at == self._checkpoint.step,
            log_rounds=setup.log_rounds,
            replays=self._replays(record),
            checkpoint_every_s=settings.checkpoint_every_s,
            wait_timeout_s=settings.wait_timeout_s,
            scratch=str(self._workplace.session.root / "scratch"),
            checkpoint=self._checkpoint,
            trimmed_step=0,
            checkpoint_age_s=0.0,
            faults=self._faults,
            pieces=settings.pieces(self._job.accumulate),
            on_nan=settings.on_nan,
            precision=settings.precision,
            rates=setup.resources_of(rank).rates,
            pace=setup.pace,
            pipelining=setup.sends(record.pipelining),
            weighting=record.weighting,
            virtual_workers=settings.virtual_workers,
            made_with=record.made_with or {},
            allow_other_cpu=settings.allow_other_cpu,
            renewed=self._renews(record, setup),
        )

    def _summary(self, status: str, error: str | None) -> Result:
        own: dict[str, Any] = {"virtual_workers": self._record.settings.virtual_workers}
        if status == "done" and (ended := self._boundaries.ended) is not None:
            own["stop_reason"] = ended.reason
        return replace(super()._summary(status, error), **own)

    def _results(self, summary: Result, recorder: Recorder) -> Result:
        if self._plan is not None and (predicted := self._plan.prediction) is not None:
            summary = replace(
                summary,
                predicted_step_s=predicted.step_s,
                predicted_cost_usd=predicted.cost_usd,
            )
        if (settings := self._record.settings).keep is not None:
            monitor = Monitor.of(settings.monitor, settings.mode)
            best, _ = monitor.best(self._boundaries.until(self._checkpoint.step))
            summary = replace(summary, best_epoch=best)
        result = write_results(
            self._store,
            self._workplace.directory,
            self._job,
            self._checkpoint,
            recorder,
            self._record.settings,
            self._record.profiling,
            summary,
        )
        if result.has_weights:
            for name in (WEIGHTS,) if self._job.ema is None else (WEIGHTS, AVERAGED):
                self._home.keep(name)
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
