"""The tree over leaves: whoever adds which of them, in whatever order, the sum is the tree's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire import tree_summation
from dayfly.wire.buffers import BufferPool
from dayfly.wire.leaves import (
    Node,
    carries,
    halves,
    joined,
    joins,
    leaves_of,
    most_kept,
    nodes_within,
)
from dayfly.wire.schedule import Kind, Name, Op, Span
from dayfly.wire.tree_summation import TreeSummation

TOTALS = st.integers(1, 70)


def tree(node: Node) -> Any:
    """The sum of a node's leaves, as nested pairs."""
    return node.start if len(node) == 1 else tuple(map(tree, halves(node)))


def every(node: Node) -> set[Node]:
    below = set() if len(node) == 1 else set.union(*map(every, halves(node)))
    return {node, *below}


@st.composite
def intervals(draw: st.DrawFn) -> tuple[range, int]:
    total = draw(TOTALS)
    start = draw(st.integers(0, total - 1))
    return range(start, draw(st.integers(start + 1, total))), total


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, int]:
    total = draw(TOTALS)
    return total, draw(st.integers(1, total))


def test_the_tree_of_seven_leaves() -> None:
    assert tree(range(7)) == (((0, 1), (2, 3)), ((4, 5), 6))
    assert nodes_within(range(3, 7), 7) == (range(3, 4), range(4, 7))
    assert carries(range(7), 7) == (0, 1, 0, 2, 0, 1, 2)
    assert [most_kept(leaves_of(rank, 2, 7), 7) for rank in (0, 1)] == [1, 2]


def test_a_worker_keeps_a_buffer_for_each_halving_of_its_leaves() -> None:
    assert [most_kept(range(leaves), leaves) for leaves in (1, 2, 4, 8, 64)] == [0, 1, 2, 3, 6]


@given(intervals())
def test_the_largest_nodes_of_an_interval(given_: tuple[range, int]) -> None:
    """They fill it, and no two of them are the halves of a node inside it."""
    leaves, total = given_
    found = nodes_within(leaves, total)
    nodes = every(range(total))
    assert [leaf for node in found for leaf in node] == list(leaves)
    inside = {node for node in nodes if node.start >= leaves.start and node.stop <= leaves.stop}
    assert set(found) <= inside
    largest = {one for one in inside if not any(one != o and set(one) <= set(o) for o in inside)}
    assert set(found) == largest


@given(TOTALS, st.data())
def test_two_nodes_are_joined_as_the_tree_has_it(total: int, data: st.DataObject) -> None:
    nodes = sorted(every(range(total)), key=lambda node: (node.start, node.stop))
    wanted = {halves(node): node for node in nodes if len(node) > 1}
    left = data.draw(st.sampled_from(nodes))
    for right in nodes:
        assert joined(left, right, total) == wanted.get((left, right))


@given(intervals())
def test_a_worker_that_carries_is_left_with_the_largest_nodes(given_: tuple[range, int]) -> None:
    leaves, total = given_
    kept: list[Any] = []
    most = 0
    for leaf, count in zip(leaves, carries(leaves, total), strict=True):
        most = max(most, len(kept))
        value: Any = leaf
        for _ in range(count):
            value = (kept.pop(), value)
        kept.append(value)
    assert kept == [tree(node) for node in nodes_within(leaves, total)]
    assert most == most_kept(leaves, total)


@given(worlds())
def test_nodes_of_all_workers_make_the_tree(world: tuple[int, int]) -> None:
    total, size = world
    shares = [leaves_of(rank, size, total) for rank in range(size)]
    assert [leaf for leaves in shares for leaf in leaves] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    nodes = tuple(node for leaves in shares for node in nodes_within(leaves, total))
    values = {node: tree(node) for node in nodes}
    for left, right in joins(nodes):
        up = joined(left, right, total)
        assert up is not None
        values[up] = (values.pop(left), values.pop(right))
    assert values == {range(total): tree(range(total))}


def by_the_tree(node: Node, leaves: list[torch.Tensor]) -> torch.Tensor:
    if len(node) == 1:
        return leaves[node.start]
    left, right = halves(node)
    return by_the_tree(left, leaves) + by_the_tree(right, leaves)


@settings(deadline=None)
@given(worlds(), st.data(), st.booleans(), st.sampled_from([1, 3, 40]))
def test_nodes_may_come_in_any_order(
    world: tuple[int, int], data: st.DataObject, ours: bool, size: int
) -> None:
    """The owner's sum has the tree's bits; its own nodes stay as they are until the end."""
    total, count = world
    rank = data.draw(st.integers(0, count - 1))
    chance = torch.Generator().manual_seed(total)
    leaves = [torch.randn(size, generator=chance) * 10.0 ** (leaf % 9) for leaf in range(total)]
    nodes = {peer: nodes_within(leaves_of(peer, count, total), total) for peer in range(count)}
    own = {node: by_the_tree(node, leaves).clone() for node in nodes[rank]}
    terms, of_terms, places = [], [], []
    for peer, its in nodes.items():
        for node in its:
            terms.append(None if peer == rank else Name(f"n-{node.start}", peer, rank))
            of_terms.append(node)
    into = own[nodes[rank][-1]]
    places = [own[node] for node in nodes[rank]]
    op = Op(Kind.REDUCE, Span(0, size), terms=tuple(terms), nodes=tuple(of_terms))
    buffers = BufferPool()
    tree_summation_piece = tree_summation.PIECE_BYTES
    tree_summation.PIECE_BYTES = 64  # several pieces
    try:
        total_sum = TreeSummation(op.terms, op.nodes, places, into, buffers, ours=ours)
        before = {node: value.clone() for node, value in own.items()}
        given_ = {}
        for number in data.draw(st.permutations(range(len(terms)))):
            name = terms[number]
            if name is None:
                continue
            value = by_the_tree(of_terms[number], leaves)
            lent = buffers.take(value.dtype, size).copy_(value) if ours else value.clone()
            given_[name] = lent
            total_sum.add(name, lent)
            assert all(torch.equal(own[node], value) for node, value in before.items())
        total_sum.finish()
    finally:
        tree_summation.PIECE_BYTES = tree_summation_piece
    assert torch.equal(into, by_the_tree(range(total), leaves))
    assert not buffers._lent, "all is given back"


def test_a_node_that_never_came_is_a_mistake() -> None:
    into = torch.zeros(3)
    made = TreeSummation(
        (None, Name("part", 1, 0)), (range(1), range(1, 2)), [into], into, BufferPool(), ours=True
    )
    with pytest.raises(AssertionError, match="was never there"):
        made.finish()
