"""What workers sum at once, and how many bytes of it travel.

a step    | bucket 0 | bucket 1 | moves of buffers, flags, loss, wishes |
a round   |     parameters      | moves of buffers, losses, wishes      |
          |    by the codec     | the tail of the last one, as it is    |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from dayfly.planning.configuration import (
    ITEM_BYTES,
    Configuration,
    Flat,
    elements,
    part_elements,
)
from dayfly.planning.profile import Profile
from dayfly.specs.compression import compression
from dayfly.specs.protocols import ExchangeDescription, Part
from dayfly.wire.codec import tail_part
from dayfly.wire.schedule import Span


@dataclass(frozen=True, slots=True, order=True)
class Summed:
    """Elements that are summed at once, each of `ITEM_BYTES`.

    Args:
        length: of a buffer, by which its schedule goes.
        compress: its form on the way, as `--compress`; none: as it is.
        tail: elements that travel beside it in the same messages, as they are; see `wire.packing`.
    """

    length: int
    compress: str = "none"
    tail: int = 0

    @property
    def elements(self) -> int:
        """All of them."""
        return self.length + self.tail

    def travelling_bytes(self, members: int, *, total: bool) -> int:
        """Returns the bytes of all elements on their way; see `specs.compression`.

        Args:
            members: that sum.
            total: whether they are the sum, and no contribution.
        """
        return _bytes(self, members, Span(0, self.length), total)

    def travelling(self, members: int) -> Callable[[Span, bool], int] | None:
        """Returns a function of a span, and of whether its message is of the sum, that has the
        message's bytes; None: all elements travel as they are.

        Args:
            members: that sum.
        """
        return None if self.compress == "none" else partial(_bytes, self, members)


def _bytes(summed: Summed, members: int, span: Span, total: bool) -> int:
    exact = ITEM_BYTES * len(tail_part(span, summed.length, summed.tail))
    return exact + _coded_bytes(summed.compress, members if total else 1, len(span))


@lru_cache(maxsize=4096)
def _coded_bytes(compress: str, terms: int, length: int) -> int:
    if compress == "none":
        return ITEM_BYTES * length
    return compression(compress).travelling_bytes(length, terms)


def of_step(buffer: Flat, compress: str) -> tuple[Summed, ...]:
    """Returns what a step of bsp sums, a bucket each, in the order in which they go out.

    Args:
        buffer: of the worker; without a tail, nothing of it is compressed.
        compress: as `--compress`.
    """
    *early, last = buffer.buckets
    if not buffer.tail:
        compress = "none"
    return (*(Summed(n, compress) for n in early), Summed(last, compress, buffer.tail))


def of_round(profile: Profile, exchange: ExchangeDescription, steps: int, compress: str) -> Summed:
    """Returns what a round of so many steps sums: parts, flags of optimizers' states, losses, and
    two wishes. If it is compressed, all but parameters is the tail.

    Args:
        profile: of the job.
        exchange: of the protocol.
        steps: of the round.
        compress: as `--compress`.
    """
    layers = profile.layers
    whole = sum(part_elements(profile, layers, part) for part in exchange.parts) + steps + 2
    if Part.OPTIMIZER in exchange.parts:
        whole += sum(len(elements(layer)) for layer in layers)
    if compress == "none":
        return Summed(whole)
    trained = part_elements(profile, layers, Part.PARAMETERS)
    return Summed(trained, compress, whole - trained)


def compress_of(configuration: Configuration) -> str:
    """Returns the compression of what workers sum, as `--compress`; none for a worker alone."""
    return configuration.compress if configuration.workers > 1 else "none"
