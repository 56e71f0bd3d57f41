"""The arena against a model that knows each byte's owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.segments.writer import Arena

SIZE = 100

#: Up to 40 sizes to allocate; in place of a size, a number below 0 chooses what to free.
plans = st.lists(st.integers(1, 40) | st.integers(-100, -1), max_size=40)


def carry_out(arena: Arena, plan: list[int]) -> dict[int, int]:
    """What is taken in the end: start -> size. Asserts that nothing ever overlaps."""
    owner: list[int | None] = [None] * SIZE
    taken: dict[int, int] = {}
    for step in plan:
        if step > 0:
            start = arena.allocate(step)
            free = [at for at in range(SIZE - step + 1) if not any_taken(owner, at, step)]
            assert start == (free[0] if free else None), "the lowest place that fits"
            if start is not None:
                owner[start : start + step] = [start] * step
                taken[start] = step
        elif taken:
            start = sorted(taken)[step % len(taken)]
            size = taken.pop(start)
            arena.free(start, size)
            owner[start : start + size] = [None] * size
    assert arena.gaps == gaps(owner)
    return taken


def any_taken(owner: list[int | None], at: int, size: int) -> bool:
    return any(one is not None for one in owner[at : at + size])


def gaps(owner: list[int | None]) -> list[tuple[int, int]]:
    """(start, stop) of what nobody owns, as long as they can be."""
    found = []
    start = 0
    for at, one in enumerate([*owner, -1]):
        if one is not None:
            if start < at:
                found.append((start, at))
            start = at + 1
    return found


@given(plans)
def test_nothing_overlaps_gaps_join_and_all_space_comes_back(plan: list[int]) -> None:
    arena = Arena(SIZE)
    taken = carry_out(arena, plan)
    for start, size in taken.items():
        arena.free(start, size)
    assert arena.gaps == [(0, SIZE)]


@given(plans, plans)
def test_a_successor_that_knows_what_is_taken_goes_on_alike(
    first: list[int], then: list[int]
) -> None:
    arena = Arena(SIZE)
    taken = carry_out(arena, first)
    successor = Arena(SIZE, [(start, start + size) for start, size in taken.items()])
    assert successor.gaps == arena.gaps
    sizes = [size for size in then if size > 0]
    assert [successor.allocate(size) for size in sizes] == [arena.allocate(size) for size in sizes]


@pytest.mark.parametrize(
    "taken",
    [[(0, 10), (5, 20)], [(10, 10)], [(20, 10)], [(90, 101)], [(-1, 5)], [(3, 9), (3, 9)]],
)
def test_what_cannot_be_taken_is_refused(taken: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlaps another, or is not within"):
        Arena(SIZE, taken)


@pytest.mark.parametrize(("start", "size"), [(0, 1), (9, 2), (5, 30), (15, 10), (30, 5)])
def test_what_is_free_cannot_be_freed(start: int, size: int) -> None:
    arena = Arena(SIZE, [(10, 20)])
    with pytest.raises(ValueError, match="free already"):
        arena.free(start, size)
    assert arena.gaps == [(0, 10), (20, SIZE)]
