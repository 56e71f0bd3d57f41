"""Small cut jobs for tests of runs: `small.model` in three stages, and what of it may be redone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import dayfly
from dayfly.life.faults import Fault
from dayfly.runs.stage_checks import Replicas
from dayfly.wire.pipelines.flow import Flow
from dayfly.wire.pipelines.step import Layout
from tests.runs import small

#: Blocks of a validation.
BLOCKS = 2
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
Undisturbed = Callable[[Replicas], dayfly.Run]

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


def layout_of(replicas: Replicas) -> Layout:
    """Of the job's stages."""
    return Layout(STAGES, replicas)


def micro_batches(replicas: Replicas) -> int:
    """Of a replica, of the stage with the most: so few that BatchNorm sees two samples at once."""
    return MICRO_BATCHES if layout_of(replicas).even else 2


def train(data: Path, run_dir: Path, replicas: Replicas, **changes: Any) -> dayfly.Run:
    """`small.job` in its stages."""
    few = {"micro_batches": micro_batches(replicas)}
    given = {"replicas": replicas, **SETTINGS, **few, **changes}
    return dayfly.train(small.job(data), run_dir=run_dir, **given)


def checkpoint_steps(run: dayfly.Run) -> list[int]:
    """Before which checkpoints were made."""
    found = small.events(run.directory, "coordinator")
    return [event["step"] for event in found if event["kind"] == "checkpoint"]


def faults_everywhere(replicas: Replicas, checkpoints: list[int]) -> list[Fault]:
    """A death of every stage at every place, of its replicas in turn, in steps far and wide."""
    steps = cycle(range(1, small.STEPS, 2))
    ends = cycle(range(small.STEPS_AN_EPOCH - 1, small.STEPS, small.STEPS_AN_EPOCH))
    written = cycle(checkpoints[:-1])
    layout = layout_of(replicas)
    flow = Flow(layout, micro_batches(replicas))
    found = []
    for stage in range(STAGES):
        several = layout.replicas_of(stage) > 1
        turn = cycle(layout.stage_ranks(stage))
        for place in IN_EVERY_STEP + (IN_SUMS if several else ()):
            rank = next(turn)
            passed = flow.passing(small.BATCH, layout.stage_rank(rank)).micros
            what, _, nth = place.partition("-")
            if nth.isdecimal():  # of the rank's own
                place = f"{what}-{passed[min(int(nth), len(passed) - 1)].number}"
            found.append(Fault(rank, next(steps), place))
        for place in AT_EPOCH_ENDS:
            rank = next(turn)
            if rank == 0:
                place = AT_EPOCH_ENDS_OF_THE_FIRST[AT_EPOCH_ENDS.index(place)]
            if place.startswith("eval") and not layout.even:
                rank, block = next(
                    (rank, blocks.start)
                    for rank in layout.stage_ranks(stage)
                    if (blocks := flow.blocks(BLOCKS, layout.stage_rank(rank)))
                )
                place = f"eval-0-{block}"
            found.append(Fault(rank, next(ends), place))
        for place in small.AT_CHECKPOINTS:
            found.append(Fault(next(turn), next(written), place))
    root = layout.stage_ranks(STAGES - 1)[-1]
    found += [Fault(root, next(ends), place) for place in AT_EPOCH_ENDS_OF_THE_ROOT]
    return found


def dealt(faults: list[Fault], parts: int) -> Iterator[list[Fault]]:
    """In so many parts, each with some of all stages and places."""
    return (faults[part::parts] for part in range(parts))


def redone_by_peers(
    run: dayfly.Run, faults: list[Fault], replicas: Replicas
) -> set[tuple[int, int]]:
    """(worker, step) that were computed twice, and did not have to be.

    Of a stage with several replicas, a successor finds the sums of all steps but the one of the
    death; of one with a single replica, it computes again what came since the checkpoint. Nobody
    else computes anything again.
    """
    layout = layout_of(replicas)
    died, at = {fault.worker for fault in faults}, small.died_in(faults)

    def had_to(rank: int, step: int) -> bool:
        alone = layout.replicas_of(layout.stage_rank(rank).stage) == 1
        return rank in died if alone else (rank, step) in at

    redone = small.recomputed(run.directory, layout.world_size)
    return {one for one in redone if not had_to(*one)}
