"""A function's share of a CPU in virtual time, given out as the kernel does (CFS bandwidth).

    share 1/4, periods of 20 ms; # runs, . stands still
    one job of 12 ms    |#####...............|#####...............|##
    two jobs at once    |##.5................|##.5 ...               each gets half of the 5 ms

In each period the threads of a function may together use CPU time of `share` times the period. So a
short burst runs at full speed, and long work takes its time over the share. The kernel hands a
period's CPU time to CPUs in slices of 5 ms. Threads of a function of less than a core are on one
CPU, where they share each slice; here they have equal parts.

CPU time that is left when a period ends is lost, but for the rest of the slice that the CPU was
handed last. It may be used in the next period, too: all of it if a thread runs when the period
ends, else 1 ms at most.

    9 ms from 17 ms on  |.................###|######..............|

Functions of one machine share its cores, too. While more threads run than it has cores, or than one
on a CPU to which functions are bound, each is slower, however much of its share is left.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import accumulate

from dayfly.cpus import cpus_with_room, thousandths

#: Of a period's time, that counts as nothing left.
_NOTHING = 1e-9
#: Of a job's work, in seconds, that counts as nothing left.
_DONE_S = 1e-11
#: CPU seconds that the kernel hands to a CPU at a time (sched_cfs_bandwidth_slice_us), and the most
#: that a CPU keeps of them while no thread runs on it (min_cfs_rq_runtime).
_SLICE_S, _KEPT_S = 0.005, 0.001


class SharedProcessor:
    """Runs jobs side by side, each a thread of its own.

    Args:
        share: CPU seconds a second; infinite: no limit, each job runs at full speed.
        period_s: how often it is given out anew; 0: evenly, so that jobs take their time over the
            share.
        phase_s: how long before second 0 a period began.
    """

    def __init__(
        self, share: float = math.inf, period_s: float = 0.0, phase_s: float = 0.0
    ) -> None:
        self._share = share
        self._period_s = period_s if share < math.inf else 0.0
        self._quota_s = share * period_s if self._period_s else 0.0
        self._now_s = 0.0
        self._done_s = 0.0  # CPU time that each job had that ran throughout
        self._end_s = period_s - phase_s  # of the period
        self._left_s = self._quota_s
        self._slice_s = 0.0  # of that, what a CPU was handed
        self._speed = 1.0  # CPU seconds a second of a thread that runs
        # When done, by `_done_s`; its number; whether it had work at all.
        self._jobs: list[tuple[float, int, bool]] = []

    @property
    def share(self) -> float:
        """CPU seconds a second; infinite: no limit."""
        return self._share

    @property
    def period_s(self) -> float:
        """Seconds of a period, after which its share is given out anew; 0: the share is spread
        evenly, or not limited."""
        return self._period_s

    @property
    def unlimited(self) -> bool:
        """Whether jobs never wait for each other."""
        return self._share == math.inf

    @property
    def stands_still(self) -> bool:
        """Whether a job may wait though it is the only one, however small it is."""
        return self._period_s > 0

    def state(self) -> dict[str, float]:
        """Returns all of it that is not a job, by the names of `loop.records.PROCESSOR`."""
        return {
            "share": self._share,
            "period_s": self._period_s,
            "quota_s": self._quota_s,
            "at_s": self._now_s,
            "had_s": self._done_s,
            "end_s": self._end_s,
            "left_s": self._left_s,
            "slice_s": self._slice_s,
        }

    def add(self, work_s: float, job: int, now_s: float) -> None:
        """A job that needs so many seconds of CPU time begins.

        Args:
            job: its number.
        """
        self._advance(now_s)
        heapq.heappush(self._jobs, (self._done_s + work_s, job, work_s > 0))

    def finish(self, now_s: float) -> int:
        """The job of `next_s`, which is done now, leaves; returns its number."""
        self._advance(now_s)
        target_s, job, _ = heapq.heappop(self._jobs)
        self._done_s = max(self._done_s, target_s)  # but for rounding
        if not self._jobs:
            self._slice_s = min(self._slice_s, _KEPT_S)
        return job

    @property
    def running(self) -> float:
        """Threads that run now; parts of one if shares are given out evenly."""
        if self._period_s:
            return len(self._jobs) if self._has_left else 0.0
        return min(len(self._jobs), self._share)

    def slow_down(self, speed: float, now_s: float) -> None:
        """From now on a thread that runs gets so many CPU seconds a second, 1 at most."""
        self._advance(now_s)
        self._speed = speed

    def is_done(self, now_s: float) -> bool:
        """Whether the first job is done."""
        self._advance(now_s)
        return self._first_is_done

    def turn_s(self) -> float:
        """When the first job will be done or `running` will change, whichever is earlier."""
        if not self._jobs:
            return math.inf
        if self._first_is_done:
            return self._now_s
        count, work_s = len(self._jobs), self._jobs[0][0] - self._done_s
        if not self._period_s:
            return self._now_s + work_s / min(self._speed, self._share / count)
        if not self._has_left:
            return self._end_s
        return min(self._end_s, self._now_s + min(work_s, self._left_s / count) / self._speed)

    def next_s(self) -> float:
        """When the first job will be done, if none comes and no other function slows it down;
        infinite if there is none."""
        if not self._jobs:
            return math.inf
        count, work_s = len(self._jobs), max(0.0, self._jobs[0][0] - self._done_s)
        if not self._period_s:
            return self._now_s + work_s * max(1.0, count / self._share)
        left_s, slice_s = self._left_s, self._slice_s
        at_s, end_s = self._now_s, self._end_s
        each_s = min(self._quota_s / count, self._period_s)
        # This period, and those that begin with a rest of a slice; all others are alike.
        while True:
            run_s = min(left_s / count, end_s - at_s)
            if work_s <= run_s and left_s > _NOTHING * self._period_s:
                return at_s + work_s
            work_s -= run_s
            slice_s = _after(slice_s, run_s * count, left_s - run_s * count)
            if not slice_s or each_s == self._period_s:
                break
            left_s = self._quota_s + slice_s
            at_s, end_s = end_s, end_s + self._period_s
        periods = max(0, math.ceil(work_s / each_s - _NOTHING) - 1)
        return end_s + periods * self._period_s + work_s - periods * each_s

    @property
    def _first_is_done(self) -> bool:
        """One without work is done as soon as it could run."""
        if not self._jobs or self._jobs[0][0] - self._done_s > _DONE_S:
            return False
        return self._jobs[0][2] or not self._period_s or self._has_left

    @property
    def _has_left(self) -> bool:
        """Of the period's CPU time."""
        return self._left_s > _NOTHING * self._period_s

    def _advance(self, now_s: float) -> None:
        passed_s, count = now_s - self._now_s, len(self._jobs)
        if passed_s <= 0:
            return
        if not self._period_s:
            self._now_s = now_s
            if count:
                self._done_s += passed_s * min(self._speed, self._share / count)
            return
        if now_s < self._end_s:
            self._use(passed_s, count)
        else:
            self._use(self._end_s - self._now_s, count)
            whole, rest_s = divmod(now_s - self._end_s, self._period_s)
            self._end_s += (whole + 1) * self._period_s
            self._left_s = self._quota_s + self._slice_s
            if count:
                self._pass_periods(whole, count)
            self._use(rest_s, count)
        self._now_s = now_s

    def _pass_periods(self, whole: float, count: int) -> None:
        """`whole` periods pass, in each of which `count` jobs run."""
        most_s = self._period_s * self._speed
        while whole and self._slice_s and self._quota_s < most_s * count:
            self._use(self._period_s, count)
            self._left_s = self._quota_s + self._slice_s
            whole -= 1
        self._done_s += whole * min(self._quota_s / count, most_s)

    def _use(self, passed_s: float, count: int) -> None:
        """Time passes within a period."""
        if count:
            run_s = min(passed_s * self._speed, self._left_s / count)
            self._done_s += run_s
            self._left_s -= run_s * count
            self._slice_s = _after(self._slice_s, run_s * count, self._left_s)


def _after(slice_s: float, used_s: float, left_s: float) -> float:
    """Returns what a CPU has of a slice after it used more CPU time; it takes new ones as it needs.

    Args:
        slice_s: what it had before.
        used_s: what it used.
        left_s: what the period has left after that, of which no slice can be more.
    """
    slice_s -= used_s
    if slice_s < 0.0:
        slice_s += math.ceil(-slice_s / _SLICE_S - _NOTHING) * _SLICE_S
    return max(0.0, min(slice_s, left_s))


class Cores:
    """The cores of one machine, shared by the threads of these processors.

    A processor of less than a core is bound to one, the first of `cpus_with_room`. Threads that are
    not bound run where the fewest others do. Threads on one core share it evenly.

    Args:
        count: of the cores; may be a fraction where nothing is bound.
        processors: of functions, in the order in which they are bound.
    """

    def __init__(self, count: float, processors: Sequence[SharedProcessor]) -> None:
        self._count = count
        self._processors = processors
        self._running = [0.0] * len(processors)
        taken = dict.fromkeys(range(int(count)), 0)
        #: Of each CPU, and of threads that are not bound.
        self._speeds = [1.0] * (len(taken) + 1)
        #: The CPU of each processor; -1: it is not bound.
        self._bound: list[int] = []
        for processor in processors:
            cpus = cpus_with_room(processor.share, taken) if processor.share < 1 else []
            self._bound.append(cpus[0] if cpus else -1)
            if cpus:
                taken[cpus[0]] += thousandths(processor.share)

    def share_out(self, now_s: float) -> list[int]:
        """Something ran, stands still or goes on: numbers of those that go on at another speed."""
        running = [processor.running for processor in self._processors]
        if running == self._running:
            return []
        self._running = running
        on_cpu = [0.0] * len(self._speeds)
        for cpu, threads in zip(self._bound, running, strict=True):
            on_cpu[cpu] += threads
        *bound, unbound = on_cpu
        speed = 1 / max(1.0, self._spread(unbound, bound)) if unbound else 1.0
        speeds = [min(speed, 1 / max(1.0, threads)) for threads in bound] + [speed]
        changed = [
            number for number, cpu in enumerate(self._bound) if speeds[cpu] != self._speeds[cpu]
        ]
        for number in changed:
            self._processors[number].slow_down(speeds[self._bound[number]], now_s)
        self._speeds = speeds
        return changed

    def _spread(self, unbound: float, bound: Sequence[float]) -> float:
        """Threads on each CPU that unbound ones use: those with the fewest, filled up evenly."""
        fewest = enumerate(accumulate(sorted(bound)), 1)
        each = [(unbound + threads) / cpus for cpus, threads in fewest]
        return min([*each, (unbound + sum(bound)) / self._count])
