"""Mixed precision: types of forward passes and losses, and the loss scale of fp16.

    loss x scale | backward | summed over workers | / scale | all finite?  step; in time: scale x 2
                                                            | else         no step, scale / 2

Weights, gradients and the optimizer's state stay as they are, mostly float32; torch's autocast
chooses the type of each operation. Gradients are checked after they are summed over all workers, so
all workers skip the same steps. The scale is a power of two: multiplying by it rounds nothing.
(Micikevicius et al., Mixed Precision Training, section 3.2; torch.amp.GradScaler.)
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from dayfly.training.precisions import BF16, FP16, FP32

_TYPES = {BF16: torch.bfloat16, FP16: torch.float16}

#: As torch.amp.GradScaler has them: the first scale, and the steps after which it is doubled.
FIRST_SCALE, GROWS_AFTER = 2.0**16, 2000
#: The least scale: below it, float16 has too few numbers for any gradient.
_LEAST_SCALE = 2.0**-14


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """What forward passes and losses are computed in.

    Args:
        precision: "fp32", "bf16" or "fp16".
        device: of the model.
    """
    if precision == FP32:
        return nullcontext()
    return torch.autocast(device.type, dtype=_TYPES[precision])


@dataclass(slots=True)
class Scaler:
    """The factor of fp16's losses.

    Args:
        scale: by which the loss is multiplied before the backward pass.
        good: steps since it changed.
    """

    scale: float = FIRST_SCALE
    good: int = 0

    def unscale(self, gradients: list[torch.Tensor]) -> bool:
        """Divides gradients by the scale, in place; returns whether all of them are finite."""
        some = [gradient for gradient in gradients if gradient.numel()]
        if not some:
            return True
        torch._foreach_mul_(some, 1 / self.scale)
        largest = [one.double() for one in torch._foreach_norm(some, float("inf"))]
        return bool(torch.stack(largest).isfinite().all())

    def update(self, *, finite: bool) -> None:
        """After a step, or one that was skipped."""
        if not finite:
            self.scale, self.good = max(self.scale / 2, _LEAST_SCALE), 0
        elif self.good + 1 == GROWS_AFTER:
            self.scale, self.good = self.scale * 2, 0
        else:
            self.good += 1
