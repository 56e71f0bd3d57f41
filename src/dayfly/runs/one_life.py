"""One life of a run: one coordinator, from a checkpoint to the end or to the next life."""

from __future__ import annotations

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
from dayfly.life.platforms.base import Invocation, Limits
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session
from dayfly.runs.billing import catalogue, price_list
from dayfly.runs.directory import Record
from dayfly.runs.prepare import log_steps
from dayfly.runs.recorder import Display, Recorder
from dayfly.runs.results import write_results
from dayfly.runs.run import Result, Run
from dayfly.runs.signals import Stopped, StopSignals
from dayfly.runs.task import Task
from dayfly.train.order import Epochs
from dayfly.wire.channels import check_channel, open_channel
from dayfly.wire.channels.base import Channel, Namespace
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
        self._log_steps: int | None = None
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
        """Raise RequestError for what cannot be carried out; nothing was started by then."""
        self._log_steps = log_steps(
            self._settings, self._record.step_bytes, check_channel(self._channel_url)
        )
        limit = self._settings.memory_mib
        if limit is not None and limit < (least := self._platform.least_memory_mib()):
            raise RequestError(
                f"--memory {limit}: a function with PyTorch in it needs at least {least} MiB here"
            )
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
                with self._fresh_channel() as channel:
                    recorder.measure(channel.size_bytes)
                    status = self._coordinate(channel, recorder)
            except RunFailed as failure:
                error = str(failure)
            except (DayflyError, OSError) as failure:
                error = f"{type(failure).__name__}: {failure}"
            except Stopped:
                status = "stopped"
            result = self._write_results(status, error, recorder)
        return Run(self._store.root, self._job, result, self._signals.received)

    @contextmanager
    def _fresh_channel(self) -> Iterator[Channel]:
        """The coordinator's end of a channel without messages of earlier lives; removed later."""
        url = self._channel_url
        namespace = Namespace(self._record.run_id, self._record.generation)
        self._session.record_directory(check_channel(url) / namespace.run)
        with open_channel(url, namespace, COORDINATOR) as stale:
            stale.destroy()
        with open_channel(url, namespace, COORDINATOR) as channel:
            try:
                yield channel
            finally:
                channel.destroy()

    def _coordinate(self, channel: Channel, recorder: Recorder) -> str:
        settings, record = self._settings, self._record

        def invocation(
            rank: int, attempt: int, checkpoint: Checkpoint, trimmed_step: int
        ) -> Invocation:
            task = Task(
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
                collective=settings.collective,
                target_accuracy=settings.target_accuracy,
                log_steps=self._log_steps,
                checkpoint_every_s=settings.checkpoint_every_s,
                wait_timeout_s=settings.wait_timeout_s,
                scratch=str(self._session.root / "scratch"),
                checkpoint=checkpoint,
                trimmed_step=trimmed_step,
                checkpoint_age_s=recorder.checkpoint_age_s,
                faults=self._faults,
            )
            return Invocation(
                function=f"worker-{rank}",
                attempt=attempt,
                handler=_HANDLER,
                payload=task.dump(),
                limits=Limits(memory_mib=settings.memory_mib, lifetime_s=settings.lifetime_s),
            )

        coordinator = Coordinator(
            platform=self._platform,
            channel=channel,
            store=self._store,
            world_size=settings.workers,
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
            self._store.delete("data")
            self._store.delete("faults")
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
