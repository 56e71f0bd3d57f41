"""From a request to a finished run: `train` begins one, `resume` goes on with one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import safetensors.torch

from dayfly.catalogue.prices import function_prices
from dayfly.errors import DayflyError, RequestError, RunFailed
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.checkpoints import Checkpoint
from dayfly.life.coordinator import Coordinator
from dayfly.life.faults import COORDINATOR as COORDINATOR_FAULTS
from dayfly.life.faults import Fault, Faults
from dayfly.life.metering import bill
from dayfly.life.platforms.base import Invocation, Limits
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session
from dayfly.runs.directory import (
    Record,
    locked,
    made_with,
    new_directory,
    new_run_id,
    write_json,
)
from dayfly.runs.prepare import log_steps, prepare
from dayfly.runs.progress import Progress
from dayfly.runs.recorder import Display, Recorder
from dayfly.runs.run import Result, Run
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import receive, ship
from dayfly.runs.signals import StopSignals
from dayfly.runs.task import Task
from dayfly.train.arrays import place
from dayfly.train.order import Epochs
from dayfly.train.replica import build_model, model_part
from dayfly.train.state import load_model_tensors
from dayfly.wire.channels import check_channel, open_channel
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.store import FileStore

_HANDLER = "dayfly.runs.worker:main"
#: Imported once, where functions are forked. torch.optim imports torch._dynamo when an optimizer is
#: first made, which would cost every function most of a second.
_PRELOAD = ("torch._dynamo", "dayfly.runs.worker")
_PRICES = "aws-lambda"


def begin(
    job: Job,
    settings: Settings,
    *,
    directory: Path | None = None,
    name: str = "job",
    code: Path | None = None,
    display: Display,
    faults: Sequence[Fault] = (),
) -> Run:
    """Check a request, make the run's directory and train.

    directory: default `runs/<run id>`. name: part of the run's id. code: directory whose files
    travel with the job. Raises RequestError before anything is started or written; a run that
    fails afterwards is returned, with its error in the result.
    """
    prepared = prepare(job, settings)
    run_id = new_run_id(name)
    directory = (directory or Path("runs") / run_id).absolute()
    new_directory(directory)
    store = FileStore(directory)
    with locked(directory), _removed_if_refused(directory):
        parts = place(prepared.arrays, store, job.seed) if prepared.arrays is not None else ()
        samples = parts[0].samples if parts else prepared.training_samples
        written = checkpoints.write_share(store, 0, 0, 1, prepared.tree, prepared.tensors)
        checkpoints.commit(store, 0, written)
        record = Record(
            run_id=run_id,
            settings=settings,
            shipped=ship(job, code, store),
            parts=parts,
            samples=samples,
            step_bytes=prepared.step_bytes,
            made_with=made_with(),
        )
        record.save(store)
        return _Life(job, record, store, display, faults).run()


def resume(
    directory: Path, *, display: Display, faults: Sequence[Fault] = (), **changes: Any
) -> Run:
    """Go on with a run from its last checkpoint; a run that is done is returned as it is.

    changes: settings that are to be others from now on, such as `workers`; None: as before.
    Raises RequestError if the directory holds no run, or another process runs it.
    """
    directory = directory.absolute()
    record = Record.load(directory)
    store = FileStore(directory)
    job = receive(record.shipped, store, scratch=None)
    if record.status == "done" and record.result is not None:
        return Run(directory, job, Result(**record.result))
    with locked(directory):
        before = Record.load(directory)
        record = before.next_life(**changes)
        if job.batch_size < record.settings.workers:
            raise RequestError(
                f"a batch of {job.batch_size} cannot be shared by {record.settings.workers} "
                "workers: lower --workers"
            )
        record.save(store)
        try:
            return _Life(job, record, store, display, faults).run()
        except RequestError:
            before.save(store)
            raise


@contextmanager
def _removed_if_refused(directory: Path) -> Iterator[None]:
    """What is refused leaves nothing behind."""
    try:
        yield
    except RequestError:
        shutil.rmtree(directory, ignore_errors=True)
        raise


@contextmanager
def _fresh_channel(url: str, namespace: Namespace, session: Session) -> Iterator[Channel]:
    """The coordinator's end of a channel without messages of earlier lives; removed at the end."""
    session.record_directory(check_channel(url) / namespace.run)
    with open_channel(url, namespace, COORDINATOR) as stale:
        stale.destroy()
    with open_channel(url, namespace, COORDINATOR) as channel:
        try:
            yield channel
        finally:
            channel.destroy()


class _Life:
    """One life of a run: one coordinator, from a checkpoint to the end or to the next life."""

    def __init__(
        self,
        job: Job,
        record: Record,
        store: FileStore,
        display: Display,
        faults: Sequence[Fault],
    ) -> None:
        self._job = job
        self._record = record
        self._settings = record.settings
        self._store = store
        self._display = display
        self._faults = tuple(faults)
        self._prices = function_prices(_PRICES)
        self._began = time.monotonic()
        committed = checkpoints.latest(store)
        if committed is None:
            raise RequestError(f"{str(store.root)!r} holds no checkpoint: start the run anew")
        self._checkpoint = committed
        epochs = Epochs(record.samples, job.batch_size, job.seed)
        self._steps = epochs.steps * job.epochs

    def run(self) -> Run:
        """Train until it is done, stopped or failed; the directory has the results then."""
        status, error = "failed", None
        with Session.open() as session, StopSignals() as signals:
            url = self._settings.channel or f"file://{session.root}/channel"
            allowed = log_steps(self._settings, self._record.step_bytes, check_channel(url))
            logs = self._store.root / "logs"
            with LocalPlatform(session, logs, preload=_PRELOAD) as platform:
                recorder = Recorder(
                    self._store.root,
                    self._record.generation,
                    self._billed_mib,
                    self._display,
                    platform.log_path,
                )
                self._check_memory(platform)
                self._display.started(self._checkpoint.step, self._steps)
                namespace = Namespace(self._record.run_id, self._record.generation)
                try:
                    with _fresh_channel(url, namespace, session) as channel, platform:
                        status = self._coordinate(
                            platform, channel, recorder, session, url, allowed, signals
                        )
                except RunFailed as failure:
                    error = str(failure)
                except (DayflyError, OSError) as failure:
                    error = f"{type(failure).__name__}: {failure}"
                except KeyboardInterrupt:
                    status = "stopped"
            self._display.finished()
        result = self._save(status, error, recorder)
        return Run(self._store.root, self._job, result, signals.received)

    @property
    def _billed_mib(self) -> int:
        """Memory that functions are billed for: theirs, or what comes with one vCPU."""
        return self._settings.memory_mib or self._prices.mib_per_vcpu

    def _check_memory(self, platform: LocalPlatform) -> None:
        limit = self._settings.memory_mib
        if limit is not None and limit < (least := platform.least_memory_mib()):
            raise RequestError(
                f"--memory {limit}: a function with PyTorch in it needs at least {least} MiB here"
            )

    def _coordinate(
        self,
        platform: LocalPlatform,
        channel: Channel,
        recorder: Recorder,
        session: Session,
        url: str,
        allowed: int | None,
        signals: StopSignals,
    ) -> str:
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
                channel=url,
                shipped=record.shipped,
                parts=record.parts,
                samples=record.samples,
                steps=self._steps,
                collective=settings.collective,
                target_accuracy=settings.target_accuracy,
                log_steps=allowed,
                checkpoint_every_s=settings.checkpoint_every_s,
                wait_timeout_s=settings.wait_timeout_s,
                scratch=str(session.root / "scratch"),
                checkpoint=checkpoint,
                trimmed_step=trimmed_step,
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
            platform=platform,
            channel=channel,
            store=self._store,
            world_size=settings.workers,
            checkpoint=self._checkpoint,
            invocation=invocation,
            stop_asked=lambda: signals.received is not None,
            audience=recorder,
            faults=Faults(self._faults, COORDINATOR_FAULTS, self._store),
        )
        try:
            return coordinator.run()
        finally:
            self._checkpoint = coordinator.checkpoint

    def _save(self, status: str, error: str | None, recorder: Recorder) -> Result:
        """Write the results; the run counts as done once `run.json` says so."""
        tree, tensors = checkpoints.read(self._store, self._checkpoint)
        history = Progress.load(tree["progress"]).history
        last = history[-1] if history else {}
        billed = bill(recorder.used, self._prices)
        wall_s = self._record.wall_s + time.monotonic() - self._began
        result = Result(
            run_id=self._record.run_id,
            status=status,
            error=error,
            epochs=len(history),
            steps=self._checkpoint.step,
            workers=self._settings.workers,
            restarts=recorder.restarts,
            train_loss=last.get("train_loss"),
            val_loss=last.get("val_loss"),
            val_accuracy=last.get("val_accuracy"),
            wall_s=wall_s,
            step_s=recorder.median_step_s,
            billed_s=billed.billed_s,
            gb_s=billed.gb_s,
            cost_usd=billed.cost_usd,
            price_list=billed.price_list,
            **recorder.traffic,
        )
        losses = [recorder.losses.get(step) for step in range(self._checkpoint.step)]
        write_json(
            self._store,
            "history.json",
            {"epochs": history, "step_loss": losses, "redone_steps": recorder.redone_steps},
        )
        write_json(self._store, "bill.json", billed.dump())
        Faults(self._faults, COORDINATOR_FAULTS, self._store).at(self._checkpoint.step, "save")
        if status == "done":
            model = build_model(self._job)
            load_model_tensors(model, model_part(tensors))
            weights = self._store.root / "weights.safetensors"
            beside = weights.with_suffix(".tmp")
            safetensors.torch.save_model(model, str(beside))
            beside.replace(weights)
        self._record = replace(
            self._record, status=status, error=error, wall_s=wall_s, result=asdict(result)
        )
        self._record.save(self._store)
        if status == "done":
            self._store.delete("data")
            self._store.delete("faults")
        return result
