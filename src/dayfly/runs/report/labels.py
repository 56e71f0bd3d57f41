"""Where the labels of a drawing's marks stand, so that none lies over another or over a mark.

2  label | label  1        a label is tried at four corners of its mark, in this order; it takes
---------o---------        the first where its box is free. One that has to be there takes the
4  label | label  3        first in any case; another one is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Pixels: a letter of 12 px text, bold for what is needed, a line of it, and the gap to the mark's
# middle.
_LETTER, _BOLD, _LINE, _ASIDE, _BESIDE = 6.8, 8.0, 12.0, 13.0, 9.0


@dataclass(frozen=True, slots=True)
class Label:
    """A text at a mark.

    Attributes:
        x, y: the mark's middle, in pixels.
        text: what it says.
        needed: whether it has to be there.
    """

    x: float
    y: float
    text: str
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a text begins or ends (`anchor`: `start` or `end`), and its base line, in pixels."""

    x: float
    y: float
    anchor: str


_Box = tuple[float, float, float, float]  # left, top, right, bottom


def spots(labels: Sequence[Label], wide: float, mark: float) -> list[Spot | None]:
    """Returns the spot of each label, in their order; None: there is no room for it.

    Args:
        labels: of all marks; those that are needed are placed first.
        wide: of the drawing, in pixels, beyond which no label reaches.
        mark: half the width of a mark.
    """
    marks = [(one.x - mark, one.y - mark, one.x + mark, one.y + mark) for one in labels]
    taken: list[_Box] = []
    found: list[Spot | None] = [None] * len(labels)
    for at in sorted(range(len(labels)), key=lambda at: not labels[at].needed):
        tried = [_tried(labels[at], *corner) for corner in _CORNERS]
        inside = [(spot, box) for spot, box in tried if box[0] >= 0 and box[2] <= wide]
        others = marks[:at] + marks[at + 1 :]
        free = (one for one in inside if not any(_meet(one[1], two) for two in taken + others))
        best = next(free, (inside or tried)[0] if labels[at].needed else None)
        if best is not None:
            found[at] = best[0]
            taken.append(best[1])
    return found


#: To the right (1) or the left of the mark, and above it (-1) or below.
_CORNERS = ((1, -1), (-1, -1), (1, 1), (-1, 1))


def _tried(label: Label, side: int, below: int) -> tuple[Spot, _Box]:
    end = label.x + side * _ASIDE
    other = end + side * (_BOLD if label.needed else _LETTER) * len(label.text)
    base = label.y - _BESIDE if below < 0 else label.y + _BESIDE + 0.75 * _LINE
    box = min(end, other), base - 0.75 * _LINE, max(end, other), base + 0.25 * _LINE
    return Spot(end, base, "start" if side > 0 else "end"), box


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
