"""Steps under a CPU limit, by closed forms: what waited computes at full speed for a while.

    s, P    share of a core, given out anew each period
    v       speed of a thread while its neighbours compute, too; 1 with a CPU of its own

Work of w CPU seconds takes w/s in the long run. But a function that waited has all CPU time of a
period, sP, and uses it at speed v. So work that begins anywhere in a period takes, on average,

    burst    max(w/v, w/s - (1 - s/v) P)

    share 1/4, P = 20 ms   |......####.|####...............|#           9 ms: 25 ms, and not 36

A step waits for its sums at least once, so its passes and what surrounds them are one burst:

    step     max(C, E - (1 - s/v) (min(B, P) + b))

    E    all work of the step at share s, and its messages: what the other closed forms add up
    B    of that, passes, the optimizer's step and what surrounds it, all at share s
    b    of that, what begins sums
    C    all work of a worker at share s, its messages' too: no function has more CPU time than its
         share for long

`wire.processor` has the same in virtual time, and `tests/planning/test_closed_form.py` how far both
are apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from dayfly.elementwise import ceiling, least, most
from dayfly.planning.profile import SizeProfile


@dataclass(frozen=True, slots=True)
class Bursts:
    """What a CPU limit does to steps of functions of one size; for an array of numbers of
    functions, each attribute is an array.

    Attributes:
        saved: part of a burst's seconds that full speed saves, 1 - s/v.
        period_s: seconds after which they get their share anew; 0: it is spread evenly.
        slowed: by how much work takes longer as all of them share the machine's cores.
    """

    saved: float
    period_s: float
    slowed: float

    @classmethod
    def of(cls, size: SizeProfile, workers: int, cores: float) -> Self:
        """Returns that of so many functions.

        Args:
            size: of them.
            workers: how many there are.
            cores: of the machine that they share; infinite: each has its own.
        """
        share: Any = math.inf if size.cpu_cores is None else size.cpu_cores
        speed: Any = 1 / most(1, ceiling(workers / cores))
        limited = share < 1 and size.cpu_period_s > 0
        return cls(
            saved=most(0.0, 1 - share / speed) if limited else 0.0,
            period_s=size.cpu_period_s,
            slowed=size.speed / least(share, cores / workers),
        )

    def step_s(self, even_s: float, burst_s: float, begun_s: float, work_s: float) -> Any:
        """Returns the seconds of a step.

        Args:
            even_s: that it would take with the share spread evenly, E.
            burst_s: of that, of passes and what surrounds them, B.
            begun_s: of that, in which sums begin that are waited for, b.
            work_s: of all work of a worker, C.
        """
        saved_s = self.saved * (least(burst_s, self.period_s) + begun_s)
        return most(self.slowed * work_s, even_s - saved_s)
