"""The page's section on a plan: what was predicted beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dayfly.runs.report.comparison import Compared, Comparison
from dayfly.runs.report.markup import NOTHING, mb, shown, spoken, table, text, usd

#: How a figure is shown, by the unit that ends its name, and the unit's name there.
_UNITS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "_usd": ("USD", usd),
    "_mib": ("MiB", lambda value: f"{value:.0f}"),
    "_s": ("s", lambda value: f"{value:.4g}"),
}


def section(compared: Comparison | None) -> str:
    """Tables of figures with their errors, and what was not in the plan; nothing without one."""
    if compared is None:
        return ""
    parts = [_words(compared)]
    if compared.unpredicted is None:
        parts.append(_figures("The run", compared.totals))
        pairs = [
            _figures("A step, by what rank 0 did", compared.parts),
            _figures("Dollars by kind", compared.kinds),
        ]
        parts.append(f'<div class="columns">{"".join(f"<div>{one}</div>" for one in pairs)}</div>')
        parts.append(_figures("Through the store, all workers", compared.traffic))
        parts.append(f'<p class="note">{_NOTE}</p>')
    return (
        '<section aria-labelledby="plan-title"><h2 id="plan-title">Predicted and measured</h2>'
        f"{''.join(parts)}</section>\n\n"
    )


def cells(figure: Compared) -> tuple[str, str, str, str]:
    """Name, predicted, measured, and the error in %, as text."""
    name, show = figure.name, shown
    if name.startswith("bytes_"):
        name, show = f"{name.removeprefix('bytes_')} (MB)", mb
    for ending, (_, one) in _UNITS.items():
        if figure.name.endswith(ending):
            show = one
    known = (figure.predicted, figure.measured)
    predicted, measured = (NOTHING if one is None else show(one) for one in known)
    error = NOTHING if figure.error is None else f"{figure.error:+.1%}"
    return spoken(name), predicted, measured, error


def _figures(caption: str, figures: Sequence[Compared]) -> str:
    heads = ("", "predicted", "measured", "error")
    return table(caption, heads, [cells(one) for one in figures])


def _words(compared: Comparison) -> str:
    said = []
    if compared.unpredicted is not None:
        said.append(f"What ran is not predicted: {compared.unpredicted}.")
    if compared.differences:
        said.append(f"Not in the plan: {'; '.join(compared.differences)}.")
    return "".join(f"<p>{text(one)}</p>" for one in said)


_NOTE = (
    "Error: how much more was predicted than measured. The step is rank 0&#x27;s median. The run "
    "is the time in which functions lived. Of a step, transfer is what goes up or down while nothing "
    "is computed, sync is waiting while nothing else goes on, overhead is the rest; measured parts "
    "are medians of their own, and need not add up."
)
