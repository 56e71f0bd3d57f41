"""What others on the same machine cost: caches and memory bandwidth are shared, limits or not.

A profile says how much more CPU time passes take beside neighbours that have so many cores
(`SizeProfile.crowd`, `crowd_cores`). With fewer cores at work beside it, a function loses less.
"""

from __future__ import annotations

from dataclasses import replace

from dayfly.planning.figures import Figure
from dayfly.planning.profile import SizeProfile


def slowdown(crowd: float, crowd_cores: float, others_cores: float) -> float:
    """By how much computing takes longer while others compute on so many cores.

    crowd: measured beside neighbours on `crowd_cores`; 0: it was not measured. In between it grows
    evenly; more cores than were measured are taken to cost no more.
    """
    if crowd_cores <= 0:
        return 1.0
    return 1 + (crowd - 1) * min(1.0, others_cores / crowd_cores)


def beside(size: SizeProfile, others_cores: float) -> SizeProfile:
    """Functions of this size while others compute on so many cores: passes, reading samples, the
    optimizer's step and what else a step takes are slower by `slowdown`."""
    factor = slowdown(size.crowd.value, size.crowd_cores, others_cores)
    if factor == 1:
        return size
    step = size.step_s
    return replace(
        size,
        forward=tuple(line.times(factor) for line in size.forward),
        backward=tuple(line.times(factor) for line in size.backward),
        data=size.data.times(factor),
        apply=size.apply.times(factor),
        step_s=Figure(step.value * factor, step.low * factor, step.high * factor, step.count),
    )
