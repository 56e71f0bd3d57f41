"""What a worker computes, in CPU seconds, as operations of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

from dayfly.planning.figures import Affine, Transfer
from dayfly.planning.profile import SizeProfile
from dayfly.wire.processor import Processor
from dayfly.wire.schedule import CompiledSchedule, Kind, Op, Schedule, Span, Work
from dayfly.wire.shaping import PIECE_S
from dayfly.wire.streams import Direction

#: Phases of ranks' CPU periods lie apart by this share of one, so that all are as far from each
#: other as can be, however many there are: the golden ratio's.
APART = 0.6180339887498949


@lru_cache(maxsize=256)
def chain(length: int) -> CompiledSchedule:
    """So many COMPUTE operations, one after another, whose work is counted from 0."""
    return CompiledSchedule(
        Schedule(
            tuple(
                Op(Kind.COMPUTE, Span(0, 0), work=Work("part", n), after=(n - 1,) if n else ())
                for n in range(length)
            )
        )
    )


def taking(seconds: Sequence[float]) -> Callable[[Work], float]:
    """What the operations of a `chain` take."""
    return lambda work: seconds[work.micro_batch]


def processor(size: SizeProfile, rank: int) -> Processor:
    """A function's share of the CPU; a rank's periods begin at moments of their own."""
    if size.cpu_cores is None:
        return Processor()
    phase_s = size.cpu_period_s * (rank * APART % 1.0)
    return Processor(size.cpu_cores, size.cpu_period_s, phase_s)


def direction(size: SizeProfile, transfer: Transfer) -> Direction:
    """One direction of a function's way to the store.

    Where nobody measured what a message takes of the CPU, it is what FuncPipe's beta says: while it
    is under way, computing gets 1/beta of what it had.
    """
    cpu_s, cpu_s_per_byte = transfer.cpu_s, transfer.cpu_s_per_byte
    if not (cpu_s or cpu_s_per_byte) and size.beta.value > 1:
        lost = (1 - 1 / size.beta.value) * size.speed
        cpu_s_per_byte = lost / transfer.peak_bytes_per_s.value
    return Direction(
        occupied_s=transfer.occupied_s,
        latency_s=transfer.latency_s.value,
        piece_s=PIECE_S,
        cpu_s=cpu_s,
        cpu_s_per_byte=cpu_s_per_byte,
    )


def passed(times: Sequence[Affine], samples: float) -> float:
    """Seconds of a pass of so many samples through these layers."""
    return sum(time(samples) for time in times)


def cut_backward(times: Sequence[Affine], samples: float, at: Sequence[float]) -> list[float]:
    """Seconds of a backward pass, cut where so many layers are over, from the last one on."""
    layers = [time(samples) for time in reversed(times)]
    until = []
    for over in at:
        whole = min(int(over), len(layers))
        rest = (over - whole) * layers[whole] if whole < len(layers) else 0.0
        until.append(sum(layers[:whole]) + rest)
    edges = [0.0, *until, sum(layers)]
    return [max(0.0, after - before) for before, after in pairwise(edges)]
