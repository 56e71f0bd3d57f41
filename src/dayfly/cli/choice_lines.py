"""Lines of `dayfly plan` in the terminal: the cut over the layers, and places with their needs."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from dayfly.cli.outcome import narrow_table
from dayfly.planning.choose.front import Point, number
from dayfly.runs.choosing.choice import Choice, where_in_words
from dayfly.runs.choosing.option import CLOSED_FORMS, CutLayer, Option, cut_of

#: Letters of the longest drawing of layers.
_WIDE = 48
#: Of what is needed.
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def drawn(option: Option) -> list[str]:
    """The cut over the layers as text: a line a stage, a letter a layer or several."""
    layers, stages = cut_of(option)
    each = max(1, -(-len(layers) // _WIDE))
    wide = -(-len(layers) // each)
    whole_s = sum(layer.compute_s for layer in layers) or 1.0
    lines = []
    for number_of_stage, stage in enumerate(stages):
        first, last = stage.layers.start // each, -(-stage.layers.stop // each)
        bar = "\N{MIDDLE DOT}" * first + "\N{FULL BLOCK}" * (last - first)
        share = sum(layers[at].compute_s for at in stage.layers) / whole_s
        mb = sum(layers[at].parameter_bytes for at in stage.layers) / 1e6
        lines.append(
            f"{bar:\N{MIDDLE DOT}<{wide}}  {stage.layers.start}-{stage.layers.stop - 1}: "
            f"{stage.replicas} x {stage.memory_mib} MiB, peak {stage.peak_mib:.0f}"
            f"{_on_gpu(option, number_of_stage)}; "
            f"{share:.0%} of computing, {mb:.4g} MB{_passes(layers, stage.layers)}"
        )
    return lines


def _on_gpu(option: Option, stage: int) -> str:
    """What a stage's functions take of a GPU's memory."""
    peaks = option.prediction.gpu_memory_mib
    return f", of a GPU's {peaks[stage]:.0f}" if peaks else ""


def _passes(layers: tuple[CutLayer, ...], stage: range) -> str:
    """What a sample hands on to the next stage."""
    last = stage.stop - 1
    if last == len(layers) - 1:
        return ""
    return f", passes on {layers[last].output_bytes / 1e3:.4g} KB a sample"


def print_places(console: Console, choice: Choice) -> None:
    """Prints the front over many places, and what each row would need to run there."""
    where = where_in_words(choice.targets)
    table = narrow_table(f"{choice.job}: seconds against dollars, {where}")
    for head, right in (("", False), ("total s", True), ("USD", True)):
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    for head in ("where", "plan", "how sure", "needs"):
        table.add_column(head, overflow="fold")
    needs: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for point in choice.front.points:
        option = point.plan
        target = option.candidate.target
        needed = target.needs(option.candidate.settings.workers)
        letter = needs.setdefault(needed, _LETTERS[len(needs) % len(_LETTERS)])
        number_of = reasons.setdefault("; ".join(target.derived), str(len(reasons) + 1))
        table.add_row(
            Text(mark(choice, point)),
            Text(f"{'~' if option.by == CLOSED_FORMS else ''}{number(point.seconds)}"),
            Text(f"{point.usd:.4g}"),
            Text(str(target)),
            Text(f"{option.short}{option.candidate.samples}"),
            Text(f"{target.sure} {number_of}" if target.derived else target.sure),
            Text(letter),
            style="bold" if point is choice.chosen else None,
        )
    console.print(table)
    for needed, letter in needs.items():
        say(console, f"needs {letter}", f"{needed}.")
    for reason, number_of in reasons.items():
        if reason:
            say(console, f"derived {number_of}", f"{reason}.")


def mark(choice: Choice, point: Point[Option]) -> str:
    """Returns the sign of a point of the front: a triangle is chosen, a star is the knee."""
    marks = choice.marks(point)
    return (
        "\N{BLACK RIGHT-POINTING TRIANGLE}" if "chosen" in marks else "*" if "knee" in marks else ""
    )


def say(console: Console, name: str, text: str) -> None:
    """Prints a line with its name before it."""
    console.print(Text(f"{name:<12}{text}"), soft_wrap=True)
