"""Gather: parts of unequal sizes go to one rank, the root, and stay until it drops them.

    rank 1   uplink     |0 |1 |
    rank 2   uplink     |0 |1 |
    root     downlink      |1/0|1/1|2/0|2/1|          part/chunk; then, much later:
             compute                          |drop all|

A root that starts again reads them once more, and a rank that does puts them once more, of which
the first put wins. So the root drops them only when what it made of them is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, chunks


def hand_in(rank: int, root: int, length: int, *, chunk: int = 1) -> Schedule:
    """What a rank does with its part, a buffer of `length` elements; none if it is empty.

    chunk: elements that are worth a message, the same at every rank.
    """
    draft = Draft()
    for number, span in enumerate(_chunks(Span(0, length), chunk)):
        draft.add(Op(Kind.PUT, span, _name(number, rank, root)))
    return draft.schedule()


def collect(root: int, parts: Mapping[int, Span], *, chunk: int = 1) -> Schedule:
    """What the root does to get others' parts into its buffer. parts: where each rank's belongs."""
    draft = Draft()
    for rank, part in parts.items():
        for number, span in enumerate(_chunks(part, chunk)):
            draft.add(Op(Kind.GET, span, _name(number, rank, root)))
    return draft.schedule()


def handed_in(root: int, parts: Mapping[int, Span], *, chunk: int = 1) -> tuple[Name, ...]:
    """The messages of these parts, which the root drops in the end."""
    return tuple(op.name for op in collect(root, parts, chunk=chunk) if op.name is not None)


def _chunks(span: Span, chunk: int) -> tuple[Span, ...]:
    return chunks(span, chunk) if len(span) else ()


def _name(chunk: int, rank: int, root: int) -> Name:
    return Name(f"part-{chunk}", rank, root)
