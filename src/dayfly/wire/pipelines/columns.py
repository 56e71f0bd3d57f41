"""The operations of a step as columns of plain values: making an `Op` for each takes longer."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span, Work, chunks


class Pieces(NamedTuple):
    """The chunks of a message: the phase in each one's name, its first byte, its bytes."""

    phases: tuple[str, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    def without(self, phases: Set[str]) -> Pieces:
        """Returns the chunks with other phases."""
        left = [one for one in zip(*self, strict=True) if one[0] not in phases]
        return Pieces(*zip(*left, strict=True)) if left else Pieces((), (), ())


@lru_cache(maxsize=4096)
def pieces_of(phase: str, size: int, chunk_bytes: int) -> Pieces:
    """Returns the chunks of a message of so many bytes; an empty message has none."""
    parts = chunks(Span(0, size), chunk_bytes) if size else ()
    return Pieces(
        tuple([f"{phase}-{chunk}" for chunk in range(len(parts))]),
        tuple([one.start for one in parts]),
        tuple(map(len, parts)),
    )


@dataclass(frozen=True, slots=True)
class StepColumns:
    """Operations, each added behind those before it.

    Attributes:
        kinds, after: as of `Op`.
        starts, lengths: of its span.
        names: phase, source and destination of its message; None: it has none.
        works: of the operations that do work alone, in their order.
    """

    kinds: list[Kind] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    names: list[tuple[str, int, int] | None] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)

    def transfers(
        self, kind: Kind, message: tuple[int, int, int], pieces: Pieces, after: tuple[int, ...]
    ) -> range:
        """Adds one for each piece of a message, which is given as where in the buffer it begins,
        its source and its destination; returns their positions."""
        begin, source, destination = message
        phases, starts, lengths = pieces
        first, count = len(self.kinds), len(phases)
        self.kinds.extend([kind] * count)
        self.starts.extend([begin + at for at in starts])
        self.lengths.extend(lengths)
        self.names.extend([(phase, source, destination) for phase in phases])
        self.after.extend([after] * count)
        return range(first, first + count)

    def compute(self, work: Work, after: tuple[int, ...]) -> int:
        """Adds a pass; returns its position."""
        self.kinds.append(Kind.COMPUTE)
        self.starts.append(0)
        self.lengths.append(0)
        self.names.append(None)
        self.after.append(after)
        self.works.append(work)
        return len(self.kinds) - 1

    def schedule(self) -> Schedule:
        """The same with an `Op` for each."""
        works, compute = iter(self.works), Kind.COMPUTE
        each = zip(self.kinds, self.starts, self.lengths, self.names, self.after, strict=True)
        return Schedule(
            tuple(
                [
                    Op(
                        kind,
                        Span(start, start + length),
                        None if name is None else Name(*name),
                        after=after,
                        work=next(works) if kind is compute else None,
                    )
                    for kind, start, length, name, after in each
                ]
            )
        )
