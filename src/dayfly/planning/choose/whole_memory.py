"""Memory of functions that hold a whole model: the fewest micro-batches with which it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints
from dayfly.planning.choose.from_profile import limited
from dayfly.planning.configuration import CHECKPOINT_EVERY_S, Configuration
from dayfly.planning.gpus import gpu_room_mib
from dayfly.planning.memory import Peak, gpu_peak_mib, peak_of
from dayfly.planning.profile import Profile, SizeProfile

if TYPE_CHECKING:
    from dayfly.planning.choose.data_parallel_problem import DataParallelProblem

#: More micro-batches than there are.
_NONE = np.iinfo(np.int64).max


class Peaks:
    """Memory that functions with the whole model need; sizes differ only in their base.

    Args:
        profile: of the job.
        configuration: a run of functions of this memory by what it depends on beside them, numbers;
            asked about is its last kind of workers.
    """

    def __init__(self, profile: Profile, configuration: Callable[..., Configuration]) -> None:
        self._profile, self._configuration = profile, configuration
        self._first_mib, self._first = limited(profile)[0]
        self._found: dict[tuple[int, ...], Peak] = {}
        self._on_gpu: dict[tuple[int, ...], float] = {}

    def needs_mib(
        self, size: SizeProfile, *of: int, held_bytes: float, short: bool = False
    ) -> float:
        """Of a function of this size at its fullest moment.

        Args:
            size: of the function.
            of: as `configuration` has it.
            held_bytes: of contributions under way; elementwise.
            short: whether the run is over before a checkpoint is due.
        """
        key = (*of, short)
        if key not in self._found:
            run, lasts_s = self._configuration(self._first_mib, *of), 0.0 if short else None
            kind = len(run.kinds) - 1
            self._found[key] = peak_of(self._profile, run, kind, lasts_s=lasts_s)
        return self._found[key].mib(held_bytes) + size.base_mib.value - self._first.base_mib.value

    def holds_on_gpu(self, size: SizeProfile, *of: int) -> bool:
        """Returns whether a function's part of a GPU holds its share; true: it has none."""
        room_mib = gpu_room_mib(self._profile, size)
        if room_mib is not None and of not in self._on_gpu:
            run = self._configuration(self._first_mib, *of)
            self._on_gpu[of] = gpu_peak_mib(self._profile, run, len(run.kinds) - 1)
        return room_mib is None or self._on_gpu[of] <= room_mib


class Room(Peaks):
    """Memory that functions of data-parallel plans need, by number of workers and of micro-batches.

    Args:
        problem: of the whole model.
    """

    def __init__(self, problem: DataParallelProblem) -> None:
        super().__init__(problem.profile, self._held)
        self._problem = problem
        self._micro_batches = sorted(set(problem.micro_batches))

    def _held(self, memory_mib: int, workers: int, micro_batches: int) -> Configuration:
        p = self._problem
        return p.configuration(
            workers,
            replicas=workers,
            memory_mib=(memory_mib,),
            micro_batches=micro_batches,
            lifetime_s=p.platform.lifetime_max_s,
        )

    def alike(
        self, memory_mib: int, size: SizeProfile, workers: int, held_bytes: Array
    ) -> Iterator[tuple[Ints, int, float]]:
        """Yields ways that need as many micro-batches, how many, and the seconds up to which a run
        has memory for so few.

        Args:
            memory_mib: of each function.
            size: of the functions.
            workers: how many.
            held_bytes: as `Sums` has them.
        """
        whole = self._least_micro_batches(memory_mib, size, workers, held_bytes, short=False)
        short = self._least_micro_batches(memory_mib, size, workers, held_bytes, short=True)
        for micros, most_s in (
            (whole, math.inf),
            (np.where(short < whole, short, _NONE), CHECKPOINT_EVERY_S),
        ):
            for micro in np.unique(micros[micros < _NONE]).tolist():
                yield np.flatnonzero(micros == micro), micro, most_s

    def _least_micro_batches(
        self,
        memory_mib: int,
        size: SizeProfile,
        workers: int,
        held_bytes: Array,
        *,
        short: bool,
    ) -> Ints:
        """The fewest with which a function holds its share, of each way; `_NONE`: it never does."""
        mine = -(-self._problem.batch_size // workers)
        found = np.full(len(held_bytes), _NONE)
        for micro in self._micro_batches:
            open_ = found == _NONE
            if micro > mine or not open_.any():
                break
            if not self.holds_on_gpu(size, workers, micro):
                continue
            held = cast("float", held_bytes)
            needs = self.needs_mib(size, workers, micro, held_bytes=held, short=short)
            found[open_ & (needs <= memory_mib)] = micro
        return found
