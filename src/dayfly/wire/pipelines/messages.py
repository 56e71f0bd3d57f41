"""How large the messages between two stages are: as large as the way to the store wants them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dayfly.wire.shaping import Rates

#: Chunks gain nothing where a transfer takes no time of a link.
_WHOLE_BYTES = 2**62


def worthwhile_bytes(ways: Iterable[Rates | None], in_flight: int) -> int:
    """Bytes of a message that keep all of these ways busy with so many requests under way.

    A way of w bytes a second carries w times its latency until the first request is through: so
    much must be under way at least, and twice that lets requests follow each other.
    """
    carried = [
        max(way.up_bytes_per_s or 0.0, way.down_bytes_per_s or 0.0) * way.latency_s
        for way in ways
        if way is not None
    ]
    return math.ceil(2 * max(carried, default=0.0) / in_flight)


def message_bytes(chunk_bytes: int, worthwhile: int, *, immediate: bool) -> int:
    """Least bytes of a chunk of what passes a boundary, the same at every rank.

    chunk_bytes, immediate: the channel's. worthwhile: from `worthwhile_bytes`.
    """
    return _WHOLE_BYTES if immediate else max(chunk_bytes, worthwhile)
