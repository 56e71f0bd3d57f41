"""How much a job's layers compute: floating-point operations of a forward pass, by torch's counter.

It counts what is multiplied and added in matrix products, convolutions and attention, a
multiply-add as two (so twice what many papers print). Everything else counts nothing: activations,
norms, pooling, the loss. On the meta device nothing is computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate
from torch.utils.flop_counter import FlopCounterMode

from dayfly.errors import RequestError, in_short
from dayfly.job import Job
from dayfly.planning.figures import Affine
from dayfly.runs.profiling.layers import Layers
from dayfly.training.forward import forward
from dayfly.training.randomness import DROPOUT, seeded


def layer_flops(job: Job, model: nn.Module, samples: Sequence[Any]) -> tuple[Affine, ...]:
    """FLOPs of each layer's forward pass for n samples; of a model that is no list, of all of it.

    model: on the meta device (`training.stages.build.build_skeleton`). samples: as for
    `layer_bytes`; n and 2n of them tell apart what grows with them. Raises RequestError if the
    model cannot be run there, and ValueError for one that is elsewhere.
    """
    if any(p.device.type != "meta" for p in model.parameters()):
        raise ValueError("FLOPs are counted without computing: build the model on the meta device")
    found = Layers.of(job, model)
    several = list(samples) if len(samples) > 1 else list(samples) * 2
    once, twice = (_counted(job, model, found, some) for some in (several, several * 2))
    each = [(two - one) / len(several) for one, two in zip(once, twice, strict=True)]
    return tuple(
        Affine(float(max(0.0, one - slope * len(several))), float(slope))
        for one, slope in zip(once, each, strict=True)
    )


def _counted(job: Job, model: nn.Module, found: Layers, samples: Sequence[Any]) -> list[int]:
    """Of each layer; what comes before the first counts to it, and the loss to the last."""
    batch = tree_map(
        lambda leaf: leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf,
        default_collate(list(samples)),
    )
    reached: list[int] = []
    counter = FlopCounterMode(display=False)

    def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        reached.append(counter.get_total_flops())

    with ExitStack() as stack:
        if found.listed:
            for module in dict.fromkeys(found.modules):
                stack.callback(module.register_forward_hook(leave).remove)
        stack.enter_context(seeded(DROPOUT, job.seed, 0))
        stack.enter_context(torch.device("meta"))
        stack.enter_context(counter)
        model.train()
        try:
            forward(job, model, batch)
        except Exception as error:
            raise RequestError(
                "the job's model cannot be run on torch's meta device, where tensors have no "
                f"values, so its FLOPs are not known ({in_short(error).rstrip('.')}): profile it "
                "on a platform that you can reach, or write the profile by hand"
            ) from error
    total = counter.get_total_flops()
    if not found.listed:
        return [total]
    if len(reached) != len(found.modules):
        raise RequestError(
            f"the job's model has {len(found.modules)} layers, but its forward applied "
            f"{len(reached)}: let layers() return those that forward applies, in their order"
        )
    ends = [*reached[:-1], total]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
