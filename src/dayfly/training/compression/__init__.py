"""Compression of gradients: one file a method. What `--compress` takes is in `compression`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dayfly.errors import RequestError
from dayfly.wire.codec import CODECS
from dayfly.wire.schedule import Schedule

if TYPE_CHECKING:
    import torch

    from dayfly.training.compression.exchange import Exchange
    from dayfly.training.flat import FlatBuffer

#: Rank of PowerSGD unless another is given, as in `powersgd:8`.
USUAL_RANK = 4


@dataclass(frozen=True, slots=True)
class Compression:
    """A way to make gradients smaller.

    Args:
        rank: of PowerSGD's matrices.
    """

    method: Literal["none", "bf16", "int8", "int4", "powersgd"] = "none"
    rank: int = 0

    @property
    def codec(self) -> bool:
        """Whether the messages have another form, so that whoever adds them up has to know it."""
        return self.method in CODECS

    @property
    def feeds_back(self) -> bool:
        """Whether what a codec loses is added to the next contribution."""
        return self.method in ("int8", "int4")

    def exchange(
        self,
        flat: FlatBuffer,
        seed: int,
        schedule: Callable[[torch.Tensor], Schedule],
    ) -> Exchange:
        """What a worker sums of a flat buffer, whose last bucket is `apart` if this is not none.

        Args:
            seed: the job's.
            schedule: this rank's, to sum buffers like the one given.
        """
        # Settings need names alone, and plans are made without torch.
        from dayfly.training.compression.exchange import Exchange, Feedback
        from dayfly.training.compression.powersgd import PowerSgd

        match self.method:
            case "none":
                return Exchange(flat)
            case "bf16":
                return Exchange(flat, CODECS["bf16"]())
            case "int8" | "int4":
                return Feedback(flat, CODECS[self.method](), schedule)
            case "powersgd":
                return PowerSgd(flat, self.rank, seed)


def compression(text: str) -> Compression:
    """From what `--compress` takes. Raises RequestError, in one sentence, for what is not known."""
    method, colon, rank = text.partition(":")
    if method == "powersgd" and (not colon or (rank.isdecimal() and int(rank) >= 1)):
        return Compression("powersgd", int(rank) if colon else USUAL_RANK)
    if not colon and method in ("none", "bf16", "int8", "int4"):
        return Compression(method)  # type: ignore[arg-type]  # mypy does not narrow by `in`
    raise RequestError(
        f"--compress {text!r} is not known: give one of none, bf16, int8, int4, powersgd, or "
        "powersgd:R for another rank than 4"
    )
