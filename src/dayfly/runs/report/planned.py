"""The page's section on a plan: what was predicted beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dayfly.runs.report.comparison import Compared, Comparison
from dayfly.runs.report.markup import NOTHING, mb, shown, spoken, table, text, usd

#: How a figure is shown, by the unit that ends its name.
_UNITS: Mapping[str, Callable[[float], str]] = {
    "_usd": lambda value: usd(value) if value >= 0.01 else f"${value:.8f}",
    "_mib": lambda value: f"{value:.0f}",
    "_s": lambda value: f"{value:.4g}",
}


def section(compared: Comparison | None) -> str:
    """Tables of figures with their errors, and what was not in the plan; nothing without one."""
    if compared is None:
        return ""
    parts = [_words(compared)]
    if compared.unpredicted is None:
        figures = {
            "The run": compared.totals,
            "A step, by what rank 0 did": compared.parts,
            "Dollars by kind": compared.kinds,
            "Through the store, all workers": compared.traffic,
        }
        tables = "".join(f"<div>{_figures(name, of)}</div>" for name, of in figures.items())
        parts.append(f'<div class="columns wide">{tables}</div>')
        parts.append(f'<p class="note">{_NOTE}</p>')
    return (
        '<section aria-labelledby="plan-title"><h2 id="plan-title">Predicted and measured</h2>'
        f"{''.join(parts)}</section>\n\n"
    )


def cells(figure: Compared) -> tuple[str, str, str, str]:
    """Name, predicted, measured, and the error in %, as text."""
    name = figure.name
    show: Callable[[float], str] = shown
    if name.startswith("bytes_"):
        name, show = f"{name.removeprefix('bytes_')} (MB)", mb
    for ending, one in _UNITS.items():
        if figure.name.endswith(ending):
            show = one
    known = (figure.predicted, figure.measured)
    predicted, measured = (NOTHING if one is None else show(one) for one in known)
    # Without the sign of what is rounded to nothing.
    error = NOTHING if figure.error is None else f"{round(figure.error, 3) + 0.0:+.1%}"
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
    "is the time in which functions lived. Of a step, each moment counts once: for computing; else "
    "for overhead, which is applying the sum and what no span tells of; else for transfers; else "
    "for waiting (sync). Measured parts are medians of their own, and need not add up."
)
