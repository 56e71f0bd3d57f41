"""How long a worker's task may become: it has to fit into a payload."""

from __future__ import annotations

from dataclasses import replace

from dayfly.life.commits import Checkpoint, Part
from dayfly.runs.allotment import check_payload
from dayfly.runs.task import Task


def check_task(task: Task, payload_bytes: int | None) -> None:
    """Raise RequestError if a worker's task may become longer than a payload can be.

    task: as it is now. What it may become: that of the last worker, at the last step, with a
    checkpoint that all workers wrote.
    """
    check_payload(_largest(task).dump(), payload_bytes, "use fewer workers")


def _largest(task: Task) -> Task:
    step, size, digest = 10**9 - 1, 10**12 - 1, "f" * 32
    ranks = range(task.world_size)
    kinds = ("part",) if task.compress == "none" else ("part", "own")  # the residuals
    # Of a model in stages each has a tree, and longer names.
    cut = "" if task.pipelining is None else f"cut-0.stage-{task.world_size}-of-{task.world_size}."
    folder = f"checkpoint/{step}/{cut}"
    names = [f"{folder}{k}-{rank}-of-{task.world_size}" for k in kinds for rank in ranks]
    trees = [f"{folder}tree.json"] * task.writer.stages
    parts = tuple(Part(name, size, digest) for name in (*names, *trees))
    return replace(
        task,
        rank=task.world_size - 1,
        attempt=10**4 - 1,
        checkpoint=Checkpoint(step, parts),
        trimmed_step=step,
        checkpoint_age_s=123456.78901234567,
    )
