"""What each epoch of a run took, from its events: workers, seconds, dollars, CPU time.

    function 0   |start|  epoch 1  |  epoch 2   X            |  ep. 3 |     X: the coordinator dies
    function 1   |start|  epoch 1  |  epoch 2   X            |start| 3|
    seconds             |- epoch 1-|- epoch 2 -|             |- ep. 2 ...   while any function runs

An epoch begins where the one before ends, the first with its first step. A time in which no
function ran is of no epoch. What was done again after a roll-back is of the epoch that it was in.

These figures differ from run to run, so they are not in `history.json`, which equal runs share.
(KubeML 3.4.1, 4.6.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dayfly.catalogue.metering import MeteredInvocation, bill, with_vcpus
from dayfly.errors import RequestError
from dayfly.runs.events import (
    Events,
    FunctionLife,
    coordinator_events,
    function_lives,
    told_events,
    worker_files,
)
from dayfly.runs.function_resources import vcpus_sold
from dayfly.runs.functions import catalogue, price_list
from dayfly.runs.record import RunRecord
from dayfly.runs.record_kinds import JobRunRecord, read_any
from dayfly.runs.report.curves import epochs as told_epochs
from dayfly.runs.report.reading import History, read_history
from dayfly.specs.events import (
    EpochTold,
    Event,
    GenerationBegun,
    Measured,
    RoundTold,
    StepTold,
    Told,
    TrafficTold,
    epochs_from_1,
    rank_of,
)

#: Dollars of an invocation.
Priced = Callable[[MeteredInvocation], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochUse:
    """What an epoch took.

    Attributes:
        workers: at its end.
        seconds: in which functions ran.
        samples_per_s: training samples a second; None: nobody knows how many there are.
        cost_usd: of functions, as long as it took; of the first one, with their start. None: the
            catalogue with their prices is gone.
        cpu: CPU seconds a second of a worker, mean; None: workers did not tell.
        gpu: utilisation of their GPUs, 0 to 1, mean; None: nobody told, or they have none.
    """

    workers: int | None
    seconds: float
    samples_per_s: float | None
    cost_usd: float | None
    cpu: float | None
    gpu: float | None = None


def history_of(directory: Path) -> list[dict[str, Any]]:
    """Returns what each epoch of a run measured, and what it took; of one under way, so far.

    Args:
        directory: of the run.

    Raises:
        RequestError: the directory holds no run, or its files are damaged.
    """
    record, events = read_any(directory), directory / "events"
    history = read_history(directory) or History()
    ended = record.status != "running"
    workers = {
        rank: tuple(told_events(file, (EpochTold.kind, TrafficTold.kind)))
        for rank, file in worker_files(events).items()
    }
    records = epochs_from_1(history.epochs if ended else ()) or told_epochs(workers.get(0, ()))
    files = worker_files(events).values()
    first_step = min((at for file in files for at in _first_step(file)), default=0.0)
    took = _priced_uses(record, coordinator_events(events), workers, first_step)
    return with_use(records, took)


def _first_step(file: Path) -> Iterator[float]:
    """When a worker's first step began, if it took one."""
    for told in told_events(file, (StepTold.kind, RoundTold.kind)):
        yield told.began_s
        return


def uses_in(record: RunRecord, events: Events) -> dict[int, EpochUse]:
    """Returns what each epoch took of a run whose events were read."""
    steps = (
        one.began_s
        for records in events.workers.values()
        for one in records
        if isinstance(one, StepTold | RoundTold)
    )
    return _priced_uses(record, events.coordinator, events.workers, min(steps, default=0.0))


def with_use(records: Sequence[Measured], took: Mapping[int, EpochUse]) -> list[dict[str, Any]]:
    """Returns records of epochs, each with what it took behind what it measured.

    Args:
        records: counted from 1.
        took: by the number of the epoch.
    """
    found = []
    for one in records:
        use = took.get(int(one["epoch"] or 0))
        found.append({**one, **({} if use is None else asdict(use)), **one})
    return found


def _priced_uses(
    record: RunRecord,
    coordinator: Sequence[Event],
    workers: Mapping[int, Sequence[Told]],
    first_step: float,
) -> dict[int, EpochUse]:
    """By the prices of the run; nothing of scripts and simulations."""
    if not isinstance(record, JobRunRecord):
        return {}
    settings = record.settings

    def priced(one: MeteredInvocation) -> float:
        try:
            known = catalogue(settings)
            own = known.platform(price_list(settings))
            used = with_vcpus([one], vcpus_sold(settings))
            return bill(used, own, lists=known.platform).cost_usd
        except RequestError:  # a catalogue of the user's that is gone
            return math.nan

    return uses(coordinator, workers, first_step, record.samples, priced)


def uses(
    coordinator: Sequence[Event],
    workers: Mapping[int, Sequence[Told]],
    first_step: float,
    samples: int | None,
    priced: Priced,
) -> dict[int, EpochUse]:
    """Returns what each epoch took. Pure.

    Args:
        coordinator: its events.
        workers: what each rank told of epochs.
        first_step: when the first step began, in Unix seconds.
        samples: of an epoch; None: not known.
        priced: gives the dollars of an invocation.
    """
    epochs: defaultdict[int, list[tuple[int, EpochTold]]] = defaultdict(list)
    for rank, records in workers.items():
        for one in records:
            if isinstance(one, EpochTold):
                epochs[one.epoch].append((rank, one))
    lives = list(function_lives(coordinator, workers))
    prices = [priced(one.used) for one in lives]
    sizes = {one.number: one.workers for one in coordinator if isinstance(one, GenerationBegun)}
    cpu = _cpu(workers, lives)
    found: dict[int, EpochUse] = {}
    start, paid_from = first_step, 0.0
    for epoch in sorted(epochs):
        # After a roll-back it counts as it was done last; who starts again tells of it later.
        generation = max(one.generation for _, one in epochs[epoch])
        end = min(one.at for _, one in epochs[epoch] if one.generation == generation)
        seconds = _union([(max(start, one.began), min(end, one.ended)) for one in lives])
        dollars = sum(
            usd * _within(one, paid_from, end) / (one.ended - one.began)
            for one, usd in zip(lives, prices, strict=True)
            if one.ended > one.began
        )
        cpu_s, wall_s = cpu.get(epoch, (0.0, 0.0))
        found[epoch] = EpochUse(
            workers=sizes.get(generation),
            seconds=seconds,
            samples_per_s=samples / seconds if samples and seconds else None,
            cost_usd=dollars if math.isfinite(dollars) else None,
            cpu=cpu_s / wall_s if wall_s else None,
            gpu=_mean([one.gpu for _, one in epochs[epoch] if one.gpu is not None]),
        )
        start = paid_from = max(start, end)
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _within(life: FunctionLife, start: float, end: float) -> float:
    """Returns the seconds of a function's life between two times."""
    return max(0.0, min(life.ended, end) - max(life.began, start))


def _cpu(
    workers: Mapping[int, Sequence[Told]], lives: Sequence[FunctionLife]
) -> dict[int, tuple[float, float]]:
    """CPU seconds, and seconds, of the workers that told of an epoch, since the one before it."""
    found: defaultdict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for rank, records in workers.items():
        own = [one for one in lives if rank_of(one.used.function) == rank]
        before: dict[float, tuple[float, float]] = {}
        for one in records:
            if not isinstance(one, EpochTold) or one.cpu_s is None:
                continue
            # Attempts count from 0 again when another coordinator goes on with the run.
            begun = [x.began for x in own if x.used.attempt == one.attempt and x.began <= one.at]
            if not begun:
                continue
            life = max(begun)
            cpu_s, at = before.get(life, (0.0, life))
            total_s, seconds = found[one.epoch]
            found[one.epoch] = total_s + one.cpu_s - cpu_s, seconds + max(0.0, one.at - at)
            before[life] = one.cpu_s, one.at
    return dict(found)


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds that any of the spans covers."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > max(start, until):
            covered += end - max(start, until)
            until = end
    return covered
