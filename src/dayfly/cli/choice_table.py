"""A choice in the terminal: the front as a table, the recommendation, the cut over the layers."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dayfly.planning.choose.front import Point
from dayfly.planning.choose.in_words import dollars, number
from dayfly.runs.choosing.choice import Choice, certainty
from dayfly.runs.choosing.cut import CutLayer, cut_of
from dayfly.runs.choosing.ranking import CLOSED_FORMS, Option

#: Letters of the longest drawing of layers.
_WIDE = 48
_PARTS = {
    "compute": "compute",
    "transfer": "transfer",
    "sync": "sync",
    "overhead": "other",
    "start-up": "start",
}


def print_choice(choice: Choice) -> None:
    """Front, recommendation, breakdown, cut, and what else is to be known."""
    console = Console()
    console.print(_table(choice))
    _say(console, "choice", choice.words)
    if choice.knee is not choice.chosen and len(choice.front.points) > 2:
        _say(console, "knee", f"Beyond it either goal costs much of the other: {choice.knee}.")
    if choice.store_words:
        _say(console, "store", choice.store_words)
    option = choice.chosen.plan
    parts = ", ".join(
        f"{name} {number(part)} s ({part / option.prediction.run_s:.0%})"
        for name, part in option.run_breakdown.items()
        if part
    )
    _say(console, "run", parts)
    bill = ", ".join(
        f"{kind.replace('_', ' ')} {dollars(usd)}"
        for kind, usd in option.prediction.by_kind.items()
        if usd
    )
    _say(console, "bill", bill)
    if option.candidate.settings.cut:
        console.print(Text(f"{'cut':<12}{'layers of each stage, and what they take'}"))
        for line in drawn(option):
            console.print(Text(f"{'':<12}{line}"), soft_wrap=True)
    _say(console, "certainty", certainty(choice))
    for note in choice.notes:
        _say(console, "note", note)


def drawn(option: Option) -> list[str]:
    """The cut over the layers as text: a line a stage, a letter a layer or several."""
    layers, stages = cut_of(option)
    each = max(1, -(-len(layers) // _WIDE))
    wide = -(-len(layers) // each)
    whole_s = sum(layer.compute_s for layer in layers) or 1.0
    lines = []
    for stage in stages:
        first, last = stage.layers.start // each, -(-stage.layers.stop // each)
        bar = "\N{MIDDLE DOT}" * first + "\N{FULL BLOCK}" * (last - first)
        share = sum(layers[at].compute_s for at in stage.layers) / whole_s
        mb = sum(layers[at].parameter_bytes for at in stage.layers) / 1e6
        lines.append(
            f"{bar:\N{MIDDLE DOT}<{wide}}  {stage.layers.start}-{stage.layers.stop - 1}: "
            f"{stage.replicas} x {stage.memory_mib} MiB, peak {stage.peak_mib:.0f}; "
            f"{share:.0%} of computing, {mb:.4g} MB{_passes(layers, stage.layers)}"
        )
    return lines


def _passes(layers: tuple[CutLayer, ...], stage: range) -> str:
    """What a sample hands on to the next stage."""
    last = stage.stop - 1
    if last == len(layers) - 1:
        return ""
    return f", passes on {layers[last].output_bytes / 1e3:.4g} KB a sample"


def _table(choice: Choice) -> Table:
    several = len(choice.places) > 1
    table = Table(
        title=f"{choice.job}: seconds against dollars, "
        f"{', '.join(dict.fromkeys(str(place) for place in choice.places))}",
        title_justify="left",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("")
    table.add_column("run s", justify="right", no_wrap=True)
    table.add_column("USD", justify="right", no_wrap=True)
    if several:
        table.add_column("where")
    table.add_column("plan", min_width=16)
    for head in _PARTS.values():
        table.add_column(head, justify="right", no_wrap=True)
    for point in choice.front.points:
        option = point.plan
        where = [str(option.candidate.place)] if several else []
        shares = [f"{option.run_breakdown[name] / option.prediction.run_s:.0%}" for name in _PARTS]
        table.add_row(
            Text(_mark(choice, point)),
            Text(f"{'~' if option.by == CLOSED_FORMS else ''}{number(point.seconds)}"),
            Text(f"{point.usd:.4g}"),
            *map(Text, where),
            Text(option.short),
            *shares,
            style="bold" if point is choice.chosen else None,
        )
    return table


def _mark(choice: Choice, point: Point[Option]) -> str:
    marks = choice.marks(point)
    return (
        "\N{BLACK RIGHT-POINTING TRIANGLE}" if "chosen" in marks else "*" if "knee" in marks else ""
    )


def _say(console: Console, name: str, text: str) -> None:
    console.print(Text(f"{name:<12}{text}"), soft_wrap=True)
