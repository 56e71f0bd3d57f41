"""What all ranks of a loop begin with, as rank 0 has it: weights, generators, registered state."""

from __future__ import annotations

import json

from torch import nn

from dayfly import dataclass_json
from dayfly.life import checkpoints
from dayfly.life.checkpoints import Writer
from dayfly.life.commits import Checkpoint
from dayfly.runs.scripts.position import Position
from dayfly.runs.scripts.process import ScriptProcess
from dayfly.training.state import model_tensors
from dayfly.wire.execution import wait_patiently
from dayfly.wire.keys import EVERYONE, Key

_BEGIN = Key(0, "first-state", 0, EVERYONE)


def first_state(process: ScriptProcess, model: nn.Module, position: Position) -> Checkpoint:
    """Returns what rank 0 begins with, which it leaves in the store for all.

    Args:
        process: of any rank.
        model: of rank 0, with its first weights.
        position: of rank 0's loop.
    """
    channel, task = process.channel, process.task
    if task.rank == 0 and not channel.stored([_BEGIN]):
        loop, tensors = position.dump()
        own = {f"model.{name}": one for name, one in model_tensors(model).items()}
        share = checkpoints.share_of(Writer(), {**own, **tensors})
        parts = checkpoints.write_share(process.store, 0, Writer(), {"loop": loop}, share)
        told = json.dumps(dataclass_json.dump(Checkpoint(0, parts))).encode()
        channel.put_bytes(_BEGIN, told)
    raw = wait_patiently(
        lambda some_s: channel.get_bytes(_BEGIN, some_s),
        task.wait_timeout_s,
        lambda: None,
        f"rank {task.rank} for what rank 0 begins with in dayfly.parallel",
    )
    return dataclass_json.read(Checkpoint, json.loads(raw), "rank 0's first state")


def same_tensors(model: nn.Module) -> dict[str, str]:
    """The name by which `model_tensors` has each tensor; of shared ones, of each of their names."""
    names: dict[int, str] = {}
    found: dict[str, str] = {}
    for named in (
        model.named_parameters(remove_duplicate=False),
        model.named_buffers(remove_duplicate=False),
    ):
        for name, tensor in named:
            found[name] = names.setdefault(id(tensor), name)
    return found
