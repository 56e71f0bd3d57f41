"""Everything random follows from a key."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.training.randomness import mix, seed_generators, seeded

numbers = st.integers(-(2**63), 2**64 - 1)


def draws() -> tuple[float, float, float]:
    return torch.rand(()).item(), float(np.random.rand()), random.random()


@given(key=st.lists(numbers, min_size=1, max_size=5), data=st.data())
def test_each_number_of_the_key_counts(key: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(key) - 1))
    other = data.draw(numbers.filter(lambda number: (number - key[place]) % 2**64))
    changed = [*key[:place], other, *key[place + 1 :]]
    assert mix(*key) != mix(*changed)
    assert mix(*key) == mix(*key)
    assert 0 <= mix(*key) < 2**63


def test_the_order_and_the_count_of_numbers_count() -> None:
    assert len({mix(), mix(0), mix(0, 0), mix(1, 2), mix(2, 1), mix(1, 2, 0)}) == 6


def test_equal_keys_draw_equal_numbers() -> None:
    with seeded(9):
        seed_generators(1, 2, 3)
        first = draws()
        seed_generators(1, 2, 3)
        assert draws() == first
        seed_generators(1, 2, 4)
        assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_seeded_puts_the_generators_back() -> None:
    with seeded(4):
        draws()
        expected = draws()
    with seeded(4):
        draws()
        with seeded(77):
            draws()
        assert draws() == expected


def fail_after_drawing() -> None:
    with seeded(5):
        draws()
        raise KeyError


def test_seeded_puts_the_generators_back_after_an_error() -> None:
    with seeded(4):
        expected = draws()
    with seeded(4):
        with pytest.raises(KeyError):
            fail_after_drawing()
        assert draws() == expected
