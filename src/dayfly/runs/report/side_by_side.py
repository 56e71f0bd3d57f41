"""Several runs on one page and in one table: results, settings that differ, and their curves.

chart   a measure by epoch, a line a run, as wide as half the page
table   a row a run; the best of each measure is bold
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dayfly.dataclass_json import dump
from dayfly.errors import RequestError
from dayfly.runs.report import curves
from dayfly.runs.report.document import document
from dayfly.runs.report.markup import drawing, element, key, shown, spoken, table, text
from dayfly.runs.report.reading import RunFiles
from dayfly.runs.whole_files import replacing
from dayfly.specs.events import Measured, epochs_from_1

# Pixels.
_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 300, 64, 16, 14, 40
_TICKS = 6
#: Lines that differ by colour; those that follow are dashed.
_COLOURS = 8
#: What is known of every run, in the order of the table.
_RESULTS = (
    *("status", "workers", "epochs", "steps", "train_loss", "val_loss", "val_accuracy"),
    *("restarts", "step_s", "total_s", "billed_s", "gb_s", "cost_usd", "price_list"),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One run among several.

    Args:
        run_id: of it.
        directory: of it.
        results: by name; None: not measured.
        settings: by name, as JSON.
        epochs: what each epoch measured.
    """

    run_id: str
    directory: str
    results: Mapping[str, Any]
    settings: Mapping[str, Any]
    epochs: Sequence[Measured]

    @classmethod
    def of(cls, run: RunFiles) -> Self:
        """What the files of a run say, whether it is over or not."""
        history = () if run.history is None else epochs_from_1(run.history.epochs)
        epochs = history or curves.epochs(run.events.workers.get(0, ()))
        result = {} if run.record.result is None else dump(run.record.result)
        results = {name: result.get(name) for name in _RESULTS} | {"status": run.status}
        last = epochs[-1] if epochs else {}
        results |= {name: value for name, value in last.items() if name != "epoch"}
        results["epochs"] = len(epochs)
        losses = [
            (value, row["epoch"])
            for row in epochs
            if isinstance(value := row.get("val_loss"), float)
        ]
        results["best_val_loss"], results["best_epoch"] = min(losses, default=(None, None))
        return cls(
            run.record.run_id, str(run.directory), results, dump(run.record.settings), epochs
        )

    def json(self) -> dict[str, Any]:
        """For the command's JSON."""
        epochs = [dict(one) for one in self.epochs]
        return {
            "run_id": self.run_id,
            "directory": self.directory,
            **self.results,
            "history": epochs,
        }


def compared(directories: Sequence[Path]) -> list[Compared]:
    """Reads runs. Raises RequestError for fewer than two, one twice, or no run."""
    if len({one.resolve() for one in directories}) < max(2, len(directories)):
        raise RequestError("give two or more runs to compare, each once")
    return [Compared.of(RunFiles.read(one)) for one in directories]


def differing(runs: Sequence[Compared]) -> dict[str, list[Any]]:
    """Returns the settings in which runs differ: of each, one value a run."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    values = {name: [run.settings.get(name) for run in runs] for name in names}
    return {name: of for name, of in values.items() if any(one != of[0] for one in of)}


def measured(runs: Sequence[Compared]) -> list[str]:
    """Returns names of results that any run has, in the order of the table."""
    names = dict.fromkeys(name for run in runs for name in run.results)
    return [name for name in names if any(run.results.get(name) is not None for run in runs)]


def write_page(runs: Sequence[Compared], file: Path) -> Path:
    """Writes the page. Raises RequestError if it cannot be written."""
    try:
        with replacing(file) as beside:
            beside.write_text(page(runs), encoding="utf-8", errors="replace")
    except OSError as error:
        raise RequestError(
            f"{file} cannot be written: {error.strerror}; name another file with --output"
        ) from error
    return file


def page(runs: Sequence[Compared]) -> str:
    """One file of HTML that needs nothing else, and no script."""
    ids = [run.run_id for run in runs]
    rows = [(spoken(name), *(run.results.get(name) for run in runs)) for name in measured(runs)]
    differ = differing(runs)
    settings = '<p class="note">None.</p>'
    if differ:
        settings = table(
            "Settings", ("setting", *ids), [(spoken(name), *of) for name, of in differ.items()]
        )
    marks = [f'<path class="{_look(at)}" d="M0,6H22"/>' for at in range(len(runs))]
    legend = "".join(key(mark, one, 22) for mark, one in zip(marks, ids, strict=True))
    return document(
        "side_by_side.html",
        {
            "results": table("Of the last epoch", ("", *ids), rows),
            "settings": settings,
            "legend": f'<p class="keys">{legend}</p>',
            "charts": "".join(_charts(runs)) or '<p class="note">No epoch was measured yet.</p>',
        },
        brand="dayfly runs compare",
        title=f"{len(runs)} runs side by side",
        lead=", ".join(ids),
        styles=("choice.css", "side_by_side.css"),
    )


def _charts(runs: Sequence[Compared]) -> list[str]:
    names = dict.fromkeys(name for run in runs for row in run.epochs for name in row)
    charts = []
    for name in names:
        lines = [
            [
                (int(row["epoch"] or 0), float(value))
                for row in run.epochs
                if isinstance(value := row.get(name), int | float) and math.isfinite(value)
            ]
            for run in runs
        ]
        if name != "epoch" and any(lines):
            title = f"<h3>{text(spoken(name).capitalize())}</h3>"
            charts.append(f"<div>{title}{_chart(spoken(name), lines)}</div>")
    return charts


def _chart(name: str, lines: Sequence[Sequence[tuple[int, float]]]) -> str:
    points = [point for line in lines for point in line]
    epochs = [epoch for epoch, _ in points]
    low, high = min(value for _, value in points), max(value for _, value in points)
    room = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - room, high + room
    first, last = min(epochs), max(max(epochs), min(epochs) + 1)

    def x(epoch: float) -> float:
        return _LEFT + (epoch - first) / (last - first) * (_WIDE - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HIGH - _BOTTOM - (value - low) / (high - low) * (_HIGH - _BOTTOM - _TOP)

    bottom, parts = _HIGH - _BOTTOM, []
    for value in ticks(low, high):
        across: dict[str, float] = {"x1": _LEFT, "x2": _WIDE - _RIGHT}
        parts.append(element("line", look="grid", **across, y1=y(value), y2=y(value)))
        parts.append(
            element("text", text(shown(value)), x=_LEFT - 8, y=y(value) + 4, text_anchor="end")
        )
    for epoch in (one for one in ticks(first, last) if one == int(one)):
        parts.append(
            element("text", str(int(epoch)), x=x(epoch), y=bottom + 18, text_anchor="middle")
        )
    parts.append(element("line", look="base", x1=_LEFT, x2=_WIDE - _RIGHT, y1=bottom, y2=bottom))
    parts.append(element("text", "epoch", x=_WIDE - _RIGHT, y=_HIGH - 6, text_anchor="end"))
    for at, line in enumerate(lines):
        way = "L".join(f"{x(epoch):.1f},{y(value):.1f}" for epoch, value in line)
        if line:
            parts.append(f'<path class="{_look(at)}" d="M{way}"/>')
        parts += [
            element("circle", look=_look(at), cx=x(epoch), cy=y(value), r=2.5)
            for epoch, value in line
        ]
    return drawing(_WIDE, _HIGH, f"{name} by epoch, a line a run", parts)


def ticks(low: float, high: float) -> list[float]:
    """Returns round values from low to high, low < high, at most 7 or so."""
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= raw)
    return [
        float(f"{step * n:.12g}") for n in range(math.ceil(low / step), math.floor(high / step) + 1)
    ]


def _look(at: int) -> str:
    dashed = " dashed" if at >= _COLOURS else ""
    return f"run run-{at % _COLOURS}{dashed}"
