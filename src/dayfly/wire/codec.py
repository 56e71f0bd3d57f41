"""Interface of a codec, another form of elements on the wire, and the codecs by name.

Every reader gets the same bits from a codec. `codecs` and `int4` have them; names alone need no
torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from dayfly.wire.schedule import Span

if TYPE_CHECKING:
    import torch


class Codec(Protocol):
    """Turns elements into what travels, and back. One for each buffer; for several threads."""

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]]:
        """Type and shape of what travels for `length` elements."""

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        """Returns what travels for the elements of a span, as `form` says.

        Args:
            values_P: the elements.
            span: where they are in the buffer.
            total: whether they are a sum, and no contribution.
        """

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        """The elements again, or what is left of them: the same bits for every reader."""


# They are imported when they are made: they need torch, and whoever asks for names does without.
def _bf16() -> Codec:
    from dayfly.wire.codecs import Bf16

    return Bf16()


def _int8() -> Codec:
    from dayfly.wire.codecs import Int8

    return Int8()


def _int4() -> Codec:
    from dayfly.wire.int4 import Int4

    return Int4()


#: Codecs by name; none has state.
CODECS: dict[str, Callable[[], Codec]] = {"bf16": _bf16, "int8": _int8, "int4": _int4}
