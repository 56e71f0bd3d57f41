"""Seconds of the run by what they are spent on, a bar a plan, as SVG."""

from __future__ import annotations

from dayfly.planning.choose.in_words import dollars, seconds
from dayfly.runs.choosing.choice import Choice
from dayfly.runs.report.markup import text

#: Parts of a run, as `Option.run_breakdown` has them, their class, and their names in the key.
PARTS = {
    "compute": ("part-compute", "compute"),
    "transfer": ("part-transfer", "transfer"),
    "sync": ("part-sync", "synchronisation: waiting for others"),
    "overhead": ("part-overhead", "overhead: the optimizer's step, and the rest of a step"),
    "start-up": ("part-start", "start-up, validation, hand-overs and the end"),
}
# Pixels.
_WIDE, _ROW, _BAR, _NAMES, _ENDS = 1000, 24, 15, 390, 150
_LETTERS = 52


def chart(choice: Choice) -> str:
    """The drawing with its key."""
    points = choice.front.points
    longest = max(point.seconds for point in points)
    scale = (_WIDE - _NAMES - _ENDS) / longest
    parts = []
    for row, point in enumerate(points):
        y = row * _ROW
        if point is choice.chosen:
            parts.append(
                f'<rect class="row-chosen" x="0" y="{y}" width="{_WIDE}" height="{_ROW}" rx="4"/>'
            )
        name = f"{row + 1}  {point.plan.short}"
        short = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
        kind = "strong" if point is choice.chosen else "plain"
        parts.append(
            f'<text class="{kind}" x="6" y="{y + 16}"><title>{text(str(point))}</title>'
            f"{text(short)}</text>"
        )
        x = float(_NAMES)
        for part, spent_s in point.plan.run_breakdown.items():
            wide = spent_s * scale
            if wide >= 0.1:
                parts.append(
                    f'<rect class="{PARTS[part][0]}" x="{x:.1f}" y="{y + (_ROW - _BAR) / 2}" '
                    f'width="{wide:.1f}" height="{_BAR}">'
                    f"<title>{text(f'{part}: {seconds(spent_s)}')}</title></rect>"
                )
            x += wide
        parts.append(
            f'<text x="{x + 8:.1f}" y="{y + 16}">'
            f"{text(f'{seconds(point.seconds)}, {dollars(point.usd)}')}</text>"
        )
    used = [part for part in PARTS if any(point.plan.run_breakdown.get(part) for point in points)]
    keys = "".join(
        f'<span><svg width="12" height="12" aria-hidden="true"><rect class="{PARTS[part][0]}" '
        f'width="12" height="12" rx="3"/></svg>{text(PARTS[part][1])}</span>'
        for part in used
    )
    return (
        f'<div class="drawing"><svg viewBox="0 0 {_WIDE} {len(points) * _ROW}" role="img" '
        f'aria-label="Seconds of each plan by what they are spent on">{"".join(parts)}</svg></div>'
        f'<p class="keys">{keys}</p>'
    )
