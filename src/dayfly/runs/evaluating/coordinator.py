"""Evaluates a trained model on functions: a run without training, in a place that goes with it.

    data, weights -> one batch tried here -> store -> workers validate -> figures, bill

The store is a directory of the session, or below the run's own URL; nothing of it is left.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch

from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.runs import preloads
from dayfly.runs.directory import new_run_id
from dayfly.runs.display import Display, Lines, StandardError
from dayfly.runs.evaluating.given import Given, given
from dayfly.runs.evaluating.outputs import NAME, Inferring, Outputs, no_loss, read_outputs
from dayfly.runs.evaluating.records import PREDICT, TEST, EvaluationRecord
from dayfly.runs.evaluating.worker import MEASURED
from dayfly.runs.function_resources import resources_of
from dayfly.runs.home import Home, home_of
from dayfly.runs.job_coordinator import JobCoordinator
from dayfly.runs.job_record import Record
from dayfly.runs.log_budget import RoundBytes, measuring
from dayfly.runs.made_with import made_here, variables
from dayfly.runs.progress import Progress
from dayfly.runs.protocols import protocol
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import Result
from dayfly.runs.run import with_bill
from dayfly.runs.run_context import RunContext, RunRequest
from dayfly.runs.settings import WARN_OF_NAN, Settings
from dayfly.runs.shipping import ship, take_code
from dayfly.runs.signals import StopSignals
from dayfly.runs.staging import CUT, staged
from dayfly.runs.tariffs import billed
from dayfly.runs.workplace import Workplace
from dayfly.training.evaluation import result_of
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.order import Epochs, Rounds
from dayfly.training.paged import paged
from dayfly.training.probe import collated, try_validation
from dayfly.training.randomness import DATA, EVALUATE, seeded
from dayfly.training.replica import Replica
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store
from dayfly.wire.stores.files import FileStore

#: As of a run whose workers have two roles: to evaluate, they have one.
_WITHOUT_ROLES: Mapping[str, Any] = {
    "sync": "bsp",
    "collective": None,
    "aggregators": None,
    "compress": "none",
}
#: What of a run's settings is of its training alone.
_OF_TRAINING: Mapping[str, Any] = {
    "target_accuracy": None,
    "target_loss": None,
    "keep": None,
    "monitor": None,
    "mode": None,
    "patience": None,
    "log": (),
    "virtual_workers": None,
    "shares": (),
    "max_cost_usd": None,
    "max_time_s": None,
    "coordinator_lifetime_s": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """A trained run, and what it is to be evaluated with.

    Args:
        directory: of the run, which gets the record.
        weights: file of the weights that count.
        job: that was trained.
        changes: settings in place of the run's.
        progress: whether to say on standard error what happens.
        faults: for tests.
    """

    directory: Path
    weights: Path
    job: Job
    changes: Mapping[str, Any]
    progress: bool = True
    faults: Sequence[Fault] = ()

    def test(self, data: Any) -> dict[str, float | None]:
        """Returns the loss and the metrics of some data; see `Run.test`."""
        found = given(data, self.job, labels_needed=True, paired=False, note=self._display.note)
        with self._evaluated(TEST, found, self._record.weighting) as (store, evaluated):
            measured = json.loads(store.get(MEASURED))
        values = result_of(measured, self._record.weighting.logged)
        replace(evaluated, values=values).save(self.directory)
        return values

    def predict(self, data: Any) -> Any:
        """Returns the outputs of some data; see `Run.predict`."""
        step = self.job.step
        if isinstance(step, Mapping) and self.job.infer is None:
            raise RequestError(
                "the job has several steps, of which none is known to give the outputs: give it "
                "infer=, a function infer(model, batch)"
            )
        own = self.job.infer is not None or step is not None
        needed = self.job.infer is None and step is not None
        found = given(data, self.job, labels_needed=needed, paired=not own, note=self._display.note)
        changes: dict[str, Any] = {"metrics": {NAME: Outputs()}}
        if own:
            plain = None if isinstance(step, Mapping) else step
            inferring = Inferring(self.job.infer, plain, labelled=found.labelled)
            changes |= {"step": inferring, "loss": None}
        else:
            changes |= {"loss": no_loss}
        found = replace(found, job=replace(found.job, **changes))
        with self._evaluated(PREDICT, found, SAMPLES) as (store, evaluated):
            outputs = read_outputs(store)
        evaluated.save(self.directory)
        return outputs

    @property
    def _record(self) -> Record:
        return Record.load(self.directory)

    @property
    def _display(self) -> Display:
        return _Told(StandardError()) if self.progress else Display()

    @contextmanager
    def _evaluated(
        self, kind: str, found: Given, weighting: Weighting
    ) -> Iterator[tuple[Store, EvaluationRecord]]:
        """Runs the functions; their store, and what it took, until the block is left."""
        asked_at, trained = time.time(), self._record
        beside = _WITHOUT_ROLES if trained.settings.protocol.staleness else {}
        settings = trained.settings.changed(**{**_OF_TRAINING, **beside, **self.changes})
        for each in settings.kinds:
            resources_of(each)  # before anything is made
        display = self._display
        run_id, made = new_run_id(kind), made_here()
        with (
            StopSignals() as signals,
            Workplace.open(None, preloads.EVALUATION, signals, variables(made), settings) as place,
        ):
            directory = place.directory / "run"
            directory.mkdir(mode=0o700)
            place = replace(place, directory=directory)
            with _store(trained, self.directory, directory, run_id) as store:
                job = replace(found.job, epochs=1, init=None, ema=None, callbacks=())
                shipped = ship(job, None, store)
                if trained.shipped.code is not None:
                    take_code(trained.shipped, home_of(trained, self.directory), store)
                    shipped = replace(shipped, code=trained.shipped.code)
                parts = found.put(store, display.note if settings.on_nan == WARN_OF_NAN else None)
                record = Record(
                    run_id=run_id,
                    settings=settings,
                    shipped=shipped,
                    parts=parts,
                    samples=found.samples,
                    round_bytes=RoundBytes.of_sums(0, settings.workers),
                    weighting=weighting,
                    made_with=made,
                    began_at=asked_at,
                )
                with paged(directory, when=bool(settings.cut)), seeded(DATA, job.seed):
                    record = _prepared(record, job, found, self.weights, store)
                home = Home(store, directory)
                request = RunRequest(display, faults=self.faults, asked_at=asked_at)
                context = RunContext(request, home, place)
                run = EvaluationCoordinator(job, record, context).start()
                result = run.result
                if run.stopped_by is not None:
                    _stopped(run.stopped_by)
                if result.status != "done":
                    raise RunFailed(f"{kind} of {self.directory}: {result.error or 'was stopped'}")
                evaluated = EvaluationRecord(
                    id=run_id,
                    kind=kind,
                    at=asked_at,
                    samples=found.samples,
                    workers=settings.workers,
                    restarts=result.restarts,
                    total_s=result.total_s,
                    billed_s=result.billed_s,
                    gb_s=result.gb_s,
                    cost_usd=result.cost_usd,
                    price_list=result.price_list,
                )
                yield store, evaluated
        display.note(evaluated.words())


class EvaluationCoordinator(JobCoordinator):
    """The run of an evaluation: it ends once the workers have validated."""

    handler = "dayfly.runs.evaluating.worker:main"

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.policy.stops_in_order = False  # there is nothing to keep

    def _change(self, number: int, changes: Mapping[str, Any]) -> None:
        self._recorder.answered(number, refused="an evaluation keeps its plan")

    def _results(self, summary: Result, recorder: Recorder) -> Result:
        whole_bill = billed(
            recorder.used,
            self._record.settings,
            moved=recorder.moved,
            stored_bytes=recorder.stored_bytes,
            coordinator=recorder.coordinator_used(),
        )
        return replace(with_bill(summary, whole_bill, recorder), restarts=recorder.restarts)


class _Told(Lines):
    """Deaths and notes; there is no training to show."""

    def started(self, done: int, steps: int | None, epochs: int | None, ended: int = 0) -> None:
        return None


@contextmanager
def _store(trained: Record, home: Path, directory: Path, run_id: str) -> Iterator[Store]:
    """A store for one evaluation, which goes with it; functions reach it as they did the run's."""
    if trained.store is None:
        yield FileStore(directory)
        return
    store = open_store(f"{home_of(trained, home).url.rstrip('/')}/evaluated/{run_id}")
    try:
        yield store
    finally:
        store.clear()


def _prepared(record: Record, job: Job, found: Given, weights: Path, store: Store) -> Record:
    """Tries a batch, writes the weights as a checkpoint, and says how large messages are."""
    settings: Settings = record.settings
    replica = Replica(job, precision=settings.precision)
    safetensors.torch.load_model(replica.model, str(weights))
    with seeded(EVALUATE, job.seed):
        row_bytes = try_validation(
            job,
            replica.model,
            collated(found.tried),
            len(found.tried),
            record.weighting,
            replica.precision,
        )
    tree, tensors = replica.state()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    states = [({"replica": tree, "progress": Progress().dump(), CUT: []}, kept)]
    pipelining = None
    if settings.cut:
        staging = staged(job, replica.model, (tree, kept), settings, found.tried)
        pipelining, round_bytes = staging.pipelining, staging.round_bytes
        states = staging.split(*states[0])
    else:
        rounds = Rounds(Epochs.of(record.samples, job), settings.round_steps)
        nbytes = protocol(settings.protocol).round_bytes(job, replica, rounds)
        round_bytes = RoundBytes.of_sums(nbytes, settings.workers, len(job.phases))
    checkpoints.commit(store, 0, checkpoints.write_stages(store, 0, states))
    measured = measuring(job, found.samples, row_bytes, record.weighting)
    return replace(record, pipelining=pipelining, round_bytes=measured.add_to(round_bytes))


def _stopped(number: int) -> None:
    """Does to this process what the signal would have done."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.raise_signal(number)
    raise RunFailed("stopped by a signal")
