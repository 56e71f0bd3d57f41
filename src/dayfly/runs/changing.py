"""A run whose plan changes while it runs: what follows for its record.

dayfly scale RUN --workers 8
     |  a request in the run's store
     v
changed_record     refused: in one sentence, and the run goes on as it was
     |
     v
old generation     ... step 118 | step 119 | checkpoint, all workers end
new generation     start, load job and data           | step 120 ...       by the new record
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from dayfly.dataclass_json import read
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.life.platforms.base import PLATFORMS
from dayfly.planning.plan import Plan
from dayfly.runs.changes import MEMORY, Changes, flag_of
from dayfly.runs.function_resources import resources_of
from dayfly.runs.job_record import Record
from dayfly.runs.outer_of_job import with_outer
from dayfly.runs.prepare import check_phases, check_shares
from dayfly.runs.run_plan import differences
from dayfly.runs.settings import Settings
from dayfly.runs.setup import Setup
from dayfly.runs.staging import CUT_LATER, refitted
from dayfly.runs.unequal import shares_of
from dayfly.specs.compression import compression
from dayfly.specs.generations import Change, GenerationPlan
from dayfly.wire.channels import channel_kind
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.stores.base import Store
from dayfly.wire.stores.files import FileStore


@dataclass(frozen=True, slots=True)
class NextPlan:
    """What a run is to have from its next boundary on, once that is checked.

    Args:
        change: that leads to it; None: successors are to be there before lifetimes end.
        record: of the run.
        setup: of its generations.
        plan: with its prediction; None: the run has none.
        generation: that warms up while another one trains; None: it begins after that one's end.
    """

    change: Change | None
    record: Record
    setup: Setup
    plan: Plan | None
    generation: GenerationPlan | None = None


def changed_record(
    record: Record, asked: Mapping[str, Any], job: Job, store: Store
) -> tuple[Record, str]:
    """Returns the record of the next generation of a run under way, and the change in words.

    Args:
        record: of the run.
        asked: settings by name, as a request has them.
        job: of the run.
        store: of the run.

    Raises:
        RequestError: what is asked for cannot be, in one sentence.
    """
    settings, said = _changed(record, read(Changes, asked, "the request"))
    if not said:
        raise RequestError("the run has these settings already")
    _check_reach(settings, store)
    following = replace(record, settings=settings, generation=record.generation + 1)
    words = [*said, *batch_words(job, record.settings, settings)]
    return fitted(record.settings, following, job, store), ", ".join(words)


def _check_reach(settings: Settings, store: Store) -> None:
    """Raise RequestError if functions could not reach the run's store or channel."""
    if PLATFORMS[settings.platform].on_this_machine:
        return
    where = None if settings.channel is None else channel_kind(settings.channel)
    if isinstance(store, FileStore):
        what, remedy = f"the run's data in {store.url}", "begin the run with --store"
    elif where is None or (settings.channel and where.directory(settings.channel) is not None):
        what, remedy = "messages in files", "give --channel, too"
    else:
        return
    raise RequestError(
        f"--platform {settings.platform}: its functions are not on this machine, and cannot reach "
        f"{what}: {remedy}"
    )


def has_already(record: Record, changes: Changes) -> bool:
    """Returns whether the settings of a run are these.

    Raises:
        RequestError: settings that no run can have.
    """
    return not _changed(record, changes)[1]


def _changed(record: Record, changes: Changes) -> tuple[Settings, Sequence[str]]:
    """The settings with the changes, and what differs, in words."""
    settings = record.changed_settings(changes.given)
    return settings, differences(_by_flag(record.settings), _by_flag(settings))


def fitted(before: Settings, record: Record, job: Job, store: Store) -> Record:
    """Returns the record of a run that goes on with other settings than those it had.

    Args:
        before: those that it had.
        record: with those that it has now.
        job: of the run.
        store: of the run.

    Raises:
        RequestError: settings by which the job cannot go on.
    """
    if before.outer_optimizer is not None and record.settings.cut:
        raise RequestError(CUT_LATER)
    record = replace(record, settings=with_outer(job, record.settings))
    job = job.sized(record.settings.members)
    check_phases(job, record.settings)
    check_shares(job, record.settings, record.samples)
    for kind in record.settings.kinds:
        resources_of(kind)  # before anything is tried
    return refitted(before, record, job, store)


def sums_note(before: Settings, after: Settings) -> str | None:
    """What to say where sums are added up in another order from now on; None: they are not."""
    lagging = {(one.sync, one.workers, one.aggregators, shares_of(one)) for one in (before, after)}
    if len(lagging) > 1 and (before.protocol.staleness or after.protocol.staleness):
        part = "another" if after.protocol.staleness else "no"
        return f"{part} part of each sum is a step late from here on: the curve may be another"
    summed_by = {before.algorithm, after.algorithm}
    if len(summed_by) == 1 or all(COLLECTIVES[name].rank_order for name in summed_by):
        return None
    return (
        f"{before.algorithm} so far, {after.algorithm} from here on, which sum in different "
        "orders: the bits may be others"
    )


def state_notes(before: Settings, after: Settings) -> Iterator[str]:
    """Yields sentences for the user: which state of the run is lost when its protocol changes.

    Args:
        before: settings so far.
        after: from here on.
    """
    was, now = before.outer_optimizer, after.outer_optimizer
    if was is not None and now is None:
        yield (
            "all workers go on with worker 0's optimizer from here on, and without the outer "
            "optimizer's state"
        )
    streamed, streams = (one is not None and one.streaming is not None for one in (was, now))
    if streamed and not streams:
        yield (
            "each worker's own parameters of streaming are dropped, with what its steps did since "
            "its fragments were last taken"
        )
    if was is None and now is not None:
        yield f"--outer {now.name} begins here, with a state as at a run's beginning"
    if (was is None) != (now is None) and compression(after.compress).feeds_back:
        yield (
            f"what --compress {after.compress} has held back is dropped here, as it is of another "
            "kind than what travels from here on"
        )


def batch_words(job: Job, before: Settings, after: Settings) -> list[str]:
    """What to say where the batch follows the number of workers, and that changes; or nothing."""
    was, now = (job.sized(settings.members).batch_size for settings in (before, after))
    return [f"batches of {now} samples in place of {was}"] if now != was else []


def _by_flag(settings: Settings) -> dict[str, Any]:
    own = {flag_of(one.name): getattr(settings, one.name) for one in fields(settings)}
    own[MEMORY] = own.pop(flag_of("each_memory_mib")) or own[MEMORY]
    return own
