"""How two terms become one where collectives put the terms of the ranks together."""

from __future__ import annotations

from typing import Protocol

import torch


class Fold(Protocol):
    """As `torch.add`, `mul`, `minimum`, `maximum`, `bitwise_and`, `bitwise_or`, `bitwise_xor`."""

    def __call__(
        self, input: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor
    ) -> torch.Tensor: ...


#: What sums are made with, and the only one of codecs and of servers that sum.
ADD: Fold = torch.add
