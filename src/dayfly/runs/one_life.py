"""One life of a run: one coordinator, from a checkpoint to the end or to the next life.

A life is one generation of workers after another, each with a channel of its own, if the channel
keeps nothing from which a worker could catch up alone; else it is a single one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dayfly.errors import DayflyError, RequestError, RunFailed
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.checkpoints import Checkpoint
from dayfly.life.coordinator import Coordinator
from dayfly.life.faults import Fault, Faults
from dayfly.life.platforms.base import Invocation
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.rollback import ROLLED_BACK, Past
from dayfly.life.sessions import Session
from dayfly.runs.allotment import allotment, check_task, crowding, in_words
from dayfly.runs.billing import catalogue, price_list
from dayfly.runs.directory import Record
from dayfly.runs.prepare import channel_plan, log_rounds, replays
from dayfly.runs.protocols.local_sgd import PRIVATE
from dayfly.runs.recorder import Display, Recorder
from dayfly.runs.results import write_results
from dayfly.runs.run import Result, Run
from dayfly.runs.signals import Stopped, StopSignals
from dayfly.runs.task import RENDEZVOUS, Task
from dayfly.train.order import Epochs
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.credentials import channel_password
from dayfly.wire.channels.kind import Site
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.store import FileStore

_HANDLER = "dayfly.runs.worker:main"
#: Imported once, where functions are forked. torch.optim imports torch._dynamo when an optimizer is
#: first made, which would cost every function most of a second.
_PRELOAD = ("torch._dynamo", "dayfly.runs.worker")


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a life needs of this machine; opened early, so that the platform warms up meanwhile."""

    session: Session
    platform: LocalPlatform
    signals: StopSignals

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Iterator[Workplace]:
        """For the run in `directory`, which gets the functions' logs."""
        with (
            StopSignals() as signals,
            Session.open() as session,
            LocalPlatform(session, directory / "logs", preload=_PRELOAD) as platform,
        ):
            platform.warm_up()
            yield cls(session, platform, signals)


class OneLife:
    """One life of a run: one coordinator, from a checkpoint to the end or to the next life."""

    def __init__(
        self,
        job: Job,
        record: Record,
        store: FileStore,
        display: Display,
        faults: Sequence[Fault],
        workplace: Workplace,
    ) -> None:
        self._job = job
        self._record = record
        self._settings = record.settings
        self._allotment = allotment(record.settings)
        self._store = store
        self._display = display
        self._faults = tuple(faults)
        self._session = workplace.session
        self._platform = workplace.platform
        self._signals = workplace.signals
        self._coordinator_faults = Faults(self._faults, COORDINATOR, store)
        self._priced_as = catalogue(self._settings).platform(price_list(self._settings))
        self._began = time.monotonic()
        self._channel_url = self._settings.channel or f"file://{self._session.root}/channel"
        self._channel_plan = channel_plan(self._settings, self._channel_url, record.round_bytes)
        self._log_rounds: int | None = None
        self._replays = replays(self._settings, self._channel_url)
        try:
            committed = checkpoints.latest(store)
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error
        if committed is None:
            raise RequestError(f"{str(store.root)!r} holds no checkpoint: start the run anew")
        self._checkpoint = committed
        epochs = Epochs(record.samples, job.batch_size, job.seed)
        self._steps = epochs.steps * job.epochs

    def check(self) -> None:
        """Raise RequestError for what cannot be carried out; nothing was started by then.

        What is enforced in another way than asked for is said.
        """
        self._log_rounds = log_rounds(
            self._settings, self._channel_url, self._channel_plan, self._record.round_bytes
        )
        limit = self._settings.memory_mib
        if limit is not None and limit < (least := self._platform.least_memory_mib()):
            raise RequestError(
                f"--memory {limit}: a function with PyTorch in it needs at least {least} MiB here"
            )
        limits = self._allotment.limits
        self._platform.check(limits)
        check_task(self._task(0, 0, self._checkpoint, 0, 0.0), limits.payload_bytes)
        if self._settings.imitate is not None:
            self._display.note(in_words(self._allotment, self._settings.imitate))
        if limit is not None and not self._platform.memory_by_cgroup:
            self._display.note(
                "memory is limited by RLIMIT_DATA, as this user may make no cgroups: an allocation "
                "beyond the limit fails, and each child of a function has the limit for itself"
            )
        if not self._replays:
            self._display.note(
                f"{self._settings.algorithm} over {channel_kind(self._channel_url).schemes[0]} "
                "keeps nothing for a worker that starts again: when one dies, all go back to the "
                "run checkpoint"
            )
        if self._settings.workers == 1 and self._settings.compress != "none":
            self._display.note("with one worker nothing travels, so nothing is compressed")
        if (crowded := crowding(self._settings.workers, limits.cpu_cores)) is not None:
            self._display.note(crowded)
        try:
            with self._fresh_channel():
                pass
        except DayflyError as error:
            raise RequestError(f"--channel {self._channel_url}: {error}") from error
        try:
            checkpoints.read(self._store, self._checkpoint)
        except DayflyError as error:
            raise RequestError(f"the run's checkpoint cannot be used: {error}") from error

    def run(self) -> Run:
        """Train until it is done, stopped or failed; the directory has the results then."""
        self._store.delete(PRIVATE)  # of an earlier life, whose messages are gone
        recorder = Recorder(
            self._store.root,
            self._record.generation,
            self._settings.memory_mib,
            self._display,
            self._platform.log_path,
        )
        status, error = "failed", None
        if own := self._priced_as.overridden:
            self._display.note(f"{self._priced_as.name}: your own catalogue gives {', '.join(own)}")
        self._display.started(self._checkpoint.step, self._steps)
        with self._signals.patiently():
            try:
                status = self._train(recorder)
            except RunFailed as failure:
                error = str(failure)
            except (DayflyError, OSError) as failure:
                error = f"{type(failure).__name__}: {failure}"
            except Stopped:
                status = "stopped"
            result = self._write_results(status, error, recorder)
        return Run(self._store.root, self._job, result, self._signals.received)

    def _train(self, recorder: Recorder) -> str:
        """One generation of workers after another, until one brings the run to its end."""
        past = Past(self._checkpoint.step)
        while True:
            with self._fresh_channel() as channel:
                recorder.measure(channel.size_bytes)
                status = self._coordinate(channel, recorder, past)
            if status != ROLLED_BACK:
                return status
            self._record = self._record.rolled_back()
            self._record.save(self._store)
            recorder.generation = self._record.generation
            if self._signals.received is not None:
                return "stopped"

    @contextmanager
    def _fresh_channel(self) -> Iterator[Channel]:
        """The coordinator's end of a channel without earlier messages; removed later."""
        kind = channel_kind(self._channel_url)
        site = self._site(self._channel_url)
        if (directory := kind.directory(self._channel_url)) is not None:
            self._session.record_directory(directory / site.namespace.run)
        kind.remove(site)
        with kind.create(site, self._channel_plan) as channel:
            try:
                yield channel
            finally:
                channel.destroy()
                self._store.delete(RENDEZVOUS)

    def discard_channel(self, url: str | None) -> None:
        """Remove what an earlier life has left at another channel, if that can be done."""
        if url is None:
            return
        try:
            channel_kind(url).remove(self._site(url))
        except DayflyError as error:
            self._display.note(f"what is left of the run at {url} stays there: {error}")

    def _site(self, url: str) -> Site:
        return Site(
            url=url,
            namespace=Namespace(self._record.run_id, self._record.generation),
            rendezvous=self._store.below(RENDEZVOUS),
            password=channel_password(os.environ),
        )

    def _coordinate(self, channel: Channel, recorder: Recorder, past: Past) -> str:
        def invocation(
            rank: int, attempt: int, checkpoint: Checkpoint, trimmed_step: int
        ) -> Invocation:
            age_s = recorder.checkpoint_age_s
            return Invocation(
                function=f"worker-{rank}",
                attempt=attempt,
                handler=_HANDLER,
                payload=self._task(rank, attempt, checkpoint, trimmed_step, age_s).dump(),
                limits=self._allotment.limits,
            )

        coordinator = Coordinator(
            platform=self._platform,
            channel=channel,
            store=self._store,
            world_size=self._settings.workers,
            replays=self._replays,
            past=past,
            checkpoint=self._checkpoint,
            invocation=invocation,
            stop_asked=lambda: self._signals.received is not None,
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
            scratch=str(self._session.root / "scratch"),
            checkpoint=checkpoint,
            trimmed_step=trimmed_step,
            checkpoint_age_s=checkpoint_age_s,
            faults=self._faults,
            rates=self._allotment.rates,
        )

    def _write_results(self, status: str, error: str | None, recorder: Recorder) -> Result:
        """The run counts as done once `run.json` says so, after its results are written.

        What cannot be written fails the run, with the first cause; it can be resumed then.
        """
        wall_s = self._record.wall_s + time.monotonic() - self._began
        summary = Result(
            run_id=self._record.run_id,
            status=status,
            error=error,
            workers=self._settings.workers,
            wall_s=wall_s,
        )
        try:
            result = write_results(
                self._store, self._job, self._checkpoint, recorder, self._priced_as, summary
            )
            checkpoints.tidy(self._store, self._checkpoint)
            self._coordinator_faults.at(self._checkpoint.step, "save")
            self._save(result)
        except (DayflyError, OSError) as failure:
            text = error or f"its results cannot be written: {failure}"
            result = replace(summary, status="failed", error=text)
            with suppress(DayflyError, OSError):
                self._save(result)
        if result.status == "done":
            discard_inputs(self._store)
        return result

    def _save(self, result: Result) -> None:
        ended = replace(
            self._record,
            status=result.status,
            error=result.error,
            wall_s=result.wall_s,
            result=asdict(result),
        )
        ended.save(self._store)


def discard_inputs(store: FileStore) -> None:
    """Remove what a run that is done needs no more."""
    for name in ("data", "faults", PRIVATE):
        store.delete(name)
