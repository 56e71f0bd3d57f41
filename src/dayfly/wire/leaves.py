"""The binary tree over the leaves of a batch, along which sums have the same bits whoever adds.

A batch is cut into V leaves. A node is the range of the leaves below it. A node of n leaves splits
at the largest power of two below n, so what is added to what follows from V alone:

    V = 7       [0..7)
           .----' '----.
         [0..4)      [4..7)
         .' '.       .' '.
      [0..2) [2..4) [4..6) [6]

A worker with leaves [a, b) adds what it can: what it has in the end is the largest nodes inside
[a, b). Of three workers, with leaves [0, 2), [2, 4) and [4, 7), each has one node; of two, with
[0, 3) and [3, 7), the first has [0..2) and [2], the second [3] and [4..7). Whoever sums the nodes
up joins two of them as soon as both halves of a node are there, as a binary counter carries.
"""

from __future__ import annotations

from functools import lru_cache

from dayfly.batches import share

#: The leaves below a node.
Node = range


def leaves_of(rank: int, world_size: int, total: int) -> range:
    """Returns the leaves of a worker; numbers differ by one at most.

    Args:
        rank: 0 to world_size - 1.
        world_size: number of workers, at most `total`.
        total: leaves of a batch, V.
    """
    return share(total, rank, world_size)


def halves(node: Node) -> tuple[Node, Node]:
    """Returns the two nodes that a node of several leaves is the sum of."""
    middle = node.start + (1 << (len(node) - 1).bit_length() - 1)
    return range(node.start, middle), range(middle, node.stop)


def nodes_within(leaves: range, total: int) -> tuple[Node, ...]:
    """Returns the largest nodes inside some leaves, in their order.

    Args:
        leaves: one at least, of 0 to total - 1.
        total: leaves of a batch, V.
    """
    return _within(leaves, range(total))


def _within(leaves: range, node: Node) -> tuple[Node, ...]:
    if leaves.start <= node.start and node.stop <= leaves.stop:
        return (node,)
    if node.stop <= leaves.start or leaves.stop <= node.start:
        return ()
    left, right = halves(node)
    return (*_within(leaves, left), *_within(leaves, right))


def joined(left: Node, right: Node, total: int) -> Node | None:
    """Returns the node whose halves these two nodes are; None if there is none."""
    node = range(left.start, right.stop)
    if left.stop != right.start or halves(node) != (left, right):
        return None
    # A node begins at a multiple of the power of two that holds it, and fills that, or ends with
    # the batch.
    size = 1 << (len(node) - 1).bit_length()
    whole = len(node) == size or node.stop == total
    return node if whole and node.start % size == 0 else None


@lru_cache(maxsize=4096)
def joins(nodes: tuple[Node, ...]) -> tuple[tuple[Node, Node], ...]:
    """Returns the pairs whose sums, one after another, make the whole of nodes that fill a node.

    Args:
        nodes: of one tree, in their order.
    """
    if len(nodes) == 1:
        return ()
    middle = halves(range(nodes[0].start, nodes[-1].stop))[0].stop
    before = tuple(node for node in nodes if node.start < middle)
    behind = nodes[len(before) :]
    left, right = (range(part[0].start, part[-1].stop) for part in (before, behind))
    return (*joins(before), *joins(behind), (left, right))


def carries(leaves: range, total: int) -> tuple[int, ...]:
    """Returns, of each leaf, how many of the nodes before it it joins, one after another.

    They are the last ones of those that are kept. So a worker that computes its leaves in their
    order, and adds as it goes, is left with `nodes_within`.

    Args:
        leaves: of the worker.
        total: leaves of a batch, V.
    """
    kept: list[Node] = []
    found = []
    for leaf in leaves:
        node, count = range(leaf, leaf + 1), 0
        while kept and (up := joined(kept[-1], node, total)) is not None:
            node, count = up, count + 1
            kept.pop()
        kept.append(node)
        found.append(count)
    return tuple(found)


def most_kept(leaves: range, total: int) -> int:
    """Returns how many nodes a worker keeps at once, at most, beside the leaf that it computes."""
    most = kept = 0
    for count in carries(leaves, total)[:-1]:
        kept += 1 - count
        most = max(most, kept)
    return most
