"""A type of GPU as its maker publishes it, and which parts of one a platform has.

A GPU here is what a function sees as one device: of a K80, which has two on a board, one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dayfly.errors import RequestError

if TYPE_CHECKING:
    from dayfly.catalogue.platform import FunctionPlatform

#: MiB of a GPU that a process takes beside what torch allocates: CUDA's context, and the code of
#: kernels. Measured on an H200 (driver 580, CUDA 13): 518 MiB after CUDA was initialised, 676 after
#: a matrix product, 694 after a convolution, 758 after a transformer's layer. Others report 250 to
#: 500 MiB of smaller GPUs.
CONTEXT_MIB = 768
#: Parts of a GPU that are looked at, as far as a platform has them: those that fill it evenly.
_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What is published of one type of GPU.

    Args:
        name: of its data file.
        overridden: the rows that are the user's own.
        flops_per_s: peak of float32, a multiply-add as two.
        memory_bytes_per_s: peak of its memory.
        memory_mib: of one GPU.
        host_bytes_per_s: each way to the memory of its machine.
    """

    name: str
    overridden: tuple[str, ...] = ()
    flops_per_s: float | None = None
    memory_bytes_per_s: float | None = None
    memory_mib: int | None = None
    host_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A type of GPU that is asked for, and the share of one; None: any that can be had."""

    type: str
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `T4`, or `T4:0.25`. Raises RequestError for what is neither."""
        name, colon, share = text.partition(":")
        try:
            part = float(share) if colon else None
        except ValueError:
            part = math.nan
        if not name or (part is not None and not 0 < part <= 1):
            raise RequestError(
                f"--gpu {text!r}: give a type of GPU, as T4, and a share of one above 0 and at "
                "most 1 if you want no other, as T4:0.25"
            )
        return cls(name, part)


def gpu_shares(platform: FunctionPlatform) -> tuple[float, ...]:
    """Returns the shares of a GPU that functions of a platform can have, rising: halves of halves.

    Where a GPU is sold whole, 1 alone.
    """
    return tuple(share for share in _SHARES if math.isclose(platform.next_gpu_share(share), share))
