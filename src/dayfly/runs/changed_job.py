"""`dayfly train JOB.py --resume DIR`: is the job the one that the run goes on with?

What is compared are the Python files beside the job, which travelled with it: a pickle of the same
job may differ from process to process. A changed job takes the stored one's place if that is
allowed, and if the run's checkpoint, data and steps are its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.runs.job_record import Record
from dayfly.runs.prepare import prepare
from dayfly.runs.shipping import load_job_file, ship, shipped_sources, sources
from dayfly.training.randomness import DATA, seeded
from dayfly.training.replica import Replica
from dayfly.wire.stores.base import Store

#: Most files that are named.
_NAMED = 3


def changed_job(
    record: Record, store: Store, run: Path, job_file: Path, *, allowed: bool
) -> Job | None:
    """The job of a file, if it is another than the run's; None: it is the same.

    run: the run's directory. To be called before the stored job is loaded, whose modules would be
    taken for the file's. Raises RequestError if it is another, and that is not allowed.
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

    was: the job so far. code: the directory of the job's file. run: the run's. Raises RequestError
    for what the checkpoint, the data or the steps of the run depend on.
    """
    for name in ("batch_size", "seed"):
        if (now := getattr(job, name)) != (then := getattr(was, name)):
            raise RequestError(
                f"the changed job's {name} is {now}, and the run goes on with {then}: let it stay "
                "as it was"
            )
    arrays = not (callable(was.data) or callable(job.data))
    if arrays is not bool(record.parts) or (arrays and str(job.data) != str(was.data)):
        raise RequestError("the changed job has other data: let it stay as it was")
    prepared = prepare(job, record.settings)
    if not arrays and prepared.training_samples != record.samples:
        raise RequestError(
            f"the changed job has {prepared.training_samples} training samples, and the run "
            f"{record.samples}: let its data stay as they were"
        )
    committed = checkpoints.latest(store)
    assert committed is not None, "a run has a checkpoint from its beginning"
    tree, tensors = checkpoints.read(store, committed)
    if ("scheduler" in tree["replica"]) != (job.scheduler is not None):
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
