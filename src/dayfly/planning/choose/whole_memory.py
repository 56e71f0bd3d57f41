"""Memory of functions that hold a whole model: the fewest micro-batches with which it fits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints
from dayfly.planning.choose.from_profile import limited
from dayfly.planning.configuration import CHECKPOINT_EVERY_S, Configuration
from dayfly.planning.gpus import gpu_room_mib
from dayfly.planning.memory import Peak, gpu_peak_mib, peak_of
from dayfly.planning.profile import SizeProfile

if TYPE_CHECKING:
    from dayfly.planning.choose.data_parallel_problem import DataParallelProblem

#: More micro-batches than there are.
_NONE = np.iinfo(np.int64).max


class Room:
    """What functions of a problem need; but for their base it is the same for all memory sizes.

    Args:
        problem: of the whole model.
    """

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
        """Of a function of this size at its fullest moment.

        Args:
            held_bytes: as `Sums` has them.
            short: whether the run is over before a checkpoint is due.
        """
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
        return p.configuration(
            workers,
            replicas=workers,
            memory_mib=(self._first_mib,),
            micro_batches=micro_batches,
            lifetime_s=p.platform.lifetime_max_s,
        )

    def alike(
        self, memory_mib: int, size: SizeProfile, workers: int, held_bytes: Array
    ) -> Iterator[tuple[Ints, int, float]]:
        """Yields ways that need as many micro-batches, how many, and the seconds up to which a run
        has memory for so few. Arguments as of `needs_mib`."""
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
            needs = self.needs_mib(size, workers, micro, cast("float", held_bytes), short=short)
            found[open_ & (needs <= memory_mib)] = micro
        return found
