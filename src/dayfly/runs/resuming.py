"""A run that goes on: with its stored job, with more epochs, or with a job that changed.

A run that is done has removed its arrays. They are read again from where the job says they are, and
their digests must be those that the run began with.

`dayfly train JOB.py --resume DIR` compares the Python files beside the job with those that
travelled with it: pickles of one job may differ from process to process. A changed job replaces the
stored one if that is allowed, and if the run's checkpoint, data and steps fit it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.runs.job_record import Record
from dayfly.runs.outer_of_job import check_outer
from dayfly.runs.prepare import arrays_of, prepare
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import load_job_file, receive, ship, shipped_sources, sources
from dayfly.training.arrays import store_arrays
from dayfly.training.order import Epochs
from dayfly.training.randomness import DATA, seeded
from dayfly.training.replica import Replica
from dayfly.training.schedules import check_scheduler
from dayfly.wire.stores.base import Store


def stored_job(record: Record, store: Store) -> Job:
    """The job in a run's directory, with the epochs that the run goes to.

    Raises RequestError if it is not what was shipped, or cannot be loaded.
    """
    try:
        job = receive(record.shipped, store, scratch=None)
    except Exception as error:  # whatever the user's own code raises
        text = str(error) if isinstance(error, DayflyError) else in_short(error)
        raise RequestError(
            f"the job of the run in {str(store)!r} cannot be loaded: {text}: put back the "
            "directory's job/ from a copy, or begin the run anew"
        ) from error
    return job if record.epochs is None else replace(job, epochs=record.epochs)


#: Settings that may end a run early.
_ENDING = ("target_accuracy", "target_loss", "patience", "monitor", "mode")


def is_over(
    record: Record,
    settings: Settings,
    job_epochs: int,
    asked: int | None,
    *,
    other_job: bool = False,
) -> bool:
    """Whether a run is done, and stays so with these settings.

    Args:
        job_epochs: to which it was to go.
        asked: to which it is to go now; None: as before.
        other_job: whether it goes on with a changed job.

    Raises:
        RequestError: for fewer epochs than it has, and for more than what ended it lets it begin.
    """
    if record.status != "done" or record.result is None:
        return False
    done, accuracy = record.result.epochs, record.result.val_accuracy
    if asked is not None and asked < done:
        raise _too_few(asked, done)
    target = settings.target_accuracy
    reached = target is not None and accuracy is not None and bool(accuracy >= target)
    if reached and asked not in (None, done, job_epochs):
        raise RequestError(
            f"--epochs {asked}: the run ended after {done} epochs, as it reached its target "
            f"accuracy of {target:g}: give a higher --target-accuracy, too"
        )
    reason = record.result.stop_reason
    same = all(getattr(settings, name) == getattr(record.settings, name) for name in _ENDING)
    ended = reason is not None and same and not other_job
    if ended and asked not in (None, done, job_epochs):
        raise RequestError(
            f"--epochs {asked}: the run ended after {done} epochs ({reason}), and what ended it "
            "still holds: change that, too, such as by --patience, or by --allow-changed-job where "
            "a callback did it"
        )
    return reached or ended or int(asked or job_epochs) <= int(done)


def _too_few(epochs: int, done: int) -> RequestError:
    return RequestError(
        f"--epochs {epochs}: the run has done {done} epochs already: give a number above that"
    )


def check_epochs(record: Record, job: Job, store: Store) -> None:
    """Raise RequestError if a run cannot go on to the last of the job's epochs."""
    epochs = Epochs.of(record.samples, job, changed=record.batches)
    committed = checkpoints.latest(store)
    done = 0 if committed is None else epochs.epoch(committed.step)
    if job.epochs < done:
        raise _too_few(job.epochs, done)
    if job.scheduler is not None:
        with seeded(DATA, job.seed):
            for scheduler in Replica(job).schedulers.values():
                check_scheduler(job, scheduler, epochs.first(job.epochs))


def take_inputs_again(record: Record, job: Job, store: Store) -> None:
    """Put the arrays of a run that was done into its directory again.

    Raises RequestError if they are not those that the run began with.
    """
    if not record.parts:
        return
    if any(rows.digest is None for part in record.parts for rows in (part.x, part.y)):
        raise RequestError(
            "the run was done by an earlier version of dayfly, which did not note by what its "
            "data can be known again: start it anew with more epochs"
        )
    with seeded(DATA, job.seed):
        arrays = arrays_of(job)
    # Whether NaN may be among them was decided when the run began.
    if store_arrays(arrays, store, job.seed, note=lambda text: None) != tuple(record.parts):
        store.clear("data")
        raise RequestError(
            f"the data {str(job.data)!r} differ from those that the run began with: put the "
            "former ones there, or start a run anew (init= takes this one's weights)"
        )


#: Most files that are named.
_NAMED = 3


def changed_job(
    record: Record, store: Store, run: Path, job_file: Path, *, allowed: bool
) -> Job | None:
    """The job of a file, if it is another than the run's; None: it is the same.

    To be called before the stored job is loaded, whose modules would be taken for the file's.

    Args:
        run: the run's directory.

    Raises:
        RequestError: if it is another, and that is not allowed.
    """
    if record.shipped.code is None:
        raise RequestError(
            "the run began from Python, without a job file to compare with: leave JOB.py out"
        )
    name = job_file.name
    then = shipped_sources(record.shipped, store)
    if name not in then:
        raise RequestError(
            f"the run keeps no {name} to compare with: name the file that it began with, or none"
        )
    now = sources(job_file.resolve().parent, run)
    changed = sorted(one for one in then.keys() | now.keys() if then.get(one) != now.get(one))
    if not changed:
        return None
    if not allowed:
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        raise RequestError(
            f"{', '.join(changed[:_NAMED])}{more} changed since the run began: leave {name} out to "
            "go on with the job as it was, or add --allow-changed-job"
        )
    return load_job_file(job_file)


def take_job(record: Record, was: Job, job: Job, code: Path, store: Store, run: Path) -> Record:
    """The record of a run that goes on with another job, which is put beside the former one.

    Args:
        was: the job so far.
        code: the directory of the job's file.
        run: the run's.

    Raises:
        RequestError: for what the checkpoint, the data or the steps of the run depend on.
    """
    for name in ("batch_per_worker", "batch_size", "batch_sizes", "seed"):
        if (now := getattr(job, name)) != (then := getattr(was, name)):
            raise RequestError(
                f"the changed job's {name} is {now}, and the run goes on with {then}: let it stay "
                "as it was"
            )
    arrays = not (callable(was.data) or callable(job.data))
    if arrays is not bool(record.parts) or (arrays and str(job.data) != str(was.data)):
        raise RequestError("the changed job has other data: let it stay as it was")
    check_outer(job, record.settings)
    prepared = prepare(job, record.settings)
    if not arrays and prepared.training_samples != record.samples:
        raise RequestError(
            f"the changed job has {prepared.training_samples} training samples, and the run "
            f"{record.samples}: let its data stay as they were"
        )
    committed = checkpoints.latest(store)
    assert committed is not None, "a run has a checkpoint from its beginning"
    tree, tensors = checkpoints.read(store, committed)
    had = any(key.partition(".")[0] == "scheduler" for key in tree["replica"])
    if had != (job.scheduler is not None):
        raise RequestError(
            "the changed job has a scheduler where the run had none, or none where it had one: let "
            "that stay as it was"
        )
    with seeded(DATA, job.seed):
        Replica(job).load_state(tree["replica"], tensors)
    shipped = ship(job, code, store, folder=f"job-{record.generation}", run=run)
    return replace(
        record,
        shipped=shipped,
        epochs=None,
        round_bytes=prepared.round_bytes,
        pipelining=prepared.pipelining,
        weighting=prepared.weighting,
    )
