"""The drawings of a choice's page, as SVG: the front, the seconds of each plan, and its cut.

front   total time to the right, dollars upwards: a numbered mark for each plan of the front, a
        faint one for each other plan, a square with a letter for what a paper's method chooses
bars    total time by what they are spent on, a bar a plan
cut     a plan's stages over the model's layers:

stage 0            stage 1         stage 2
4 x 3072 MiB       4 x 1769 MiB    ...
| | |#|  | |#|     |#| | |         computing of each layer, upwards
-----------------------------------------------
  |#| |  |#| |     | | |#|         bytes of its parameters, downwards

"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from dayfly.planning.choose.front import Point, counted, dollars, number, seconds
from dayfly.runs.choosing.candidate import K_REDUCE, PIPELINE, Candidate
from dayfly.runs.choosing.choice import Choice, PaperChoice
from dayfly.runs.choosing.option import CLOSED_FORMS, Option, cut_of
from dayfly.runs.report.labels import Label, spots
from dayfly.runs.report.markup import drawing, element, key, text

# Pixels.
_WIDE, _HIGH = 1000, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 26, 20, 46
_MARK, _RING, _FAINT, _WIDE_LETTERS = 6.0, 11.0, 3.0, 60.0
#: Names of papers' choices in the drawing and the table.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Plans that are not on the front: so many at most, and no further than so many times its ends.
_MOST_OTHERS, _FAR = 1500, 10.0
_NAME = 130  # of a limit; there is nothing below a front, so it stands at the bottom left
#: Beyond such a ratio of the largest to the smallest an axis is logarithmic.
_WIDE_RATIO = 6.0
_TICKS = 7


@dataclass(frozen=True, slots=True)
class Axis:
    """Values to pixels. log: whether decades are equally wide."""

    low: float
    high: float
    first: float
    last: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float) -> Self:
        """With some room on both sides. values: above 0, one at least."""
        low, high = min(values), max(values)
        log = high / low > _WIDE_RATIO
        if log:
            room = (high / low) ** 0.06
            return cls(low / room, high * room, first, last, log)
        room = 0.08 * (high - low) or 0.2 * high
        return cls(max(0.0, low - room), high + room, first, last, log)

    def at(self, value: float) -> float:
        """The pixel."""
        part = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return self.first + part * (self.last - self.first)

    def has(self, value: float) -> bool:
        """Whether it is on the axis."""
        return self.low <= value <= self.high

    def ticks(self) -> list[float]:
        """Round values."""
        if self.log:
            found = [
                digit * 10.0**power
                for power in range(
                    math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1
                )
                for digit in (1, 2, 5)
            ]
            inside = [value for value in found if self.has(value)]
            return inside if len(inside) > 1 else [self.low, self.high]
        raw = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(one * power for one in (1, 2, 5, 10) if one * power >= raw)
        first = math.ceil(self.low / step)
        return [step * n for n in range(first, math.floor(self.high / step) + 1)]


def front_chart(choice: Choice, papers: Sequence[PaperChoice] = ()) -> str:
    """The drawing with its key. papers: what the papers' methods choose."""
    points = choice.front.points
    goal = choice.asked.goal
    theirs = [
        (letter, one.option.point)
        for letter, one in zip(LETTERS, papers, strict=False)
        if one.option
    ]
    shown = [*points, *(point for _, point in theirs)]
    total_s, usd = [one.seconds for one in shown], [one.usd for one in shown]
    # Others are drawn where they are near enough not to press the front into a corner.
    others = [
        one
        for one in choice.others
        if one.seconds <= _FAR * max(total_s) and one.usd <= _FAR * max(usd)
    ][:_MOST_OTHERS]
    outside = len(choice.others) - len(others)
    total_s += [one.seconds for one in others]
    usd += [one.usd for one in others]
    x = Axis.over(total_s + _near(goal.deadline_s, total_s), _LEFT, _WIDE - _RIGHT)
    y = Axis.over(usd + _near(goal.budget_usd, usd), _HIGH - _BOTTOM, _TOP)
    parts = [*_axes(x, y), *(_faint(one, x, y) for one in others)]
    parts += [_steps(points, x, y), *_limits(choice, x, y)]
    parts += [_whiskers(point, x, y) for point in points]
    parts += [_mark(choice, at, point, x, y) for at, point in enumerate(points, 1)]
    parts += _names(choice, x, y)
    parts += _theirs(theirs, x, y)
    label = f"{len(points)} plans, by total time and dollars"
    keys = _keys(choice, others=bool(others), outside=outside, papers=bool(theirs))
    return drawing(_WIDE, _HIGH, label, parts) + keys


def _whiskers(point: Point[Option], x: Axis, y: Axis) -> str:
    """Between which total times and dollars 9 of 10 runs are to lie; nothing if nobody knows."""
    found = point.plan.prediction.interval
    if found is None:
        return ""
    (x1, x2), (y1, y2) = (
        [axis.at(min(max(value, axis.low), axis.high)) for value in ends]
        for axis, ends in ((x, found.total_s), (y, found.cost_usd))
    )
    px, py = x.at(point.seconds), y.at(point.usd)
    across = element("line", look="whisker", x1=x1, x2=x2, y1=py, y2=py)
    return across + element("line", look="whisker", x1=px, x2=px, y1=y1, y2=y2)


def _faint(point: Point[Candidate], x: Axis, y: Axis) -> str:
    """A plan that is not on the front."""
    title = element("title", text(str(point)))
    at = {"cx": x.at(point.seconds), "cy": y.at(point.usd), "r": _FAINT}
    return element("circle", title, look="other", **at)


def _theirs(points: Sequence[tuple[str, Point[Option]]], x: Axis, y: Axis) -> list[str]:
    """A square for each plan that papers' methods choose, with the letters of all that do, and of
    those next to it."""
    parts: list[str] = []
    letters: dict[tuple[float, float], list[str]] = {}
    drawn: set[tuple[float, float]] = set()
    for letter, point in points:
        px, py = at = x.at(point.seconds), y.at(point.usd)
        near = (one for one in letters if math.dist(one, at) < _WIDE_LETTERS)
        letters.setdefault(next(near, at), []).append(letter)
        if at not in drawn:
            drawn.add(at)
            box = {"x": px - _RING, "y": py - _RING, "width": 2 * _RING, "height": 2 * _RING}
            parts.append(element("rect", look="paper", **box, rx=2))
    for (px, py), these in letters.items():
        below = {"x": px - _RING, "y": py + _RING + 13}
        parts.append(element("text", text(" ".join(these)), look="paper-name", **below))
    return parts


def place_of(choice: Choice, option: Option) -> int:
    """The number of a plan's place among those of the front, for its colour."""
    names = [str(point.plan.candidate.target) for point in choice.front.points]
    return list(dict.fromkeys(names)).index(str(option.candidate.target)) % 8


def _near(limit: float | None, values: Sequence[float]) -> list[float]:
    """A limit, if it is not so far away that all plans would be in a corner."""
    if limit is None:
        return []
    return [limit] if min(values) / 3 < limit < max(values) * 3 else []


def _axes(x: Axis, y: Axis) -> list[str]:
    bottom, left, right = _HIGH - _BOTTOM, _LEFT, _WIDE - _RIGHT
    parts = []
    for value in x.ticks():
        at = x.at(value)
        parts.append(element("line", look="grid", x1=at, x2=at, y1=_TOP, y2=bottom))
        parts.append(element("text", number(value), x=at, y=bottom + 18, text_anchor="middle"))
    for value in y.ticks():
        at = y.at(value)
        parts.append(element("line", look="grid", x1=left, x2=right, y1=at, y2=at))
        parts.append(element("text", dollars(value), x=left - 9, y=at + 4, text_anchor="end"))
    parts.append(element("line", look="base", x1=left, x2=right, y1=bottom, y2=bottom))
    scale = " (logarithmic)" if x.log else ""
    name = f"total time in seconds{scale}"
    parts.append(element("text", name, x=right, y=_HIGH - 8, text_anchor="end"))
    return parts


def _steps(points: Sequence[Point[Option]], x: Axis, y: Axis) -> str:
    """Along the front: with so many seconds, at least so many dollars."""
    way = f"M{x.at(points[0].seconds):.1f},{y.at(points[0].usd):.1f}"
    for point in points[1:]:
        way += f"H{x.at(point.seconds):.1f}V{y.at(point.usd):.1f}"
    return f'<path class="steps" d="{way}"/>'


def _limits(choice: Choice, x: Axis, y: Axis) -> list[str]:
    goal, parts = choice.asked.goal, []
    left, right, bottom = _LEFT, _WIDE - _RIGHT, _HIGH - _BOTTOM
    if goal.deadline_s is not None and x.has(goal.deadline_s):
        at = x.at(goal.deadline_s)
        aside, anchor = (-6, "end") if at > left + _NAME else (6, "start")
        name = f"deadline {seconds(goal.deadline_s)}"
        parts.append(element("line", look="limit", x1=at, x2=at, y1=_TOP, y2=bottom))
        place = {"x": at + aside, "y": bottom - 10}
        parts.append(element("text", name, look="limit-name", **place, text_anchor=anchor))
    if goal.budget_usd is not None and y.has(goal.budget_usd):
        at, name = y.at(goal.budget_usd), f"budget {dollars(goal.budget_usd)}"
        parts.append(element("line", look="limit", x1=left, x2=right, y1=at, y2=at))
        parts.append(element("text", name, look="limit-name", x=left + 8, y=at + 16))
    return parts


def _mark(choice: Choice, at: int, point: Point[Option], x: Axis, y: Axis) -> str:
    option, marks = point.plan, choice.marks(point)
    px, py = x.at(point.seconds), y.at(point.usd)
    rough = " rough" if option.by == CLOSED_FORMS else ""
    look = f"point{rough} place-{place_of(choice, option)}"
    parts = [element("circle", look="ring", cx=px, cy=py, r=_RING)] if "chosen" in marks else []
    said = element("title", text(f"{at}: {point}"))
    parts.append(shape(option.candidate.kind, px, py, look, said))
    return "".join(parts)


def _names(choice: Choice, x: Axis, y: Axis) -> list[str]:
    """The number of each plan of the front that there is room for; of the chosen and the knee
    always."""
    labels = []
    for at, point in enumerate(choice.front.points, 1):
        words = [one for one in ("chosen", "knee") if one in choice.marks(point)]
        name = f"{at} {', '.join(words)}".strip()
        labels.append(Label(x.at(point.seconds), y.at(point.usd), name, needed=bool(words)))
    parts = []
    for label, spot in zip(labels, spots(labels, _WIDE, _MARK), strict=True):
        if spot is not None:
            look, name = "strong" if label.needed else "soft", text(label.text)
            place = {"x": spot.x, "y": spot.y}
            parts.append(element("text", name, look=look, **place, text_anchor=spot.anchor))
    return parts


def shape(kind: str, x: float, y: float, look: str, *inside: str) -> str:
    """Returns the mark of a plan: a diamond if the model is cut, a triangle if the batch size was
    chosen, else a circle."""
    r = _MARK
    if kind == PIPELINE:
        way = f"M{x:.1f},{y - r - 1:.1f}l{r + 1},{r + 1}l{-r - 1},{r + 1}l{-r - 1},{-r - 1}z"
        return element("path", *inside, look=look, d=way)
    if kind == K_REDUCE:
        way = f"M{x:.1f},{y - r:.1f}l{r},{2 * r - 1}h{-2 * r}z"
        return element("path", *inside, look=look, d=way)
    return element("circle", *inside, look=look, cx=x, cy=y, r=r)


def _keys(choice: Choice, *, others: bool, outside: int, papers: bool) -> str:
    options = [point.plan for point in choice.front.points]
    used = {str(one.candidate.target): place_of(choice, one) for one in options}
    places = [f'<span class="place-{at}"><i></i>{text(name)}</span>' for name, at in used.items()]
    kinds = dict.fromkeys(one.candidate.kind for one in options)
    shapes = [key(shape(kind, 7, 7, "point place-6"), kind, 14) for kind in kinds]
    rough = any(one.by == CLOSED_FORMS for one in options)
    hollow = ["<span>hollow: predicted by closed forms</span>"] if rough else []
    if any(one.prediction.interval for one in options):
        line = element("line", look="whisker", x1=0, x2=14, y1=7, y2=7)
        shapes.append(key(line, "9 of 10 runs are to lie between", 14))
    if others:
        faint = element("circle", look="other", cx=7, cy=7, r=_FAINT)
        shapes.append(key(faint, "another plan: one of the front is faster and cheaper", 14))
    if papers:
        square = element("rect", look="paper", x=1, y=1, width=12, height=12, rx=2)
        shapes.append(key(square, "a paper's choice, see below", 14))
    if outside:
        hollow.append(f"<span>not drawn: {counted(outside, 'plan')}, far slower or dearer</span>")
    return f'<p class="keys">{"".join([*places, *shapes, *hollow])}</p>'


#: Parts of the total time, as in `Option.run_breakdown`: CSS class, and name in the key.
PARTS = {
    "compute": ("part-compute", "compute"),
    "transfer": ("part-transfer", "transfer"),
    "sync": ("part-sync", "synchronisation: waiting for others"),
    "overhead": ("part-overhead", "overhead: the optimizer's step, and the rest of a step"),
    "start-up": ("part-start", "start-up, validation, hand-overs and the end"),
}
# Pixels.
_BAR_ROW, _BAR, _BAR_NAMES, _BAR_ENDS = 24, 15, 390, 150
_LETTERS = 45


def bar_chart(choice: Choice) -> str:
    """The drawing with its key."""
    points = choice.front.points
    scale = (_WIDE - _BAR_NAMES - _BAR_ENDS) / max(point.seconds for point in points)
    several = len({point.plan.candidate.target.platform.name for point in points}) > 1
    parts = []
    for row, point in enumerate(points):
        y, weight = row * _BAR_ROW, "plain"
        if point is choice.chosen:
            weight = "strong"
            parts.append(
                element("rect", look="row-chosen", x=0, y=y, width=_WIDE, height=_BAR_ROW, rx=4)
            )
        where = f"{point.plan.candidate.target.platform.name}: " if several else ""
        name = f"{row + 1}  {where}{point.plan.short}"
        short = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
        title = element("title", text(str(point)))
        parts.append(element("text", title, text(short), look=weight, x=6, y=y + 16))
        x = float(_BAR_NAMES)
        for part, spent_s in point.plan.run_breakdown.items():
            wide = spent_s * scale
            if wide >= 0.1:
                title = element("title", text(f"{part}: {seconds(spent_s)}"))
                box = {"x": x, "y": y + (_BAR_ROW - _BAR) / 2, "width": wide, "height": _BAR}
                parts.append(element("rect", title, look=PARTS[part][0], **box))
            x += wide
        figures = text(f"{seconds(point.seconds)}, {dollars(point.usd)}")
        parts.append(element("text", figures, x=x + 8, y=y + 16))
    used = [part for part in PARTS if any(point.plan.run_breakdown.get(part) for point in points)]
    keys = "".join(
        key(element("rect", look=PARTS[part][0], width=12, height=12, rx=3), PARTS[part][1])
        for part in used
    )
    label = "Seconds of each plan by what they are spent on"
    return f'{drawing(_WIDE, len(points) * _BAR_ROW, label, parts)}<p class="keys">{keys}</p>'


# Pixels.
_CUT_LEFT, _CUT_HEAD, _CUT_UP, _CUT_DOWN, _CUT_FOOT = 92, 56, 110, 64, 22
_NARROW = 92


def cut_chart(option: Option) -> str:
    """The drawing with its key; of a model that is not cut one stage."""
    layers, stages = cut_of(option)
    each = (_WIDE - _CUT_LEFT) / len(layers)
    most_s = max(layer.compute_s for layer in layers) or 1.0
    most_bytes = max(layer.parameter_bytes for layer in layers) or 1.0
    base = _CUT_HEAD + _CUT_UP
    high = base + _CUT_DOWN + _CUT_FOOT
    whole_s = sum(layer.compute_s for layer in layers) or 1.0
    parts = []
    for index, stage in enumerate(stages):
        x, wide = _CUT_LEFT + stage.layers.start * each, len(stage.layers) * each
        look = "stage-a" if index % 2 == 0 else "stage-b"
        share = sum(layers[at].compute_s for at in stage.layers) / whole_s
        mb = sum(layers[at].parameter_bytes for at in stage.layers) / 1e6
        size = "any memory" if stage.memory_mib is None else f"{stage.memory_mib} MiB"
        title = (
            f"stage {index}, layers {stage.layers.start} to {stage.layers.stop - 1}: "
            f"{stage.replicas} x {size}, peak {stage.peak_mib:.0f} MiB; {share:.0%} of computing, "
            f"{mb:.4g} MB of parameters"
        )
        strip = {"x": x + 1, "y": _CUT_HEAD - 12, "width": wide - 2, "height": 7, "rx": 2}
        parts.append(element("rect", element("title", text(title)), look=look, **strip))
        if wide >= _NARROW:
            parts.append(element("text", f"stage {index}", look="strong", x=x + 2, y=14))
            parts.append(element("text", text(f"{stage.replicas} x {size}"), x=x + 2, y=31))
        else:
            parts.append(element("text", str(index), look="strong", x=x + 2, y=31))
        if index:
            ends = {"y1": _CUT_HEAD - 16, "y2": base + _CUT_DOWN}
            parts.append(element("line", look="limit", x1=x, x2=x, **ends))
        for at in stage.layers:
            layer, left = layers[at], _CUT_LEFT + at * each
            up = _CUT_UP * layer.compute_s / most_s
            down = _CUT_DOWN * layer.parameter_bytes / most_bytes
            said = (
                f"layer {at}, {layer.name}: {1000 * layer.compute_s:.4g} ms a micro-batch, "
                f"{layer.parameter_bytes / 1e6:.4g} MB, passes on "
                f"{layer.output_bytes / 1e3:.4g} KB a sample"
            )
            gap = 0.5 if each < 4 else 1.0
            across = {"x": left + gap, "width": each - 2 * gap}
            bars = (
                element("rect", look=look, **across, y=base - up, height=up),
                element("rect", look="held", **across, y=base + 1, height=down),
            )
            parts.append(element("g", element("title", text(said)), *bars))
    parts.append(element("line", look="base", x1=_CUT_LEFT, x2=_WIDE, y1=base, y2=base))
    for name, y in (("computing", base - 8), ("parameters", base + 16), ("layer", high - 4)):
        parts.append(element("text", name, x=_CUT_LEFT - 8, y=y, text_anchor="end"))
    every = max(1, -(-len(layers) // 20))
    for at in range(0, len(layers), every):
        x = _CUT_LEFT + (at + 0.5) * each
        parts.append(element("text", str(at), x=x, y=high - 4, text_anchor="middle"))
    return drawing(_WIDE, high, f"{len(stages)} stages over {len(layers)} layers", parts)
