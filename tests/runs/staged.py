"""Small cut jobs for tests of runs: `small.model` in three stages, and what of it may be redone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import dayfly
from dayfly.life.faults import Fault
from tests.runs import small

#: Stages: a linear layer | BatchNorm and ReLU | dropout and a linear layer.
CUT = (1, 3)
STAGES, MICRO_BATCHES = 3, 4
SETTINGS: dict[str, Any] = {
    "cut": CUT,
    "micro_batches": MICRO_BATCHES,
    "wait_timeout_s": 60.0,
    **small.SETTINGS,
}

#: A run of `small.job` in so many replicas, with nothing in its way.
Undisturbed = Callable[[int], dayfly.Run]

#: Places of a step that the worker of any stage passes.
IN_EVERY_STEP = (
    "compute",
    "pipe-get",
    "forward-0",
    "pipe-compute",
    "forward-2",
    "pipe-put-part",
    "backward-1",
    "backward-3",
    "computed",
    "reduced",
    "applied",
)
#: As well, where a stage has several replicas: between their sums.
IN_SUMS = ("pipe-fetch", "pipe-reduce", "pipe-put-sum", "pipe-drop")
#: As well, in the last step of an epoch.
AT_EPOCH_ENDS = ("eval-0-0", "val-put-part", "val-get", "epoch")
#: As well, of the worker that sums for all.
AT_EPOCH_ENDS_OF_THE_FIRST = ("eval-0-0", "val-reduce", "val-put-sum", "epoch")
#: As well, of the worker that computes the metrics: it reads what it kept before it died.
AT_EPOCH_ENDS_OF_THE_ROOT = ("gathered-0", "measured")


def train(data: Path, run_dir: Path, replicas: int, **changes: Any) -> dayfly.Run:
    """`small.job` in its stages."""
    given = {"replicas": replicas, **SETTINGS, **changes}
    return dayfly.train(small.job(data), run_dir=run_dir, **given)


def checkpoint_steps(run: dayfly.Run) -> list[int]:
    """Before which checkpoints were made."""
    found = small.events(run.directory, "coordinator")
    return [event["step"] for event in found if event["kind"] == "checkpoint"]


def faults_everywhere(replicas: int, checkpoints: list[int]) -> list[Fault]:
    """A death of every stage at every place, of its replicas in turn, in steps far and wide."""
    steps = cycle(range(1, small.STEPS, 2))
    ends = cycle(range(small.STEPS_AN_EPOCH - 1, small.STEPS, small.STEPS_AN_EPOCH))
    written = cycle(checkpoints[:-1])
    in_steps = IN_EVERY_STEP + (IN_SUMS if replicas > 1 else ())
    found = []
    for stage in range(STAGES):
        turn = cycle(stage * replicas + replica for replica in range(replicas))
        for place in in_steps:
            found.append(Fault(next(turn), next(steps), place))
        for place in AT_EPOCH_ENDS:
            rank = next(turn)
            if rank == 0:
                place = AT_EPOCH_ENDS_OF_THE_FIRST[AT_EPOCH_ENDS.index(place)]
            found.append(Fault(rank, next(ends), place))
        for place in small.AT_CHECKPOINTS:
            found.append(Fault(next(turn), next(written), place))
    root = (STAGES - 1) * replicas
    found += [Fault(root, next(ends), place) for place in AT_EPOCH_ENDS_OF_THE_ROOT]
    return found


def dealt(faults: list[Fault], parts: int) -> Iterator[list[Fault]]:
    """In so many parts, each with some of all stages and places."""
    return (faults[part::parts] for part in range(parts))


def redone_by_peers(run: dayfly.Run, faults: list[Fault], replicas: int) -> set[tuple[int, int]]:
    """(worker, step) that were computed twice, and did not have to be.

    With replicas, a successor finds the sums of all steps but the one of the death; without, it
    computes again what came since the checkpoint. Nobody else computes anything again.
    """
    redone = small.recomputed(run.directory, STAGES * replicas)
    if replicas > 1:
        return redone - small.died_in(faults)
    died = {fault.worker for fault in faults}
    return {(rank, step) for rank, step in redone if rank not in died}
