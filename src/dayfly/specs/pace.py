"""When a worker does what is no training: how often it reports, looks up and beats, and hands over.

Rules of time and money alone, which those who run and those who predict go by alike.

    a second of the worker    1769 MiB on Lambda: 2.88e-5 dollars
    of that, reports          0.5%                            a put of 5e-6 dollars each 35 s
             looks            0.5%                            a get of 4e-7 dollars each 2.8 s
    beside it, heartbeats     1%, while a peer waits for it   a put of 5e-6 dollars each 17.4 s
    eight such workers        the first three look by turns:  one of them each second
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.elementwise import least, most
from dayfly.specs.functions import FunctionSpec

#: Least time between two messages of records that are not urgent, in seconds: in memory, and over a
#: link.
REPORT_EVERY_S = 0.3
REPORT_EVERY_OVER_LINK_S = 1.0
#: Least time between two looks for a wish to stop, in seconds, of all workers together: in memory,
#: and over a link.
LOOK_FOR_STOP_S = 0.1
LOOK_FOR_STOP_OVER_LINK_S = 1.0
#: What paid requests may cost, as shares of the worker's price: its reports, and its looks.
REPORTS_SHARE = 0.005
LOOKS_SHARE = 0.005
#: What heartbeats may cost, as a share of the worker's price; and the least and the longest time
#: between two of them, in seconds: where requests are free, and whatever they cost.
HEARTBEATS_SHARE = 0.01
HEARTBEAT_LEAST_S, HEARTBEAT_MOST_S = 5.0, 60.0
#: How late a heartbeat may come, in seconds: its way through the channel, of a busy worker.
HEARTBEAT_LATE_S = 5.0
#: Seconds to end in order that do not depend on the job.
SPARE_S = 0.5
#: A worker at a checkpoint hands over if less than this share of its lifetime is left, or this many
#: times what must be left at least: workers that started at about the same time hand over together,
#: at one checkpoint, and their peers wait for their successors once.
LATE_SHARE = 0.25
LATE_TIMES = 1.5
#: The shortest lifetime whose end successors are there for, in seconds: of shorter ones, most would
#: pass with starting them.
SHORTEST_RENEWED_S = 10.0
#: Successors start so much earlier than they have to: this many times their start, and seconds.
WARM_TIMES, WARM_SPARE_S = 1.5, 1.0
#: Nor does it hand over before this share of its lifetime has passed, whatever steps took.
MOST_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often the workers of a run report, and look for a wish to stop.

    Args:
        report_s: least time between two messages of one worker's records that are not urgent.
        look_s: least time between two looks of one worker.
        lookers: ranks 0 to lookers - 1 look, by turns. One that finds the wish tells all others by
            the sum of the gradients.
        heartbeat_s: time between two heartbeats of a worker for which a peer waits; None: there are
            none.
    """

    report_s: float = REPORT_EVERY_S
    look_s: float = LOOK_FOR_STOP_S
    lookers: int = 1
    heartbeat_s: float | None = None

    @classmethod
    def of(
        cls,
        functions: Iterable[FunctionSpec],
        platform: FunctionPlatform,
        store: StoreFacts | None,
        *,
        workers: int,
        immediate: bool,
        heartbeats: bool = False,
    ) -> Self:
        """Returns the pace at which all of this costs at most its share of each worker.

        Args:
            functions: what kinds of functions the workers are.
            platform: whose prices they have.
            store: whose prices their messages have; None: they cost nothing.
            workers: number of them; elementwise without heartbeats.
            immediate: whether messages are in memory, so that nothing waits for a link.
            heartbeats: whether silence tells something of these workers that their platform does
                not. Of messages in memory it never does.
        """
        if immediate:
            return cls()
        report_s = look_s = 0.0
        usd_per_s = math.inf
        if store is not None:
            usd_per_s = min(platform.usd_per_s(one.memory_mib, one.gpu_share) for one in functions)
            report_s = (store.usd_per_put or 0.0) / (REPORTS_SHARE * usd_per_s)
            look_s = (store.usd_per_get or 0.0) / (LOOKS_SHARE * usd_per_s)
        report_s = max(report_s, REPORT_EVERY_OVER_LINK_S)
        lookers = least(workers, max(1, math.ceil(look_s / LOOK_FOR_STOP_OVER_LINK_S)))
        look_s = most(look_s, lookers * LOOK_FOR_STOP_OVER_LINK_S)
        every_s = None
        if heartbeats and workers > 1:
            put_usd = 0.0 if store is None else store.usd_per_put or 0.0
            every_s = heartbeat_s(put_usd, usd_per_s)
        return cls(report_s=report_s, look_s=look_s, lookers=lookers, heartbeat_s=every_s)

    def first_look_s(self, rank: int) -> float:
        """When a worker looks first, in seconds after its start; infinite: it never looks."""
        return rank * self.look_s / self.lookers if rank < self.lookers else math.inf


def heartbeat_s(usd_per_put: float, usd_per_s: float) -> float:
    """Returns the time between two heartbeats that cost at most `HEARTBEATS_SHARE` of a worker.

    A function so cheap that this is more than `HEARTBEAT_MOST_S` pays a larger share: over S3, one
    of less than 512 MiB on Lambda.

    Args:
        usd_per_put: price of a heartbeat: one put, in dollars; 0: free.
        usd_per_s: price of a second of the worker, in dollars.

    Returns:
        Seconds, from `HEARTBEAT_LEAST_S` to `HEARTBEAT_MOST_S`.
    """
    if usd_per_put <= HEARTBEATS_SHARE * usd_per_s * HEARTBEAT_LEAST_S:
        return HEARTBEAT_LEAST_S
    if usd_per_put >= HEARTBEATS_SHARE * usd_per_s * HEARTBEAT_MOST_S:
        return HEARTBEAT_MOST_S
    return usd_per_put / (HEARTBEATS_SHARE * usd_per_s)


def end_in_order_s(longest_step_s: float, checkpoint_s: float, lifetime_s: float) -> float:
    """What must be left of a lifetime for another step and an end in order."""
    needed = 2 * longest_step_s + 2 * checkpoint_s + SPARE_S
    # A step that waited long for a peer must not have every later one handed over.
    return min(needed, MOST_SHARE * lifetime_s)


def warm_ahead_s(start_s: float, hears_s: float, end_s: float) -> float:
    """Returns how long before the end of a lifetime successors start, so that they are warm then.

    Args:
        start_s: of a successor, until it is warm.
        hears_s: until a worker hears that it is to end.
        end_s: of a worker, in order: see `end_in_order_s`.
    """
    return WARM_TIMES * start_s + hears_s + WARM_SPARE_S + end_s
