"""Memory of functions that hold a whole model: the fewest micro-batches with which it fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints
from dayfly.planning.choose.from_profile import limited
from dayfly.planning.configuration import Configuration
from dayfly.planning.gpus import gpu_room_mib
from dayfly.planning.memory import Peak, gpu_peak_mib, peaks_of
from dayfly.planning.profile import Profile, SizeProfile

if TYPE_CHECKING:
    from dayfly.planning.choose.data_parallel_problem import DataParallelProblem

#: More micro-batches than there are.
NONE = np.iinfo(np.int64).max


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
        self._found: dict[tuple[int, ...], tuple[Peak, Peak]] = {}
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
        return self._of_size(size, self._peak(*of, short=short).mib(held_bytes))

    def _of_size(self, size: SizeProfile, first_mib: float) -> float:
        """Returns what a size needs, given what the first one needs; elementwise."""
        return first_mib + size.base_mib.value - self._first.base_mib.value

    def _peak(self, *of: int, short: bool) -> Peak:
        """Returns what a function of the first size needs."""
        if of not in self._found:
            run = self._configuration(self._first_mib, *of)
            self._found[of] = peaks_of(self._profile, run, len(run.kinds) - 1)
        return self._found[of][short]

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

    def micro_batches(
        self,
        memory_mib: int,
        size: SizeProfile,
        workers: Ints,
        held_bytes: Array,
        *,
        short: bool,
    ) -> Ints:
        """Returns the fewest with which a function holds its share, of each way; `NONE`: it never
        does.

        Args:
            memory_mib: of each function.
            size: of the functions.
            workers: of each way, how many.
            held_bytes: as `Sums` has them.
            short: whether the run is over before a checkpoint is due.
        """
        found = np.full(len(workers), NONE)
        mine = -(-self._problem.batch_size // workers)
        for micro in self._micro_batches:
            (open_,) = np.nonzero((found == NONE) & (micro <= mine))
            if not len(open_):
                break
            each, at = np.unique(workers[open_], return_inverse=True)
            numbers = each.tolist()
            peaks = [self._peak(n, micro, short=short) for n in numbers]
            other_mib: Any = np.array([one.other_mib for one in peaks])[at]
            step_mib: Any = np.array([one.step_mib for one in peaks])[at]
            held: Any = held_bytes[open_]
            needs = self._of_size(size, Peak(other_mib, step_mib).mib(held))
            on_gpu = np.array([self.holds_on_gpu(size, n, micro) for n in numbers])[at]
            found[open_[on_gpu & (needs <= memory_mib)]] = micro
        return found
