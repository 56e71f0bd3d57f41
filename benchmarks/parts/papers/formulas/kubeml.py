"""KubeML's comparison of costs (section 4.8, tables 4.3 to 4.5), Lambda's price read in two ways.

Its lists have Lambda's price for each 100 ms, as AWS published it then, and multiply it by seconds.
So Lambda costs ten times what is printed. `Reading` says which one is meant:

    AS_PRINTED   the figure is taken for a price by the second, as the thesis does
    PER_100_MS   the figure is what it is
"""

from __future__ import annotations

from enum import Enum


class Reading(Enum):
    """For how many seconds a duration's price is meant."""

    AS_PRINTED = 1.0
    PER_100_MS = 0.1


def functions_usd(
    functions: int,
    run_s: float,
    invocations: int,
    *,
    usd_per_duration: float,
    usd_per_invocation: float,
    reading: Reading,
) -> tuple[float, float]:
    """What functions cost: for their time, and for invocations. The tables print the first alone.

    All functions run for run_s altogether, one invocation each an epoch.
    """
    billed_s = functions * run_s
    return billed_s / reading.value * usd_per_duration, invocations * usd_per_invocation


def cluster_usd(
    run_s: float,
    *,
    machine_usd_per_hour: float,
    gpus: int,
    gpu_usd_per_hour: float,
    cluster_usd_per_hour: float,
) -> float:
    """What one machine with its GPUs costs, in a cluster that costs by the hour, too."""
    hour_usd = machine_usd_per_hour + gpus * gpu_usd_per_hour + cluster_usd_per_hour
    return hour_usd * run_s / 3600
