"""When each worker has computed a round, and when it has the sum: synchronous steps, local rounds.

    worker 0   |data|forward|backward  |       sum        |apply|
    worker 1   |data|forward|backward        |    sum     |apply|      the slowest decides when a
                                   |bucket 0|bucket 1     |            bucket can be summed

Times are absolute, in seconds of the run, (N,).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dayfly.planning.configuration import Flat
from dayfly.planning.function_times import cut_backward
from dayfly.planning.profile import NOTHING, Affine, LayerBytes, SizeProfile
from dayfly.planning.simulation.scenario import Floats, Ints
from dayfly.planning.summed import Summed, of_step
from dayfly.wire.collectives.cost import Phase


def shares(whole: int, parts: int, weights: tuple[int, ...] = ()) -> Ints:
    """How many of so many samples each part has, (parts,); see `dayfly.batches.share`."""
    up_to = np.cumsum((0, *weights), dtype=np.int64) if weights else np.arange(parts + 1)
    counts: Ints = np.diff(up_to * whole // up_to[-1])
    return counts


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are summed together.

    Args:
        length: elements of its schedule.
        nbytes: on their way to be summed.
        sum_bytes: of the sum on its way.
        whole_at: share of the backward pass, by its time for one sample, after which they are
            whole; the last bucket is whole at its end.
    """

    length: int
    nbytes: int
    sum_bytes: int
    whole_at: float

    @classmethod
    def of(cls, summed: Summed, members: int, whole_at: float = 1.0) -> Bucket:
        """Returns what so many members sum at once."""
        part, whole = (summed.travelling_bytes(members, total=total) for total in (False, True))
        return cls(summed.length, part, whole, whole_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The layers that a worker has: seconds of so many samples.

    Attributes:
        forward, backward: of all its layers.
        trained, kept: bytes that the optimizer trains, and of all parameters and buffers.
        apply_s: of the optimizer.
    """

    forward: Affine
    backward: Affine
    trained: float
    kept: float
    apply_s: float
    buckets: tuple[Bucket, ...]

    @classmethod
    def of(
        cls,
        size: SizeProfile,
        layers: tuple[LayerBytes, ...],
        first: int,
        buffer: Flat,
        compress: str = "none",
        members: int = 1,
    ) -> Work:
        """Of the layers from number `first` on.

        Args:
            compress: how gradients travel, as `--compress`.
            members: that sum.
        """
        times = size.backward[first : first + len(layers)]
        cut = len(layers) < len(size.forward)
        beside = Affine(size.pass_cpu_s / size.speed, 0.0) if cut else NOTHING
        trained = float(sum(layer.trained for layer in layers))
        return cls(
            forward=sum(size.forward[first : first + len(layers)], beside),
            backward=sum(times, beside),
            trained=trained,
            kept=float(sum(layer.parameters + layer.buffers for layer in layers)),
            apply_s=size.apply(trained) if trained else 0.0,
            buckets=_buckets(buffer, times, compress, members),
        )

    def computing_s(self, samples_N: Ints, pieces: int) -> tuple[Floats, Floats]:
        """Forward and backward seconds of each worker, (N,), its samples in so many pieces."""
        counts, which_N = np.unique(samples_N, return_inverse=True)
        used = np.minimum(counts, pieces)
        found = [
            np.where(counts > 0, one.fixed * used + one.each * counts, 0.0)[which_N]
            for one in (self.forward, self.backward)
        ]
        return found[0], found[1]


def _buckets(
    buffer: Flat, times: tuple[Affine, ...], compress: str, members: int
) -> tuple[Bucket, ...]:
    pieces = np.cumsum(cut_backward(times, 1, buffer.whole_after))
    made = []
    for number, summed in enumerate(of_step(buffer, compress)):
        early = number < len(buffer.whole_after) and pieces[-1] > 0
        whole_at = float(pieces[number] / pieces[-1]) if early else 1.0
        made.append(Bucket.of(summed, members, whole_at))
    return tuple(made)


#: Spans by kind, as a worker tells them: (from, to), absolute seconds.
Spans = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a collective that was taken: when it began, and what it is."""

    began_s: float
    phase: Phase


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A round.

    Attributes:
        began_N: each worker.
        computed_N: it has computed, which took it busy_N seconds.
        ended_N: it can go on.
        windows: of the sums, by group of workers that sum.
        passes: of pipelines, by (stage, pass).
    """

    began_N: Floats
    computed_N: Floats
    busy_N: Floats
    ended_N: Floats
    slow_NK: Floats
    windows: Sequence[Sequence[Window]] = ()
    passes: Mapping[Any, Any] = field(default_factory=dict)


class Rounds(ABC):
    """A kind of round.

    Attributes:
        steps: of it.
    """

    steps: int

    @abstractmethod
    def take(self, began_N: Floats, slow_NK: Floats, credit_N: Floats) -> Taken:
        """Take a round: from when each worker is able to, and how much slower it computes each of
        the steps; 0 for a step that it has done before.

        Args:
            credit_N: seconds of the sums that a predecessor has brought about, as what it put stays
                where it is.
        """

    @abstractmethod
    def spans(self, taken: Taken, rank: int) -> tuple[Spans, list[list[Any]]]:
        """What a worker tells of a round: its spans, and of pipelines its passes."""


def summed(
    ready: Sequence[Floats], phases: Sequence[Sequence[Phase]]
) -> tuple[float, list[Window]]:
    """Sum buckets one after another, each from when all of its group have it.

    While one's latencies pass, the lines carry the next one.

    Returns when all have all sums.

    Args:
        ready: of each bucket, when each member has it, (n,).
    """
    free_s, done_s = -np.inf, -np.inf
    windows: list[Window] = []
    for ready_n, row in zip(ready, phases, strict=True):
        began_s = at_s = max(free_s, float(ready_n.max()))
        for phase in row:
            windows.append(Window(at_s, phase))
            at_s += phase.length_s
        done_s = max(done_s, at_s)
        free_s = began_s + sum(phase.length_s - phase.late_s for phase in row)
    return done_s, windows


def of_windows(windows: Sequence[Window], began_s: float, done_s: float) -> Spans:
    """How a worker spends a sum: its lines, and the wait for messages that are not there yet.

    Args:
        began_s: when it had something to send.
        done_s: when it had the sum.
    """
    told: Spans = {}
    downloads: list[tuple[float, float]] = []
    for window in windows:
        phase, start_s = window.phase, window.began_s
        end_s = min(start_s + phase.length_s, done_s)
        if phase.up_s:
            told.setdefault("upload", []).append((start_s, min(start_s + phase.up_s, end_s)))
        if phase.down_s:
            stop_s = end_s - min(phase.late_s, phase.length_s - phase.down_s)
            downloads.append((max(start_s, stop_s - phase.down_s), stop_s))
    at_s, waits = began_s, []
    for start_s, stop_s in downloads:
        if start_s > at_s:
            waits.append((at_s, start_s))
        at_s = max(at_s, stop_s)
    if done_s > at_s:
        waits.append((at_s, done_s))
    told |= {"download": downloads} if downloads else {}
    return told | ({"wait": waits} if waits else {})


class LocalSteps(Rounds):
    """A round of local SGD: steps by oneself, then one sum of models and optimizers.

    Args:
        own_KN: seconds of each of the steps, the optimizer's included.
    """

    def __init__(
        self, own_KN: Floats, phases: Sequence[Phase], apply_s: float, over_s: float = 0.0
    ) -> None:
        self.steps = len(own_KN)
        self.own_NK = np.ascontiguousarray(own_KN.T)
        self._phases = phases
        self._apply_s = apply_s
        self._over_s = over_s

    def take(self, began_N: Floats, slow_NK: Floats, credit_N: Floats) -> Taken:
        busy_N = (self.own_NK * slow_NK).sum(axis=1)
        computed_N = began_N + busy_N
        windows: list[Window] = []
        end_N = computed_N
        if self._phases:
            done_s, windows = summed([computed_N - credit_N], [self._phases])
            end_N = np.maximum(computed_N, done_s)
        ended_N = end_N + self._apply_s + self._over_s
        return Taken(began_N, computed_N, busy_N, ended_N, slow_NK, (windows,))

    def spans(self, taken: Taken, rank: int) -> tuple[Spans, list[list[Any]]]:
        """Of the sum alone: steps have their own."""
        computed_s = float(taken.computed_N[rank])
        summed_s = float(taken.ended_N[rank]) - self._apply_s
        told = of_windows(taken.windows[0], computed_s, summed_s) if taken.windows[0] else {}
        return told | {"apply": [(summed_s, summed_s + self._apply_s)]}, []

    def own_steps(self, taken: Taken, rank: int) -> list[tuple[int, float, float]]:
        """The worker's steps of this attempt: (number within the round, from, to)."""
        at_s, told = float(taken.began_N[rank]), []
        for number in range(self.steps):
            seconds = float(self.own_NK[rank, number] * taken.slow_NK[rank, number])
            if seconds:
                told.append((number, at_s, at_s + seconds))
                at_s += seconds
        return told
