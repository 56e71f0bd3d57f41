"""Functions, memory, collective and micro-batches of data-parallel training, by closed forms.

    W, M     functions, all with the whole model; memory of each
    A, K     all-reduce algorithm; aggregators, if it is k-reduce
    mu       micro-batches of a function's share of a step

All (W, M, A, K) are gone through, K from 1 to W. mu is the least with which a function holds its
share and what its collective leaves in memory. A step is what `planning.closed_form` says: every
bucket's all-reduce begins when its gradients are whole and the bucket before is through. An epoch's
last batch, which may be smaller, counts as what it is. So the front is exact within these closed
forms, and no further; `planning.predict` says what a run's own schedules take, and is asked about
all that is within the closed forms' error of the front.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dayfly.batches import Batches, share, validations
from dayfly.errors import RequestError
from dayfly.planning.bursts import Bursts
from dayfly.planning.choose.arrays import Array, Ints, nearest
from dayfly.planning.choose.data_parallel_problem import DataParallelPlan, DataParallelProblem
from dayfly.planning.choose.from_profile import allowed, limited, most_at_once
from dayfly.planning.choose.front import Front, Point, counted
from dayfly.planning.choose.known import Known, short_error
from dayfly.planning.choose.sums import PAIRS, Sums, SumTable, link_of
from dayfly.planning.choose.whole_memory import NONE, Room
from dayfly.planning.choose.whole_runs import least_run, run_of, usd_beside_sums
from dayfly.planning.configuration import CHECKPOINT_EVERY_S, Flat
from dayfly.planning.decline import Decline
from dayfly.planning.function_times import cut_backward, declined, passed, slowdown, slowest_pace
from dayfly.planning.gpus import gpu_room_mib
from dayfly.planning.profile import SizeProfile
from dayfly.planning.servers import holds


def plan_data_parallel(problem: DataParallelProblem) -> Front[DataParallelPlan]:
    """All plans that none dominates. Raises RequestError as `all_data_parallel`."""
    return Front.of(all_data_parallel(problem))


def all_data_parallel(
    problem: DataParallelProblem, known: Known | None = None
) -> list[Point[DataParallelPlan]]:
    """All plans, each with the fewest micro-batches that fit.

    Raises RequestError, with what is missing, if the whole model fits into no function.

    Args:
        known: gets them; what it beats before it was looked at is left out.
    """
    return [one for rows in _rows(problem, known) for one in rows.points(range(len(rows.s)))]


def near_data_parallel(
    problem: DataParallelProblem, slack: float, most: int, known: Known | None = None
) -> list[Point[DataParallelPlan]]:
    """Those of `all_data_parallel` that are as near to the front as `Front.near` has it, or as
    `short_error` allows, and that nothing known beats."""
    rows = _rows(problem, known)
    if not rows:
        return []
    seconds, usd = (np.concatenate([getattr(one, what) for one in rows]) for what in ("s", "usd"))
    ends = np.cumsum([len(one.s) for one in rows])
    error = short_error(seconds, problem.steps)
    among = nearest(seconds, usd, np.maximum(slack, error), most)
    if known is not None:
        among = among[~known.beat(seconds[among], usd[among], error[among])]
    found = []
    for at in among.tolist():
        number = int(np.searchsorted(ends, at, side="right"))
        found += rows[number].points([at - int(ends[number])])  # counted from the end
    return found


def least_of(problem: DataParallelProblem) -> tuple[Array, Array]:
    """Returns seconds and dollars that plans take at least, (memory sizes, numbers of workers).

    Numbers that a size or the store cannot have are left open. Raises RequestError as
    `all_data_parallel`.
    """
    every = np.array(problem.allowed)
    sizes = allowed(problem.profile, problem.vcpus_at_once)
    least = [_least(problem, memory_mib, size, every) for memory_mib, size in sizes]
    return np.stack([s for s, _ in least]), np.stack([usd for _, usd in least])


def _least(
    p: DataParallelProblem, memory_mib: int, size: SizeProfile, workers: Ints
) -> tuple[Array, Array]:
    # What other methods than bsp send may be next to nothing.
    summed = p.summed_bytes if p.method.is_plain else 0.0
    found = least_run(p, memory_mib, size, cast("int", workers), summed)
    return cast("tuple[Array, Array]", found)


@dataclass(frozen=True, slots=True)
class _Open:
    """Numbers of workers of one memory size to look at.

    Attributes:
        s: (N,), lower bounds of the seconds of a run.
        usd: (N,), lower bounds of its dollars.
    """

    memory_mib: int
    size: SizeProfile
    workers: Ints
    s: Array
    usd: Array

    def only(self, which: NDArray[np.bool_] | slice) -> _Open:
        """Returns some of the numbers of workers."""
        rest = self.workers[which], self.s[which], self.usd[which]
        return _Open(self.memory_mib, self.size, *rest)

    def declined(self, decline: Decline) -> Iterator[_Open]:
        """Yields each number of workers by itself, with the bandwidth that so many have left."""
        for at, workers in enumerate(self.workers.tolist()):
            size = declined(self.size, decline, workers)
            yield replace(self.only(slice(at, at + 1)), size=size)

    def parts(self) -> Iterator[_Open]:
        """Yields numbers of workers together that have about `PAIRS` ways to sum."""
        part = np.cumsum(self.workers) // PAIRS
        for one in range(int(part[0]), int(part[-1]) + 1):
            if (part == one).any():
                yield self.only(part == one)


def _open(
    p: DataParallelProblem, sizes: Sequence[tuple[int, SizeProfile]], known: Known | None
) -> tuple[list[_Open], bool]:
    """What nothing known beats, and whether it beats anything."""
    summed = p.summed_bytes
    numbers = [n for n in p.allowed if n == 1 or holds(p.store, (n + 1) * summed)]
    found, beaten = [], False
    for memory_mib, size in sizes:
        most = most_at_once(size, p.allowed[-1], p.vcpus_at_once)
        every = np.array([one for one in numbers if one <= most], dtype=np.int64)
        if not len(every):
            continue
        seconds, usd = _least(p, memory_mib, size, every)
        kept = np.ones(len(every), dtype=bool)
        if known is not None:
            kept = ~known.beat(seconds, usd, short_error(seconds, p.steps))
        beaten = beaten or not kept.all()
        if kept.any():
            found.append(_Open(memory_mib, size, every[kept], seconds[kept], usd[kept]))
    if p.profile.decline:
        found = [one for each in found for one in each.declined(p.profile.decline)]
    return found, beaten


def _rows(problem: DataParallelProblem, known: Known | None) -> list[_Rows]:
    p, room = problem, Room(problem)
    sizes = allowed(p.profile, p.vcpus_at_once, p.allowed[0])
    open_, beaten = _open(p, sizes, known)
    of_link: dict[object, set[int]] = {}
    for one in open_:
        of_link.setdefault(link_of(one.size), set()).update(one.workers.tolist())
    tables: dict[object, SumTable] = {}
    found: list[_Rows] = []
    for one in (part for each in open_ for part in each.parts()):
        if known is not None:
            left = ~known.beat(one.s, one.usd, short_error(one.s, p.steps))
            beaten = beaten or not left.all()
            one = one.only(left)
        if not len(one.workers):
            continue
        link = link_of(one.size)
        if link not in tables:
            tables[link] = SumTable(p, one.size, sorted(of_link[link]))
        for rows in _made(p, tables[link], room, one):
            found.append(rows)
            if known is not None:
                known.add(rows.s, rows.usd)
    if not found and not beaten:
        raise _fits_nowhere(p, sizes, room)
    return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """Plans of one memory size.

    Attributes:
        workers, micro_batches: (N,), of each plan.
        ways: algorithm and K of each.
        s: (N,), seconds of each run.
        usd: (N,), dollars of each run.
    """

    problem: DataParallelProblem
    memory_mib: int
    size: SizeProfile
    workers: Ints
    micro_batches: Ints
    ways: Sequence[tuple[str, int | None]]
    s: Array
    usd: Array

    def points(self, among: Iterable[int]) -> list[Point[DataParallelPlan]]:
        """Returns the plans of these numbers."""
        profile = self.problem.profile
        kind, limits = profile.kind_of(self.size), dict[int, tuple[str, ...]]()
        found = []
        for at in among:
            workers, (name, k) = int(self.workers[at]), self.ways[at]
            if workers not in limits:
                limits[workers] = _limits(self.problem, workers, self.memory_mib, self.size)
            plan = DataParallelPlan(
                workers=workers,
                memory_mib=self.memory_mib,
                collective=name,
                aggregators=k,
                micro_batches=int(self.micro_batches[at]),
                store=profile.channel,
                has=kind,
            )
            found.append(Point(float(self.s[at]), float(self.usd[at]), plan, limits[workers]))
        return found


def _made(p: DataParallelProblem, table: SumTable, room: Room, one: _Open) -> list[_Rows]:
    """Plans of some numbers of workers: those that have the memory for any run, and those that need
    fewer micro-batches in a run that is over before a checkpoint is due."""
    sums = table.of(one.workers.tolist())
    held = one.memory_mib, one.size, sums.workers, sums.held_bytes
    whole = room.micro_batches(*held, short=False)
    found = _timed(p, table.flat, sums, one, whole, math.inf)
    if one.s.min() <= CHECKPOINT_EVERY_S:
        short = room.micro_batches(*held, short=True)
        fewer = np.where(short < whole, short, NONE)
        found += _timed(p, table.flat, sums, one, fewer, CHECKPOINT_EVERY_S)
    return found


def _timed(
    p: DataParallelProblem, flat: Flat, sums: Sums, one: _Open, micro_batches: Ints, most_s: float
) -> list[_Rows]:
    """Plans of the ways that have micro-batches, as far as their runs last so long at most."""
    rows = np.flatnonzero(micro_batches < NONE)
    if not len(rows):
        return []
    profile, size, workers, micro = p.profile, one.size, sums.workers[rows], micro_batches[rows]
    steps = Batches(profile.samples, p.batch_size).steps
    n: Any = workers
    step_s: Any = sum(
        part * _step_s(p, flat, size, sums, rows, micro, batch) for batch, part in p.shares_of_steps
    )
    measured_s: Any = sums.measured_s[rows]
    of_run: Any = run_of(p, size, n, step_s, measured_s)
    run_s, lives = of_run
    usd = usd_beside_sums(p, one.memory_mib, size, n, run_s, lives, steps) + (
        p.sums_a_step * steps * p.epochs * sums.step_usd[rows]
        + validations(p.epochs, p.validate_every) * sums.measured_usd[rows]
    )
    kept = np.flatnonzero(run_s <= most_s)
    ways = [sums.named[at] for at in rows[kept].tolist()]
    each = workers[kept], micro[kept], ways, run_s[kept], usd[kept]
    return [_Rows(p, one.memory_mib, size, *each)] if ways else []


def _step_s(
    p: DataParallelProblem,
    flat: Flat,
    size: SizeProfile,
    sums: Sums,
    rows: Ints,
    micro_batches: Ints,
    batch: int,
) -> Array:
    """Seconds of a step of so many samples, of each way."""
    workers: Any = sums.workers[rows]
    shares = np.stack([-(-batch // workers), micro_batches])
    each, at = np.unique(shares, axis=1, return_inverse=True)
    passes = [_passes_s(size, flat, mine, micro) for mine, micro in each.T.tolist()]
    # As slow as the slowest of them is, beside all others.
    local = p.method.protocol.averages
    of_round = micro_batches / p.sums_a_step if local else micro_batches
    slower: Any = slowest_pace(size, workers, cast("int", of_round))
    slower *= slowdown(size.crowd.value, size.crowd_cores, (workers - 1) * size.speed)
    computed_s: Any = slower * np.array([computed for computed, _ in passes])[at.ravel()]
    apply_s = size.apply(sum(layer.trained for layer in p.profile.layers))
    if local:
        reduced_s: Any = computed_s + p.waited_s(computed_s, apply_s, sums.times(rows))
    else:
        whole_s = slower[:, None] * np.array([whole for _, whole in passes])[at.ravel()]
        reduced_s = (whole_s + sums.least_s[rows]).max(axis=1)
    # The step is a part of a round, which has the sums.
    part, rest_s = p.sums_a_step, p.exchanging_s(size)
    burst_s = (computed_s + apply_s) / part + rest_s
    begun_s = np.minimum(sums.begun_s[rows], (reduced_s - computed_s) / part)
    bursts = Bursts.of(size, workers, p.profile.shared_cores)
    round_s: Array = bursts.step_s(
        (reduced_s + apply_s) / part + rest_s, burst_s, begun_s, burst_s + sums.work_s[rows]
    )
    return round_s * part


def _passes_s(
    size: SizeProfile, flat: Flat, samples: int, micro_batches: int
) -> tuple[float, list[float]]:
    """Seconds of a function's passes in a step, and those until each bucket is complete."""
    counts = [len(share(samples, part, micro_batches)) for part in range(micro_batches)]
    each_s = {
        n: size.data(n) + passed(size.forward, n) + passed(size.backward, n)
        for n in set(counts)
        if n
    }
    computed_s = sum(each_s[n] for n in counts if n)
    pieces = cut_backward(size.backward, max(counts), flat.whole_after)
    left_s = [*list(accumulate(reversed(pieces[1:])))[::-1], 0.0]
    return computed_s, [computed_s - left for left in left_s[: len(flat.buckets)]]


def _limits(
    p: DataParallelProblem, workers: int, memory_mib: int, size: SizeProfile
) -> tuple[str, ...]:
    """What a plan is at the limit of: more of it might allow a better one."""
    found = []
    if workers == p.allowed[-1] and workers < p.batch_size:
        found.append(f"{workers} functions at once")
    if workers < p.batch_size and most_at_once(size, workers + 1, p.vcpus_at_once) == workers:
        found.append(f"{p.vcpus_at_once:g} vCPUs at once")
    if memory_mib == max(one for one, _ in limited(p.profile)):
        found.append(f"functions of {memory_mib} MiB")
    return tuple(found)


def _fits_nowhere(
    p: DataParallelProblem, sizes: Sequence[tuple[int, SizeProfile]], room: Room
) -> RequestError:
    memory_mib, size = sizes[-1]
    most = most_at_once(size, p.allowed[-1], p.vcpus_at_once)
    workers = max(one for one in p.allowed if one <= most)
    micro = min(max(p.micro_batches), -(-p.batch_size // workers))
    least = float(SumTable(p, size, [workers]).of([workers]).held_bytes.min())
    needs = math.ceil(room.needs_mib(size, workers, micro, held_bytes=least))
    room_mib = max(gpu_room_mib(p.profile, one) or 0.0 for _, one in sizes)
    if p.profile.gpu is not None and needs <= memory_mib:
        return RequestError(
            f"the whole model of {p.profile.job} does not fit into {room_mib:.0f} MiB of a "
            f"{p.profile.gpu.type}, even in {micro} pieces on each of "
            f"{counted(workers, 'function')}: take a larger GPU, or cut it into stages"
        )
    return RequestError(
        f"the whole model of {p.profile.job} fits into no function: even with its batch shared by "
        f"{counted(workers, 'function')}, each in {micro} pieces, one needs {needs} MiB, and the "
        f"largest has {memory_mib}: allow {needs} MiB, or cut it into stages"
    )
