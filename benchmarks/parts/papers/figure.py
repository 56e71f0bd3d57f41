"""A figure of a paper made again: its series, and what we say beside what the paper says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Of `Fact.agrees`.
WORDS = {True: "yes", False: "no", None: "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve, or one set of bars.

    xs: numbers, or names of groups of bars. labels: beside the points. kind: line, points or bars.
    theirs: whether the paper prints these numbers in its text or tables; nothing is read off a
    picture. dashed: of an assumption, say.
    """

    name: str
    xs: tuple[float | str, ...]
    ys: tuple[float, ...]
    labels: tuple[str, ...] = ()
    kind: str = "line"
    theirs: bool = False
    dashed: bool = False

    def __post_init__(self) -> None:
        if len(self.xs) != len(self.ys) or len(self.labels) not in (0, len(self.xs)):
            raise ValueError(f"series {self.name} has {len(self.xs)} xs and {len(self.ys)} ys")
        if self.kind not in ("line", "points", "bars"):
            raise ValueError(f"series {self.name} is of an unknown kind {self.kind!r}")

    def at(self, x: float | str) -> float:
        """What stands at this x; the last, if several do. Raises KeyError if none does."""
        return dict(zip(self.xs, self.ys, strict=True))[x]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes. log_x: to base two; log_y: to base ten. line_y: a level to compare with."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    line_y: float | None = None

    def named(self, name: str) -> Series:
        """The series of this name. Raises KeyError if there is none."""
        return {one.name: one for one in self.series}[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What the paper's text says, and ours. agrees: None where ours was fitted to it, or
    the paper says nothing. why: of a no, which assumption was changed, and whether the paper's
    number follows then; shown only if it does not agree."""

    what: str
    theirs: str
    ours: str
    agrees: bool | None
    why: str = ""

    def __post_init__(self) -> None:
        if self.agrees is False and not self.why:
            raise ValueError(f"{self.what}: a no needs its reason")

    @property
    def row(self) -> str:
        """As a line of a table in Markdown."""
        return f"| {' | '.join(self.cells)} |"

    @property
    def cells(self) -> tuple[str, ...]:
        """What, the paper, here, agrees, why not."""
        why = self.why if self.agrees is False else ""
        return self.what, self.theirs, self.ours, WORDS[self.agrees], why


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One picture. name: of its file. what: the paper's figure. columns: panels in a row."""

    name: str
    what: str
    panels: tuple[Panel, ...]
    facts: tuple[Fact, ...]
    columns: int = 2

    def panel(self, title: str) -> Panel:
        """The panel of this title. Raises KeyError if there is none."""
        return {one.title: one for one in self.panels}[title]

    @property
    def table(self) -> str:
        """The facts in Markdown, as docs/papers.md has them."""
        head = ["| what | the paper | here | agrees | why not |", "|---|---|---|---|---|"]
        return "\n".join([*head, *(fact.row for fact in self.facts)])


def times(ratio: float) -> str:
    """1.3 x."""
    return f"{ratio:.2f} x"


def percent(part: float) -> str:
    """26 %."""
    return f"{100 * part:.0f} %"


def span(values: Sequence[float], digits: int = 2) -> str:
    """Least to most, in words."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"
