"""Terms that come in any order are added in theirs, beside the own contribution until the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.schedule import Name
from dayfly.wire.summation import Summation

SIZE = 3


def names(count: int) -> list[Name]:
    return [Name("part", source, 0) for source in range(count)]


@given(st.data(), st.integers(1, 6))
def test_the_order_of_the_terms_alone_counts(data: st.DataObject, count: int) -> None:
    own = data.draw(st.integers(0, count - 1) | st.none())
    chance = torch.Generator().manual_seed(count)
    values = [torch.randn(SIZE, generator=chance) * 10.0 ** (4 * number) for number in range(count)]
    terms: list[Name | None] = [*names(count)]
    buffer = torch.full((SIZE,), float("nan"))
    if own is not None:
        terms[own] = None
        buffer = values[own].clone()
    expected = values[0].clone()
    for value in values[1:]:
        expected = expected + value
    total = Summation(terms, buffer, torch.empty_like)
    before = buffer.clone()
    kept = [value.clone() for value in values]
    for number in data.draw(st.permutations(range(count))):
        if (name := terms[number]) is not None:
            total.add(name, values[number])
            assert torch.equal(buffer, before) or own is None, "own contribution"
    total.finish()
    assert torch.equal(buffer, expected)
    assert all(torch.equal(value, was) for value, was in zip(values, kept, strict=True))


@pytest.mark.parametrize(
    ("order", "held"), [((0, 1, 2, 3), (1, 1, 1, 1)), ((3, 2, 1, 0), (1, 2, 3, 1))]
)
def test_what_is_added_is_let_go_of(order: Sequence[int], held: Sequence[int]) -> None:
    """All but the last of five terms come; the own one is the last."""
    terms: list[Name | None] = [*names(4), None]
    total = Summation(terms, torch.zeros(SIZE), torch.empty_like)
    for number, most in zip(order, held, strict=True):
        name = terms[number]
        assert name is not None
        total.add(name, torch.ones(SIZE))
        assert len(total._early) <= most
    assert not total._early


def test_a_sum_without_its_last_term_is_a_mistake() -> None:
    total = Summation(names(2), torch.zeros(SIZE), torch.empty_like)
    total.add(names(2)[0], torch.ones(SIZE))
    with pytest.raises(AssertionError, match="was never there"):
        total.finish()
