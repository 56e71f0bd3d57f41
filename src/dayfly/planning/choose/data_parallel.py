"""Functions, memory, collective and micro-batches of data-parallel training, by closed forms.

    W, M     functions, all with the whole model; memory of each
    A, K     all-reduce algorithm; aggregators, if it is k-reduce
    mu       micro-batches of a function's share of a step

All (W, M, A, K) are gone through, K from 1 to W. mu is the least with which a function holds its
share and what its collective leaves in memory. A step is what `planning.closed_form` says: every
bucket's all-reduce begins when its gradients are whole and the bucket before is through. So the
front is exact within these closed forms, and no further; `planning.predict` says what a run's own
schedules take, and is asked about all that is within the closed forms' error of the front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from dayfly.batches import Batches, share
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.from_profile import allowed, limited, most_at_once, summed_bytes
from dayfly.planning.choose.front import Array, Front, Point, counted
from dayfly.planning.choose.known import Known
from dayfly.planning.choose.whole_runs import least_run, run_of
from dayfly.planning.closed_form import sum_of
from dayfly.planning.configuration import CHECKPOINT_EVERY_S, Configuration, Flat, flat
from dayfly.planning.data_parallel import TAIL, summed_numbers
from dayfly.planning.function_kinds import BY_MEMORY, FunctionKind
from dayfly.planning.function_times import cut_backward, passed
from dayfly.planning.gpus import gpu_room_mib
from dayfly.planning.memory import Peak, gpu_peak_mib, peak_of
from dayfly.planning.predict import pace_of, told_by
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.servers import held_bytes, holds
from dayfly.wire.collectives import COLLECTIVES, K_REDUCE
from dayfly.wire.collectives.cost import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelPlan:
    """W, M, A, K and mu. store: what they talk through. has: of a function, beside its memory."""

    workers: int
    memory_mib: int
    collective: str
    aggregators: int | None = None
    micro_batches: int = 1
    store: str = ""
    has: FunctionKind = BY_MEMORY

    def __str__(self) -> str:
        said = f"{counted(self.workers, 'function')} of {self.memory_mib} MiB{self.has}"
        if self.micro_batches > 1:
            said += f", {self.micro_batches} micro-batches"
        if self.workers == 1:
            return said
        k = "" if self.aggregators is None else f" with {counted(self.aggregators, 'aggregator')}"
        return f"{said}, {self.collective}{k}{f' over {self.store}' if self.store else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelProblem:
    """What there is to choose among.

    profile: of the job, over a store. platform: whose prices. store: whose prices messages have;
    None: they cost nothing. workers: all W to consider. collectives: all A. micro_batches: all mu.
    batch_size: of all functions together. vcpus_at_once: so many they have together at most. Raises
    RequestError for what is empty.
    """

    profile: Profile
    platform: FunctionPlatform
    store: StoreFacts | None = None
    workers: tuple[int, ...]
    collectives: tuple[str, ...]
    micro_batches: tuple[int, ...]
    batch_size: int
    epochs: int = 1
    validate_every: int = 1
    vcpus_at_once: float = math.inf

    def __post_init__(self) -> None:
        for what in ("workers", "collectives", "micro_batches"):
            if not getattr(self, what):
                raise RequestError(f"a choice needs {what.replace('_', '-')}: give one at least")
        if min((*self.workers, *self.micro_batches, self.batch_size, self.epochs)) < 1:
            raise RequestError("workers, micro-batches, batch size, epochs: give numbers from 1")

    @property
    def allowed(self) -> tuple[int, ...]:
        """All W that have a sample each, rising."""
        return tuple(one for one in sorted(set(self.workers)) if one <= self.batch_size)


def collectives_of(profile: Profile) -> tuple[str, ...]:
    """Returns dayfly's own that runs have over a profile's channel: of others no cost is known."""
    if ChannelModel.of(profile).kind.abilities.sums:
        return ("push-pull",)
    own = (name for name in COLLECTIVES.built_in if not COLLECTIVES[name].server)
    return (*own, K_REDUCE)


def plan_data_parallel(problem: DataParallelProblem) -> Front[DataParallelPlan]:
    """All plans that none dominates. Raises RequestError as `all_data_parallel`."""
    return Front.of(all_data_parallel(problem))


def all_data_parallel(
    problem: DataParallelProblem, known: Known | None = None
) -> list[Point[DataParallelPlan]]:
    """All plans, each with the fewest micro-batches that fit.

    known: gets them; what it beats before it was looked at is left out. Raises RequestError, with
    what is missing, if the whole model fits into no function.
    """
    p = problem
    sizes, room = allowed(p.profile, p.vcpus_at_once), _Room(p)
    points: list[Point[DataParallelPlan]] = []
    beaten, summed = False, summed_bytes(p.profile)
    ways: dict[object, _Ways] = {}
    for memory_mib, size in sizes:
        link = _link_of(size)
        if link not in ways:
            ways[link] = _Ways(p, size)
        most = most_at_once(size, p.allowed[-1], p.vcpus_at_once)
        for workers in (one for one in p.allowed if one <= most):
            if not holds(p.store, held_bytes(p.profile, workers)):
                continue
            if known is not None and known.beats(*least_run(p, memory_mib, size, workers, summed)):
                beaten = True
                continue
            # By micro-batches, and the seconds up to which a run has memory for so few.
            alike: dict[tuple[int, float], list[_Way]] = {}
            for way in ways[link].of(workers):
                asked = (memory_mib, size, workers, way.held_bytes)
                micro = room.least_micro_batches(*asked)
                if micro is not None:
                    alike.setdefault((micro, math.inf), []).append(way)
                fewer = room.least_micro_batches(*asked, short=True)
                if fewer is not None and fewer != micro:
                    alike.setdefault((fewer, CHECKPOINT_EVERY_S), []).append(way)
            for (micro, most_s), these in alike.items():
                found = _points(p, ways[link], these, memory_mib, size, workers, micro)
                kept = [point for point in found if point.seconds <= most_s]
                points += kept
                if known is not None:
                    known.add(kept)
    if not points and not beaten:
        raise _fits_nowhere(p, sizes, room)
    return points


def _link_of(size: SizeProfile) -> object:
    """What the time of a sum depends on; not on the CPU, where messages take no time of it."""
    up, down = size.up, size.down
    works = up.cpu_s or down.cpu_s or up.cpu_s_per_byte or down.cpu_s_per_byte
    works = works or size.sum_cpu_s or size.reduce_s_per_byte
    return up, down, *((size.speed, size.sum_cpu_s, size.reduce_s_per_byte) if works else ())


@dataclass(frozen=True, slots=True)
class _Way:
    """One algorithm with its K. seconds, carried_s: of each bucket's sum alone, and of it and all
    later ones without latencies. step_usd: the store's. measured_s, measured_usd: of what a
    validation sums. held_bytes: contributions in memory, of sums under way at once."""

    collective: str
    aggregators: int | None
    seconds: Array
    carried_s: Array
    step_usd: float
    measured_s: float
    measured_usd: float
    held_bytes: float


class _Ways:
    """All ways to sum over one kind of link, by workers; they do not depend on memory."""

    def __init__(self, problem: DataParallelProblem, size: SizeProfile) -> None:
        self.flat: Flat = flat(problem.profile.layers, tail=TAIL, listed=problem.profile.listed)
        self._problem, self._size = problem, size
        self._means = ChannelModel.of(problem.profile)
        self._found: dict[int, list[_Way]] = {}

    def of(self, workers: int) -> list[_Way]:
        """Those of so many workers; a lone one sums nothing."""
        if workers not in self._found:
            self._found[workers] = [
                self._way(name, k, workers)
                for name in (self._problem.collectives if workers > 1 else ("scatter-reduce",))
                for k in (range(1, workers + 1) if name == K_REDUCE else (None,))
            ]
        return self._found[workers]

    def _way(self, name: str, k: int | None, workers: int) -> _Way:
        each: dict[int, Cost] = {}
        for elements in self.flat.buckets:
            if elements not in each:
                each[elements] = sum_of(name, k, workers, elements, self._means, self._size)
        sums = [each[elements] for elements in self.flat.buckets]
        later = list(accumulate(one.carried_s for one in reversed(sums)))[::-1]
        numbers = summed_numbers(self._problem.profile, self._problem.batch_size)
        measured = sum_of(name, k, workers, numbers, self._means, self._size, itemsize=8)
        return _Way(
            name,
            k,
            np.array([one.seconds for one in sums]),
            np.array(later),
            self._usd(sums),
            measured.seconds,
            self._usd([measured]),
            sum(sorted((one.memory_bytes for one in sums), reverse=True)[: self._means.at_once]),
        )

    def told_usd(
        self, workers: int, memory_mib: int, size: SizeProfile, run_s: float, lives: int
    ) -> float:
        """Of reports, and of looks for a wish to stop."""
        p = self._problem
        if p.store is None:
            return 0.0
        run = Configuration(workers=workers, batch_size=p.batch_size, epochs=p.epochs)
        steps = Batches(p.profile.samples, p.batch_size).steps
        pace = pace_of(self._means, [memory_mib], p.platform, p.store, workers, size.gpu_share)
        lookers = pace.lookers
        usd = 0.0
        for rank, count in ((0, 1), (1, lookers - 1), (lookers, workers - lookers)):
            told = told_by(run, pace, run_s, lives, steps, rank)
            asked = told.requests - told.puts
            each = p.store.puts_usd(told.puts, told.bytes_up) + p.store.gets_usd(asked, 0)
            usd += count * (each + p.store.transfer_usd(told.bytes_up, 0))
        return usd

    def _usd(self, sums: Sequence[Cost]) -> float:
        store = self._problem.store
        if store is None:
            return 0.0
        puts, gets = sum(one.puts for one in sums), sum(one.gets for one in sums)
        up, down = sum(one.bytes_up for one in sums), sum(one.bytes_down for one in sums)
        asked = store.puts_usd(puts, up) + store.gets_usd(gets, down)
        return asked + store.transfer_usd(up, down)


def _points(
    problem: DataParallelProblem,
    ways: _Ways,
    among: Sequence[_Way],
    memory_mib: int,
    size: SizeProfile,
    workers: int,
    micro_batches: int,
) -> list[Point[DataParallelPlan]]:
    p, profile = problem, problem.profile
    mine = -(-min(p.batch_size, profile.samples) // workers)
    counts = [len(share(mine, part, micro_batches)) for part in range(micro_batches)]
    computed_s = sum(
        size.data(n) + passed(size.forward, n) + passed(size.backward, n) for n in counts if n
    )
    pieces = cut_backward(size.backward, max(counts), ways.flat.whole_after)
    left_s = [*list(accumulate(reversed(pieces[1:])))[::-1], 0.0]
    whole_s = computed_s - np.array(left_s[: len(ways.flat.buckets)])
    apply_s = size.apply(sum(layer.trained for layer in profile.layers)) + size.step_s.value
    steps = Batches(profile.samples, p.batch_size).steps * p.epochs
    validations = -(-p.epochs // p.validate_every)
    kind = profile.kind_of(size)
    own_usd = p.platform.usd_per_s(memory_mib, kind.gpu_share, kind.vcpus)
    request_usd = p.platform.prices.usd_per_request if p.platform.prices else 0.0
    limits = _limits(p, workers, memory_mib, size)
    found = []
    for way in among:
        step_s = float(np.max(whole_s + np.maximum(way.seconds, way.carried_s))) + apply_s
        run_s, lives = run_of(p, size, workers, step_s, way.measured_s)
        usd = workers * (run_s * own_usd + lives * request_usd)
        usd += steps * way.step_usd + validations * way.measured_usd
        usd += ways.told_usd(workers, memory_mib, size, run_s, lives)
        usd += p.store.servers_usd(run_s) if p.store is not None else 0.0
        plan = DataParallelPlan(
            workers=workers,
            memory_mib=memory_mib,
            collective=way.collective,
            aggregators=way.aggregators,
            micro_batches=micro_batches,
            store=profile.channel,
            has=kind,
        )
        found.append(Point(run_s, usd, plan, limits))
    return found


class _Room:
    """What functions need; but for their base it is the same for all memory sizes."""

    def __init__(self, problem: DataParallelProblem) -> None:
        self._problem = problem
        self._first_mib, self._first = limited(problem.profile)[0]
        self._micro_batches = sorted(set(problem.micro_batches))
        self._found: dict[tuple[int, int, bool], Peak] = {}
        self._on_gpu: dict[tuple[int, int], float] = {}

    def needs_mib(
        self,
        size: SizeProfile,
        workers: int,
        micro_batches: int,
        held_bytes: float,
        *,
        short: bool = False,
    ) -> float:
        """Of a function of this size at its fullest moment. held_bytes: as `_Way` has them. short:
        whether the run is over before a checkpoint is due."""
        key = (workers, micro_batches, short)
        if key not in self._found:
            held, lasts_s = self._held(workers, micro_batches), 0.0 if short else None
            self._found[key] = peak_of(self._problem.profile, held, 0, lasts_s=lasts_s)
        return self._found[key].mib(held_bytes) + size.base_mib.value - self._first.base_mib.value

    def holds_on_gpu(self, size: SizeProfile, workers: int, micro_batches: int) -> bool:
        """Returns whether a function's part of a GPU holds its share; true: it has none."""
        profile, key = self._problem.profile, (workers, micro_batches)
        room_mib = gpu_room_mib(profile, size)
        if room_mib is not None and key not in self._on_gpu:
            self._on_gpu[key] = gpu_peak_mib(profile, self._held(*key), 0)
        return room_mib is None or self._on_gpu[key] <= room_mib

    def _held(self, workers: int, micro_batches: int) -> Configuration:
        p = self._problem
        return Configuration(
            workers=workers,
            replicas=workers,
            memory_mib=(self._first_mib,),
            batch_size=p.batch_size,
            micro_batches=micro_batches,
            lifetime_s=p.platform.lifetime_max_s,
        )

    def least_micro_batches(
        self,
        memory_mib: int,
        size: SizeProfile,
        workers: int,
        held_bytes: float,
        *,
        short: bool = False,
    ) -> int | None:
        """The fewest with which a function holds its share; None: it never does. Arguments as of
        `needs_mib`."""
        mine = -(-self._problem.batch_size // workers)
        fitting = (
            micro
            for micro in self._micro_batches
            if micro <= mine
            and self.holds_on_gpu(size, workers, micro)
            and self.needs_mib(size, workers, micro, held_bytes, short=short) <= memory_mib
        )
        return next(fitting, None)


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
    p: DataParallelProblem, sizes: Sequence[tuple[int, SizeProfile]], room: _Room
) -> RequestError:
    memory_mib, size = sizes[-1]
    most = most_at_once(size, p.allowed[-1], p.vcpus_at_once)
    workers = max(one for one in p.allowed if one <= most)
    micro = min(max(p.micro_batches), -(-p.batch_size // workers))
    least = min(way.held_bytes for way in _Ways(p, size).of(workers))
    needs = math.ceil(room.needs_mib(size, workers, micro, least))
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
