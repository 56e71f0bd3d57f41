"""Compression of gradients: one file a method. What `--compress` takes: `specs.compression`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dayfly.errors import RequestError
from dayfly.specs.compression import Compression
from dayfly.wire.codec import CODECS
from dayfly.wire.schedule import Schedule

if TYPE_CHECKING:
    import torch

    from dayfly.training.compression.exchange import Exchange
    from dayfly.training.flat import FlatBuffer


def check_rates(asked: Compression, optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Raise RequestError if updates are to be compared, and an optimizer has no learning rate."""
    if asked.method != "significance":
        return
    for optimizer in optimizers:
        if any(group.get("lr") is None for group in optimizer.param_groups):
            raise RequestError(
                "--compress significance:V goes by the optimizer's learning rates, of which "
                f"{type(optimizer).__name__} has none: use --compress topk:FRACTION"
            )


def exchange_of(
    asked: Compression,
    flat: FlatBuffer,
    seed: int,
    schedule: Callable[[torch.Tensor], Schedule],
    optimizer: torch.optim.Optimizer,
) -> Exchange:
    """Returns what a worker sums of a flat buffer, whose last bucket is `apart` if any is asked.

    Args:
        asked: how gradients are made smaller.
        flat: the buffer.
        seed: the job's.
        schedule: this rank's, to sum buffers like the one given.
        optimizer: of the buffer's parameters; its learning rates are read in each step.
    """
    # Settings need names alone, and plans are made without torch.
    from dayfly.training.compression.exchange import Exchange, Feedback
    from dayfly.training.compression.powersgd import PowerSgd
    from dayfly.training.compression.significance import Significance
    from dayfly.training.compression.topk import TopK

    match asked.method:
        case "none":
            return Exchange(flat)
        case "bf16":
            return Exchange(flat, CODECS["bf16"]())
        case "int8" | "int4":
            return Feedback(flat, CODECS[asked.method](), schedule)
        case "powersgd":
            return PowerSgd(flat, asked.rank, seed)
        case "topk":
            return TopK(flat, asked.fraction, exact=asked.exact)
        case "significance":
            return Significance(flat, asked.threshold, optimizer)
