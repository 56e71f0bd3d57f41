"""Spot machines, which may be taken away: what that adds to a run, on average. Pure.

    n     workers, each on a machine of its own
    r     interruptions of one machine a second, as its platform's rows have them
    T     seconds of the run if nothing happens
    D     seconds by which an interruption delays it: another machine starts, and what was done
          since the last checkpoint is done again, half of the time between two of them on average

    T' = T + n r T' D = T / (1 - n r D)

All workers wait meanwhile, so all of them are billed for T'. Where a worker catches up alone from
the channel, it repeats less than that: T' is an upper bound there.
"""

from __future__ import annotations

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.elementwise import largest, least
from dayfly.errors import RequestError

#: 730 hours, as prices by the month count it.
_MONTH_S = 730 * 3600.0


def per_s(platform: FunctionPlatform) -> float:
    """Returns the interruptions of one worker a second; 0: its machine is never taken away."""
    return (platform.spot_interruptions_per_month or 0.0) / _MONTH_S


def interrupted_s(
    run_s: float,
    workers: int,
    platform: FunctionPlatform,
    *,
    start_s: float,
    checkpoint_every_s: float,
) -> float:
    """Returns the seconds of a run with the interruptions that are to be expected; elementwise.

    Args:
        run_s: of the run if nothing happens.
        workers: of the run.
        platform: where they are.
        start_s: from the request for another machine to the first step on it.
        checkpoint_every_s: time between two checkpoints.

    Raises:
        RequestError: there is no end to be expected, as workers are interrupted faster than they
            start again.
    """
    delay_s: float = start_s + least(checkpoint_every_s, run_s) / 2
    lost: float = workers * per_s(platform) * delay_s
    if largest(lost) >= 1:
        raise RequestError(
            f"{workers} workers on {platform.name} are interrupted faster than they start again, "
            f"which takes {largest(delay_s):.0f} s: take fewer"
        )
    return run_s / (1 - lost)
