"""Parts of unequal sizes go to the root, and stay until it drops them."""

from __future__ import annotations

import pytest

from dayfly.wire.collectives.exchange import collect, hand_in, handed_in
from dayfly.wire.schedule import Kind, Name, Op, Span


def test_the_schedule_as_drawn() -> None:
    parts = {1: Span(3, 7), 2: Span(7, 7)}
    first, second = Name("part-0", 1, 0), Name("part-1", 1, 0)
    assert hand_in(1, 0, 4, chunk=2).ops == (
        Op(Kind.PUT, Span(0, 2), first),
        Op(Kind.PUT, Span(2, 4), second),
    )
    assert hand_in(2, 0, 0, chunk=2).ops == (), "an empty part is no message"
    assert collect(0, parts, chunk=2).ops == (
        Op(Kind.GET, Span(3, 5), first),
        Op(Kind.GET, Span(5, 7), second),
    )
    assert handed_in(0, parts, chunk=2) == (first, second)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_what_is_handed_in_is_what_is_collected(chunk: int) -> None:
    """The root goes by the whole, the others by their parts: sizes and names are the same."""
    sizes = {1: 5, 2: 0, 3: 200}
    starts = {1: 7, 2: 12, 3: 12}
    parts = {rank: Span(at, at + sizes[rank]) for rank, at in starts.items()}
    sent = [op for rank, size in sizes.items() for op in hand_in(rank, 0, size, chunk=chunk)]
    read = collect(0, parts, chunk=chunk).ops
    assert [op.name for op in sent] == [op.name for op in read]
    assert [len(op.span) for op in sent] == [len(op.span) for op in read]
    covered = [at for op in read for at in range(op.span.start, op.span.stop)]
    assert covered == list(range(7, 212))
