"""What the curves and the seconds come to: epochs, seconds and dollars to the target accuracy.

target of a seed      SHARE of bsp's plateau, with the same seed, on the first number of workers
epochs of a seed      the first whose accuracy is at least the target; none, if there is none
seconds of a seed     epochs x median seconds of an epoch behind the bucket
faster, of a seed     DDP's seconds / the way's, on as many workers
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.parts.accuracy.capped import Took
from benchmarks.parts.accuracy.curves import Curve
from benchmarks.parts.accuracy.ways import DDP, Way
from benchmarks.parts.papers.rows import platform
from benchmarks.parts.spread import spread
from dayfly.catalogue.metering import MeteredInvocation, bill

Json = dict[str, Any]
SHARE = 0.99
#: Prices of functions, of the memory that comes with one vCPU, and of machines for as many vCPUs.
FUNCTIONS, MACHINES = "aws-lambda", "vm-m5-large"


def targets(of_bsp: Sequence[Curve]) -> list[float]:
    """Returns the target accuracy of each seed."""
    return [SHARE * one.plateau for one in of_bsp]


def rows(
    curves: Mapping[Way, Sequence[Curve]],
    target_accuracies: Sequence[float],
    took: Mapping[str, Sequence[Took]],
    workers: int,
) -> list[Json]:
    """Returns a row a way.

    Args:
        curves: of each way, by seed; DDP is one of them.
        target_accuracies: by seed.
        took: an epoch, by way and round; empty: it was not measured.
        workers: on which all of them were.
    """
    made = []
    epoch_s = {name: median(one.epoch_s for one in some) for name, some in took.items()}
    plain = [one.reached(t) for one, t in zip(curves[DDP], target_accuracies, strict=True)]
    for way, of_seeds in curves.items():
        reached = [one.reached(t) for one, t in zip(of_seeds, target_accuracies, strict=True)]
        came = [(ours, theirs) for ours, theirs in zip(reached, plain, strict=True) if ours]
        row: Json = {
            "way": way.name,
            "k": way.k,
            "workers": workers,
            "seeds": len(of_seeds),
            "reached": len(came),
            "target": median(target_accuracies),
            "epochs_by_seed": reached,
            "accuracies": [median(each) for each in zip(*_accuracies(of_seeds), strict=True)],
            **spread("best", [one.best for one in of_seeds]),
        }
        if came:
            row |= spread("epochs", [ours for ours, _ in came])
        if way.name in epoch_s:
            some = took[way.name]
            row |= spread("epoch_s", [one.epoch_s for one in some])
            row["mb"] = median(one.mb for one in some)
            row["epoch_ratios"] = [
                theirs.epoch_s / ours.epoch_s
                for ours, theirs in zip(some, took[DDP.name], strict=True)
            ]
            if came:
                row |= spread("seconds", [ours * epoch_s[way.name] for ours, _ in came])
                row["machines_usd"] = machines_usd(workers, row["seconds"])
                if way.settings is not None:  # functions cannot reach each other, as gloo has to
                    row["functions_usd"] = functions_usd(workers, row["seconds"])
            both = [(ours, theirs) for ours, theirs in came if theirs]
            if both:
                ratio = epoch_s[DDP.name] / epoch_s[way.name]
                row |= spread("faster", [theirs / ours * ratio for ours, theirs in both])
        made.append(row)
    return made


def functions_usd(workers: int, run_s: float) -> float:
    """Returns the bill of so many functions, each invoked once, that run so many seconds."""
    used = [
        MeteredInvocation(
            function=f"worker-{rank}",
            attempt=0,
            outcome="returned",
            memory_mib=None,
            init_s=0.0,
            run_s=run_s,
        )
        for rank in range(workers)
    ]
    return bill(used, platform(FUNCTIONS)).cost_usd


def machines_usd(workers: int, run_s: float) -> float:
    """Returns what machines with a vCPU for each worker cost in so many seconds, from the first."""
    machine = platform(MACHINES)
    assert machine.machine_vcpus is not None, "it is a machine"
    return math.ceil(workers / machine.machine_vcpus) * machine.usd_per_s(None) * run_s


def _accuracies(curves: Sequence[Curve]) -> list[list[float]]:
    return [one.accuracies for one in curves]
