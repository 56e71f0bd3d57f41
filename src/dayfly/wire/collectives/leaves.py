"""An all-reduce along the tree over the leaves of a batch, by the schedule of any that suits it.

Every rank brings the largest nodes inside its leaves in place of one contribution (see
`wire.leaves`). Each goes where the contribution went, and its key names it. V = 7, two ranks:

    rank 0, leaves [0, 3)    uplink    |part-0-2>1|part-2-3>1|              |sum 0|
                             downlink                 |part-3-4<1|part-4-7<1|     |sum 1|
                             compute                                  |reduce, drop parts|

The buffer (`TermsBuffer`) has the rank's last node first, as that is where the sum belongs, and the
others behind it. Sums are the same bits for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial

from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.cost import AllReduce, Cost
from dayfly.wire.keys import EVERYONE
from dayfly.wire.leaves import Node, leaves_of, nodes_within
from dayfly.wire.schedule import Draft, Kind, Name, Schedule, Span


def over_leaves(how: Collective, world_size: int, total: int) -> Collective:
    """Returns the same algorithm for sums along the tree.

    Args:
        how: for ranks that bring one contribution each; `whole`.
        world_size: number of ranks.
        total: leaves of a batch, V; at least as many as ranks.
    """
    one_each = all(len(nodes) == 1 for nodes in nodes_of(world_size, total))
    return replace(
        how,
        schedule=partial(_schedule, how=how, total=total),
        cost=partial(_cost, how=how) if one_each and how.cost is not None else None,
    )


def nodes_of(world_size: int, total: int) -> list[tuple[Node, ...]]:
    """Returns the nodes that each rank brings."""
    return [nodes_within(leaves_of(rank, world_size, total), total) for rank in range(world_size)]


def _schedule(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
    how: Collective,
    total: int,
) -> Schedule:
    plain = how.schedule(rank, world_size, length, stored, chunk=chunk)
    return along_the_tree(plain, rank, nodes_of(world_size, total), length)


def along_the_tree(
    plain: Schedule, rank: int, nodes: Sequence[tuple[Node, ...]], length: int
) -> Schedule:
    """Returns a schedule with nodes in place of contributions.

    Args:
        plain: of a rank that brings one contribution.
        rank: whose.
        nodes: of each rank.
        length: elements of the sum.
    """
    draft = Draft()
    at: list[list[int]] = []  # of each operation, where it is now
    # Where the own nodes are, in their order: the last one where the sum belongs.
    places = [*range(1, len(nodes[rank])), 0]
    for op in plain:
        after = tuple(sorted(position for earlier in op.after for position in at[earlier]))
        op = replace(op, after=after)
        own = [Span(op.span.start + k * length, op.span.stop + k * length) for k in places]
        made = [op]
        match op.kind:
            case Kind.PUT | Kind.FETCH if op.name is not None and _contributes(op.name):
                names = _named(op.name, nodes)
                spans = own if op.kind is Kind.PUT else [op.span] * len(names)
                made = [
                    replace(op, name=name, span=span)
                    for name, span in zip(names, spans, strict=True)
                ]
            case Kind.REDUCE:
                terms: list[Name | None] = []
                of_terms: list[Node] = []
                for name in op.terms:
                    its = nodes[rank if name is None else name.source]
                    terms += [None] * len(its) if name is None else _named(name, nodes)
                    of_terms += its
                made = [replace(op, terms=tuple(terms), nodes=tuple(of_terms), own=tuple(own))]
            case Kind.DROP:
                names = [name for one in op.terms if one is not None for name in _named(one, nodes)]
                made = [replace(op, terms=tuple(names))]
        at.append([draft.add(one) for one in made])
    return draft.schedule()


def _contributes(name: Name) -> bool:
    return name.destination != EVERYONE


def _named(name: Name, nodes: Sequence[tuple[Node, ...]]) -> list[Name]:
    """The messages of a contribution's nodes; a sum's stays as it is."""
    if not _contributes(name):
        return [name]
    return [
        replace(name, phase=f"{name.phase}-{node.start}-{node.stop}") for node in nodes[name.source]
    ]


def _cost(one: AllReduce, *, how: Collective) -> Cost:
    """Returns the cost where every rank brings one node: the messages are those of `how`.

    Nodes that came wait for their other halves, one a level of the tree.
    """
    assert how.cost is not None, "it states a cost"
    found = how.cost(one)
    plain = how.schedule(0, one.members, one.length, chunk=one.chunk)
    largest = max((len(op.span) for op in plain if op.kind is Kind.FETCH), default=0)
    waiting = 0 if one.link.zero_copy else one.itemsize * largest * one.members.bit_length()
    most = 1.0 * (one.members - 1) * one.nbytes
    return replace(found, memory_bytes=min(most, found.memory_bytes + waiting))
