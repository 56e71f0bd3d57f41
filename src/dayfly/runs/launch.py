"""From a request to a run: `begin` starts one, `resume` goes on with one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.runs.allotment import allotment
from dayfly.runs.directory import Record, locked, made_with, new_directory, new_run_id
from dayfly.runs.events import last_at
from dayfly.runs.one_life import OneLife, Workplace, discard_inputs
from dayfly.runs.prepare import check_shares, prepare
from dayfly.runs.recorder import Display
from dayfly.runs.run import Result, Run
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import receive, ship
from dayfly.train.arrays import place
from dayfly.wire.store import FileStore


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
    travel with the job. Raises RequestError before any function is started, leaving nothing; a run
    that fails afterwards is returned, with its error in the result.
    """
    check_shares(job, settings.workers)
    allotment(settings)  # before anything is made
    run_id = new_run_id(name)
    directory = (directory or Path("runs") / run_id).absolute()
    store = FileStore(directory)
    with (
        _new_directory(directory),
        locked(directory),
        _shown(display),
        Workplace.open(directory) as workplace,
    ):
        shipped = ship(job, code, store)
        prepared = prepare(job, settings)
        parts = place(prepared.arrays, store, job.seed) if prepared.arrays is not None else ()
        written = checkpoints.write_share(
            store, 0, 0, 1, prepared.tree, checkpoints.share_of(0, 1, prepared.tensors)
        )
        checkpoints.commit(store, 0, written)
        record = Record(
            run_id=run_id,
            settings=settings,
            shipped=shipped,
            parts=parts,
            samples=parts[0].samples if parts else prepared.training_samples,
            round_bytes=prepared.round_bytes,
            made_with=made_with(),
        )
        record.save(store)
        life = OneLife(job, record, store, display, faults, workplace)
        life.check()
        return life.run()


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
        discard_inputs(store)  # if the coordinator was killed just before it did
        return Run(directory, job, Result(**record.result))
    with locked(directory), _shown(display), Workplace.open(directory) as workplace:
        before = Record.load(directory)
        record = before.next_life(last_at(directory / "events"), **changes)
        check_shares(job, record.settings.workers)
        for what, now in made_with().items():
            if (before.made_with or {}).get(what) != now:
                display.note(f"made with another {what}: the bits may be others from here on")
        summed_by = {before.settings.algorithm, record.settings.algorithm}
        if len(summed_by) > 1 and "ring" in summed_by:
            display.note(
                f"{before.settings.algorithm} so far, {record.settings.algorithm} from here on, "
                "which sum in different orders: the bits may be others"
            )
        life = OneLife(job, record, store, display, faults, workplace)
        life.check()
        if before.settings.channel != record.settings.channel:
            life.discard_channel(before.settings.channel)
        record.save(store)
        return life.run()


@contextmanager
def _shown(display: Display) -> Iterator[None]:
    display.preparing()
    try:
        yield
    finally:
        display.finished()


@contextmanager
def _new_directory(directory: Path) -> Iterator[None]:
    """Make a run's directory; what is refused, or stopped before it is a run, leaves nothing."""
    had_parent = directory.parent.exists()
    new_directory(directory)
    try:
        yield
    except BaseException as error:
        if isinstance(error, RequestError) or not (directory / "run.json").exists():
            shutil.rmtree(directory, ignore_errors=True)
            if not had_parent:
                with suppress(OSError):
                    directory.parent.rmdir()
        raise
