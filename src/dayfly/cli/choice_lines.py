"""What `dayfly plan` shows in the terminal: front, cut over the layers, places with their needs."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dayfly.cli.outcome import kind_in_words, narrow_table
from dayfly.planning.choose.front import Point, dollars, number
from dayfly.planning.intervals import how_sure
from dayfly.runs.choosing.choice import Choice, certainty, where_in_words
from dayfly.runs.choosing.option import CLOSED_FORMS, CutLayer, Option, cut_of

#: Letters of the longest drawing of layers.
_WIDE = 48
#: Of what is needed.
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SAMPLES = "samples: times those of bsp at the job's batch to the same loss, with ? assumed; "
_MARKS = "\N{BLACK RIGHT-POINTING TRIANGLE} chosen"
_KNEE = "; * knee: beyond it either goal costs much of the other"
_ROUGH = "; ~ by closed forms, which are less exact than virtual time"
_COLUMNS = (
    "shares of the total time: computing; transfers while nothing is computed; sync, waiting for "
    "other workers; other, such as the optimizer's step; ends: start-up, validation and the end"
)
#: Parts of the total time as sentences have them.
_IN_WORDS = {"overhead": "other", "start-up": "start-up, validation and end"}
_PARTS = {
    "compute": "compute",
    "transfer": "transfer",
    "sync": "sync",
    "overhead": "other",
    "start-up": "ends",
}


def print_choice(choice: Choice, *, everywhere: bool = False) -> None:
    """Front, recommendation, breakdown, cut, and what else is to be known.

    Args:
        choice: what was found.
        everywhere: say what each place would need, and how sure it is, and not where time goes.
    """
    console = Console()
    if everywhere:
        print_places(console, choice)
    else:
        console.print(_table(choice))
        of_samples = any(point.plan.candidate.samples for point in choice.front.points)
        say(console, "columns", f"{_SAMPLES if of_samples else ''}{_COLUMNS}")
    say(console, "marks", _marks(choice))
    say(console, "choice", choice.words)
    if choice.store_words:
        say(console, "store", choice.store_words)
    option = choice.chosen.plan
    parts = ", ".join(
        f"{_IN_WORDS.get(name, name)} {number(part)} s ({part / option.prediction.total_s:.0%})"
        for name, part in option.run_breakdown.items()
        if part
    )
    say(console, "total time", parts)
    bill = ", ".join(
        f"{kind_in_words(kind)} {dollars(usd)}"
        for kind, usd in option.prediction.by_kind.items()
        if usd
    )
    say(console, "bill", bill)
    if option.candidate.settings.cut:
        console.print(Text(f"{'cut':<12}{'layers of each stage, and what they take'}"))
        for line in drawn(option):
            console.print(Text(f"{'':<12}{line}"), soft_wrap=True)
    say(console, "certainty", certainty(choice))
    say(console, "how sure", how_sure(option.prediction))
    for warning in option.prediction.warnings:
        say(console, "warning", warning)
    for note in choice.notes:
        say(console, "note", note)


def _table(choice: Choice) -> Table:
    targets = [point.plan.candidate.target for point in choice.front.points]
    several = len({target.platform.name for target in targets}) > 1
    stores = len({target.profile.channel for target in targets}) > 1
    table = narrow_table(
        f"{choice.job}: seconds against dollars, {where_in_words(choice.targets)}",
    )
    table.add_column("")
    table.add_column("total s", justify="right", no_wrap=True)
    table.add_column("USD", justify="right", no_wrap=True)
    if several:
        table.add_column("where")
    table.add_column("plan", min_width=16)
    for head in _PARTS.values():
        table.add_column(head, justify="right", no_wrap=True)
    for point in choice.front.points:
        option = point.plan
        target = option.candidate.target
        where = [str(target)] if several else []
        over = f" over {target.profile.channel}" if stores and not several else ""
        shares = [
            f"{option.run_breakdown[name] / option.prediction.total_s:.0%}" for name in _PARTS
        ]
        table.add_row(
            Text(mark(choice, point)),
            Text(f"{'~' if option.by == CLOSED_FORMS else ''}{number(point.seconds)}"),
            Text(f"{point.usd:.4g}"),
            *map(Text, where),
            Text(f"{option.short}{over}{option.candidate.samples}"),
            *shares,
            style="bold" if point is choice.chosen else None,
        )
    return table


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


def _marks(choice: Choice) -> str:
    """What the signs in the table mean, of those that are there."""
    points = choice.front.points
    starred = any(mark(choice, one) == "*" for one in points)
    rough = any(one.plan.by == CLOSED_FORMS for one in points)
    return f"{_MARKS}{_KNEE if starred else ''}{_ROUGH if rough else ''}"


def say(console: Console, name: str, text: str) -> None:
    """Prints a line with its name before it."""
    console.print(Text(f"{name:<12}{text}"), soft_wrap=True)
