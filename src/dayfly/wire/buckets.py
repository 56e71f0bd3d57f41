"""In which buckets a flat buffer goes out while it is still being filled.

sizes   |1|1|5|30|2|2|      at most 4 in the first bucket, 8 in the others
buckets |1|1|5|30|2|2|      a size is never cut
        '---'-'--'---'
"""

from __future__ import annotations

from collections.abc import Sequence

from dayfly.wire.schedule import Span

#: Sizes of buckets, in bytes, as in torch's DDP: the first small, so that it can go out early.
FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20


def bucket_ends(sizes: Sequence[int], first: int, most: int) -> list[int]:
    """Where to cut a row of sizes: how many of them are in each bucket and those before it.

    Each bucket has at least one, and at most `first` (the first one) or `most` in sum if it has
    more than one.
    """
    ends: list[int] = []
    room = 0
    for number, size in enumerate(sizes):
        if number and size > room:
            ends.append(number)
            room = most
        elif not number:
            room = first
        room -= size
    return [*ends, len(sizes)]


def bucket_spans(
    sizes: Sequence[int], ends: Sequence[int], length: int, *, apart: bool
) -> tuple[list[int], tuple[Span, ...]]:
    """Where the buckets lie in a flat buffer.

    Args:
        sizes: elements of each parameter, in the order in which they become ready.
        ends: how many of them are in each bucket and those before it.
        length: elements of the whole buffer.
        apart: whether what follows the parameters is a span of its own, or part of the last one.

    Returns:
        The number of each parameter's bucket; the span of each bucket.
    """
    spans: list[Span] = []
    bucket_of: list[int] = []
    start = 0
    for end in ends:
        stop = sum(sizes[:end])
        bucket_of += [len(spans)] * (end - len(bucket_of))
        spans.append(Span(start, stop))
        start = stop
    spans.append(Span(start, length) if apart else Span(spans.pop().start, length))
    return bucket_of, tuple(spans)
