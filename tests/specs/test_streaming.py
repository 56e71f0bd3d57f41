"""When fragments are taken, and which layers each has: rules without torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.specs.outer import Outer
from dayfly.specs.protocols import PROTOCOLS
from dayfly.specs.streaming import Streaming, refuses, sequential


@pytest.mark.parametrize(
    ("fragments", "steps", "taken"),
    [
        (1, 4, [[], [], [], [0]]),
        (2, 4, [[], [0], [], [1]]),
        (3, 5, [[], [0], [], [1], [2]]),
        (4, 4, [[0], [1], [2], [3]]),
        (3, 1, [[0, 1, 2]]),
        (3, 2, [[0], [1, 2]]),
    ],
)
def test_fragments_are_taken_evenly_and_the_last_at_the_end(
    fragments: int, steps: int, taken: list[list[int]]
) -> None:
    """Fragment p after step ceil((p + 1) k / P); an epoch's last round may be shorter."""
    rule = Streaming(fragments=fragments)
    assert [list(rule.taken(done, steps)) for done in range(1, steps + 1)] == taken
    for number in range(fragments):
        due = -(-(number + 1) * steps // fragments)
        assert number in rule.taken(due, steps)


@pytest.mark.parametrize(
    ("sizes", "fragments", "expected"),
    [
        ([4, 1, 1, 6, 2, 2], 3, [3, 1, 2]),
        ([1, 1, 1, 1], 4, [1, 1, 1, 1]),
        ([9, 1, 1], 3, [1, 1, 1]),
        ([1, 1, 9], 2, [2, 1]),
        ([5], 1, [1]),
    ],
)
def test_fragments_are_runs_of_layers(
    sizes: list[int], fragments: int, expected: list[int]
) -> None:
    assert [len(run) for run in sequential(sizes, fragments)] == expected


def best(sizes: Sequence[int], fragments: int) -> int:
    """The largest fragment of the best cut, by trying all."""
    cuts = combinations(range(1, len(sizes)), fragments - 1)
    bounds = ([0, *cut, len(sizes)] for cut in cuts)
    return min(max(sum(sizes[a:b]) for a, b in pairwise(bound)) for bound in bounds)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.data())
def test_the_largest_fragment_is_as_small_as_it_can_be(sizes: list[int], data: Any) -> None:
    fragments = data.draw(st.integers(1, len(sizes)))
    runs = sequential(sizes, fragments)
    assert len(runs) == fragments
    assert all(runs)
    assert [at for run in runs for at in run] == list(range(len(sizes)))
    assert max(sum(sizes[at] for at in run) for run in runs) == best(sizes, fragments)


@pytest.mark.parametrize("fragments", [0, 3])
def test_more_fragments_than_layers_cannot_be(fragments: int) -> None:
    with pytest.raises(ValueError, match=f"{fragments} fragments of 2 layers"):
        sequential([1, 2], fragments)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, None, 4), "--fragments 0: give a number from 1"),
        ((2, -1, 4), "--overlap -1: give a number of inner steps from 0"),
        ((5, 1, 4), "--fragments 5 are more than the 4 steps of a round"),
        ((2, 4, 4), "--overlap 4 must be less than --k 4"),
        ((1, None, 1), "--overlap 1, which --fragments has unless another is given, must be less"),
    ],
)
def test_what_cannot_be_streamed(given: tuple[Any, Any, Any], words: str) -> None:
    found = refuses(*given)
    assert found is not None
    assert found.startswith(words)


def test_what_is_left_out() -> None:
    assert Streaming.of(None, None) is None
    assert Streaming.of(4, None) == Streaming(fragments=4, overlap=1)
    assert Streaming.of(None, 2) == Streaming(fragments=1, overlap=2)
    assert refuses(9, 9, "epoch") is refuses(None, None, 1) is refuses(1, 0, 1) is None
    assert Streaming(overlap=0).alpha == 0
    assert Streaming(overlap=3).alpha == 0.5


def test_the_description_states_the_staleness() -> None:
    streaming = Streaming(fragments=3, overlap=2)
    described = PROTOCOLS["local-sgd"].by("nesterov", streaming)
    assert described.streaming == streaming
    assert described.ahead == 1
    assert PROTOCOLS["local-sgd"].by("nesterov", Streaming(overlap=0)).ahead == 0
    assert PROTOCOLS["local-sgd"].by("average", streaming).streaming is None
    assert Outer.of("nesterov", None, None, streaming) == Outer(streaming=streaming)
