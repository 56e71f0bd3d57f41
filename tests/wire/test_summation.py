"""Terms that come in any order are added in theirs, beside the own contribution until the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire import summation
from dayfly.wire.buffers import BufferPool
from dayfly.wire.schedule import Name
from dayfly.wire.summation import Summation

SIZE = 3
PIECE = summation._PIECE_BYTES // 4


def lent(buffers: BufferPool, value: torch.Tensor) -> torch.Tensor:
    """The value in memory of the buffers."""
    return buffers.take(value.dtype, len(value)).copy_(value)


def names(count: int) -> list[Name]:
    return [Name("part", source, 0) for source in range(count)]


@settings(deadline=None)
@given(st.data(), st.integers(1, 6), st.booleans(), st.sampled_from([1, SIZE, 2 * PIECE + 5]))
def test_the_order_of_the_terms_alone_counts(
    data: st.DataObject, count: int, ours: bool, size: int
) -> None:
    own = data.draw(st.integers(0, count - 1) | st.none())
    chance = torch.Generator().manual_seed(count)
    values = [torch.randn(size, generator=chance) * 10.0 ** (4 * number) for number in range(count)]
    terms: list[Name | None] = [*names(count)]
    buffer = torch.full((size,), float("nan"))
    if own is not None:
        terms[own] = None
        buffer = values[own].clone()
    expected = values[0].clone()
    for value in values[1:]:
        expected = expected + value
    buffers = BufferPool()
    total = Summation(terms, buffer, buffers, ours=ours)
    before = buffer.clone()
    kept = [value.clone() for value in values]
    for number in data.draw(st.permutations(range(count))):
        if (name := terms[number]) is not None:
            total.add(name, lent(buffers, values[number]) if ours else values[number])
            assert torch.equal(buffer, before) or own is None, "own contribution"
    total.finish()
    assert torch.equal(buffer, expected)
    assert not buffers._lent, "all is given back"
    assert all(torch.equal(value, was) for value, was in zip(values, kept, strict=True))


@pytest.mark.parametrize(
    ("order", "held"), [((0, 1, 2, 3), (0, 0, 0, 0)), ((3, 2, 1, 0), (1, 2, 3, 0))]
)
def test_what_is_added_is_let_go_of(order: Sequence[int], held: Sequence[int]) -> None:
    """All but the last of five terms come; the own one is the last."""
    terms: list[Name | None] = [*names(4), None]
    buffers = BufferPool()
    total = Summation(terms, torch.zeros(SIZE), buffers, ours=True)
    for number, most in zip(order, held, strict=True):
        name = terms[number]
        assert name is not None
        total.add(name, lent(buffers, torch.ones(SIZE)))
        assert len(total._there) == most
    assert not total._there


def test_a_sum_without_its_last_term_is_a_mistake() -> None:
    total = Summation(names(2), torch.zeros(SIZE), BufferPool(), ours=True)
    total.add(names(2)[0], torch.ones(SIZE))
    with pytest.raises(AssertionError, match="was never there"):
        total.finish()
