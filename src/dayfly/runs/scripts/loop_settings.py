"""What `dayfly.parallel` is asked for, as the settings of a run of a job."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from dayfly.errors import RequestError
from dayfly.runs.scripts.process import ScriptProcess
from dayfly.runs.settings import Settings
from dayfly.training.stages.layers import check_cut, even_cut, layers_of
from dayfly.wire.collectives import default_collective


def loop_settings(
    process: ScriptProcess | None,
    model: nn.Module,
    stages: int,
    *,
    cut: tuple[int, ...],
    schedule: str,
    **others: Any,
) -> Settings:
    """Returns the settings of a run of a job that trains alike.

    Args:
        process: that runs the script; None: plain Python does.
        model: of the script.
        stages: used where no cut is given.
        cut: numbers of the layers that begin a stage.
        schedule: of a cut model's micro-batches.
        others: fields of `Settings`.

    Raises:
        RequestError: there can be none.
    """
    if process is None and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise RequestError(
            "dayfly.parallel works under dayfly run, and other processes were started by something "
            "else: dayfly run --workers N SCRIPT"
        )
    if stages < 1 or (cut and stages != 1):
        raise RequestError(f"dayfly.parallel(stages={stages}): give stages from 1, or cut")
    if stages > 1:
        sizes = [sum(p.nbytes for p in layer.parameters()) for layer in layers_of(model)]
        if stages > len(sizes):
            raise RequestError(
                f"dayfly.parallel(stages={stages}): the model has {len(sizes)} layers: give as "
                "many stages at most"
            )
        cut = even_cut(sizes, stages)
    if cut:
        check_cut(cut, len(layers_of(model)))
    if process is None:
        return Settings(**others)  # one process computes all layers
    channel = process.channel
    usual = default_collective(
        sums=channel.abilities.sums,
        direct=channel.abilities.direct,
        immediate=channel.immediate,
    )
    task = process.task
    staged: dict[str, Any] = {"cut": cut, "schedule": schedule} if cut else {}
    if cut and task.world_size % (len(cut) + 1):
        raise RequestError(
            f"dayfly.parallel: {task.world_size} functions are not {len(cut) + 1} stages times any "
            "number of replicas: give --workers a multiple of the stages"
        )
    return Settings(
        workers=task.world_size, channel=task.channel, collective=usual, **staged, **others
    )
