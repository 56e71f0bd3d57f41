"""Pieces of HTML. All that comes from a run passes through `text` or `script_json`."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: How a value that was never measured is shown.
NOTHING = "\N{EN DASH}"
_NAMES = {
    "gb_s": "GB-s",
    "samples_per_s": "samples/s",
    "cpu": "CPU",
    "gpu": "GPU",
    "vcpu_s": "vCPU-s",
    "startup_s": "start-up time (s)",
    "train_s": "training time (s)",
    "total_s": "total time (s)",
}
#: Endings of names that are units, as a reader writes them.
_UNITS = {
    "usd": "USD",
    "mb_per_s": "MB/s",
    "bytes_per_s": "bytes/s",
    "per_s": "1/s",
    "s": "s",
    "ms": "ms",
    "mib": "MiB",
    "bytes": "bytes",
    "mb": "MB",
}


@dataclass(frozen=True, slots=True)
class Barred:
    """An amount in a table, and its share of the largest, 0 to 1, which is drawn beneath it."""

    amount: str
    share: float


def text(value: Any) -> str:
    """Anything as text, harmless in an element and in a quoted attribute."""
    return html.escape(shown(value), quote=True)


def shown(value: Any) -> str:
    """A value for people: numbers short, None as a dash, structures as JSON."""
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
        case float():
            return f"{value:.4g}" if abs(value) < 1000 else shown(round(value))
        case dict() | list() | tuple():
            return json.dumps(value)
    return str(value)


def spoken(name: str) -> str:
    """A key for people, its unit apart: `billed_ms` is `billed (ms)`."""
    if name in _NAMES:
        return _NAMES[name]
    for ending, unit in _UNITS.items():
        if name.endswith(f"_{ending}"):
            return f"{name.removesuffix(f'_{ending}').replace('_', ' ')} ({unit})"
    return name.replace("_", " ")


def script_json(tree: Any) -> str:
    """JSON that can stand in a script element: no text in it can end that or begin a comment."""
    whole = json.dumps(tree, separators=(",", ":"), allow_nan=False)
    return whole.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def usd(value: float) -> str:
    """Dollars, with as many places as a small run needs."""
    return (
        f"${value:,.2f}" if abs(value) >= 100 else f"${value:.4f}" if value >= 1 else _cents(value)
    )


def _cents(value: float) -> str:
    if not value:
        return "$0"
    return "<$0.000001" if abs(value) < 5e-7 else f"${value:.6f}"


def mb(count: float) -> str:
    """Bytes in MB of 10^6, to a tenth."""
    return f"{count / 1e6:,.1f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, foot: Sequence[Any] = ()
) -> str:
    """A table: the first column names its rows. Columns of numbers or amounts are aligned right."""
    body = [list(row) for row in rows]
    numeric = [
        all(not isinstance(row[column], str) or _is_amount(row[column]) for row in body)
        and bool(body)
        for column in range(len(heads))
    ]

    def line(cells: Sequence[Any], cell: str) -> str:
        made = []
        for column, value in enumerate(cells):
            name, scope = ("th", ' scope="row"') if not column else (cell, "")
            kind = ' class="number"' if column and numeric[column] else ""
            if isinstance(value, Barred):
                kind = f' class="number bar" style="--share:{value.share:.3f}"'
                value = value.amount
            made.append(f"<{name}{scope}{kind}>{text(value)}</{name}>")
        return f"<tr>{''.join(made)}</tr>"

    head = "".join(
        f'<th scope="col"{" class=number" if place and numeric[place] else ""}>{text(name)}</th>'
        for place, name in enumerate(heads)
    )
    last = f"<tfoot>{line(foot, 'td')}</tfoot>" if foot else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table><caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(line(row, 'td') for row in body)}</tbody>{last}</table></div>"
    )


def pairs(rows: Mapping[str, Any]) -> str:
    """Names and their values."""
    items = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in rows.items()
    )
    return f'<dl class="pairs">{items}</dl>'


def folded(summary: str, content: str) -> str:
    """Something that opens at a click, and on paper."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def _is_amount(value: str) -> bool:
    return value == NOTHING or value.lstrip("$-+<").replace(" ", "")[:1].isdigit()


def element(name: str, *content: str, **attributes: float | str) -> str:
    """Returns an element of a drawing, by SVG's names.

    Args:
        name: of the element.
        content: other elements, and text that passed through `text`.
        attributes: numbers to a tenth. `look` is the class, `text_anchor` stands for
            `text-anchor`.
    """
    given = {
        "class" if key == "look" else key.replace("_", "-"): v for key, v in attributes.items()
    }
    shown = "".join(
        f' {key}="{value if isinstance(value, str) else f"{round(value, 1):g}"}"'
        for key, value in given.items()
        if value is not None
    )
    return f"<{name}{shown}>{''.join(content)}</{name}>" if content else f"<{name}{shown}/>"


def drawing(wide: int, high: int, label: str, parts: Iterable[str]) -> str:
    """Returns a picture as wide as the page.

    Args:
        label: what it shows, for those who cannot see it.
    """
    return (
        f'<div class="drawing"><svg viewBox="0 0 {wide} {high}" role="img" '
        f'aria-label="{text(label)}">{"".join(parts)}</svg></div>'
    )


def key(mark: str, name: str, size: int = 12) -> str:
    """Returns a line of a drawing's key.

    Args:
        mark: what stands before the name.
    """
    picture = f'<svg width="{size}" height="{size}" aria-hidden="true">{mark}</svg>'
    return f"<span>{picture}{text(name)}</span>"
