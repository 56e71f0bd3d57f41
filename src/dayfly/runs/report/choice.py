"""The page of a choice: one file of HTML that needs nothing else, and no script; or a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dayfly.errors import RequestError
from dayfly.planning.choose.front import Point, dollars, number, per_cent, seconds
from dayfly.planning.intervals import how_sure
from dayfly.runs.choosing.choice import Choice, PaperChoice, certainty, where_in_words
from dayfly.runs.choosing.option import Option, fits
from dayfly.runs.report import choice_drawings, choice_picture
from dayfly.runs.report.document import document
from dayfly.runs.report.markup import folded, pairs, table, text
from dayfly.runs.whole_files import replacing

PAGE, PICTURE = "plan.html", "plan.png"
#: Cuts that are drawn, beside the chosen plan's.
_MOST_CUTS = 12


def check_plot(path: Path) -> None:
    """Raise RequestError for what is no page and no picture, and a picture without matplotlib."""
    if path.suffix not in ("", ".html", ".png"):
        raise RequestError(f"--plot {path}: give FILE.html, FILE.png, or a directory")
    if path.suffix != ".html":
        choice_picture.check()


def write_plot(choice: Choice, path: Path, papers: Sequence[PaperChoice] = ()) -> list[Path]:
    """Write a page, a picture, or both into a directory; returns what was written.

    Args:
        papers: what the papers' methods choose, for the page.

    Raises:
        RequestError: as `check_plot` does, and if it cannot be written.
    """
    check_plot(path)
    try:
        if path.suffix == ".html":
            return [_written(path, page(choice, papers).encode())]
        if path.suffix == ".png":
            return [_written(path, choice_picture.png(choice))]
        path.mkdir(parents=True, exist_ok=True)
        return [
            _written(path / PAGE, page(choice, papers).encode()),
            _written(path / PICTURE, choice_picture.png(choice)),
        ]
    except OSError as error:
        raise RequestError(f"--plot {path} cannot be written: {error.strerror}") from error


def page(choice: Choice, papers: Sequence[PaperChoice] = ()) -> str:
    """All of it, in the reader's light or dark.

    Args:
        papers: what the papers' methods choose.
    """
    return document(
        "choice.html",
        {
            "words": text(f"{choice.words} {choice.store_words}".strip()),
            "sure": text(how_sure(choice.chosen.plan.prediction)),
            "tiles": _tiles(choice),
            "front": choice_drawings.front_chart(choice, papers),
            "knobs": _knobs(choice),
            "papers": _papers(choice, papers),
            "plans": _plans(choice),
            "bars": choice_drawings.bar_chart(choice),
            "cuts": _cuts(choice),
            "notes": "".join(
                f'<p class="note">{text(note)}</p>'
                for note in (*choice.chosen.plan.prediction.warnings, *choice.notes)
            ),
            "facts": pairs(_facts(choice)),
        },
        brand="dayfly plan",
        title=f"{choice.job}: how to run it",
        lead=f"On {where_in_words(choice.targets)}. {certainty(choice)}",
        styles=("choice.css",),
    )


def _tiles(choice: Choice) -> str:
    point = choice.chosen
    option, cheapest, fastest = point.plan, choice.front.cheapest, choice.front.fastest
    settings = option.candidate.settings
    stages = (
        f"{settings.stages} stages of {settings.layout.in_words}"
        if settings.cut
        else "the whole model"
    )
    step = option.prediction.step_s
    tiles = [
        (
            "total time",
            _clock(point.seconds),
            _times(point.seconds, fastest.seconds, "the fastest"),
        ),
        ("cost", dollars(point.usd), _times(point.usd, cheapest.usd, "the cheapest")),
        (
            "functions",
            str(settings.workers),
            f"{stages}, on {option.candidate.target.platform.name}",
        ),
        ("step", seconds(step), f"{option.prediction.breakdown['compute'] / step:.0%} computing"),
    ]
    return "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}<small>{text(more)}</small></dd></div>"
        for name, value, more in tiles
    )


def _times(value: float, least: float, what: str) -> str:
    return f"{number(value / least)} x {what}" if value > least else what


def _plans(choice: Choice) -> str:
    rows = [_row(choice, at, point) for at, point in enumerate(choice.front.points, 1)]
    heads = (
        "",
        "plan",
        "where",
        "total time (s)",
        "9 of 10 runs (s)",
        "USD",
        "step (s)",
        "peak (MiB)",
        "by",
        "what it is",
    )
    return table("Plans of the front", heads, rows) + _places(choice)


def _places(choice: Choice) -> str:
    """What each place of the front would need, and how sure its figures are."""
    rows = dict.fromkeys(
        (str(target), "; ".join((target.sure, *target.derived)), target.needs(workers))
        for target, workers in (
            (point.plan.candidate.target, point.plan.candidate.settings.workers)
            for point in choice.front.points
        )
    )
    return table("Where", ("where", "how sure", "what it would need"), list(rows))


def _row(choice: Choice, at: int, point: Point[Option]) -> tuple[object, ...]:
    option = point.plan
    return (
        str(at),
        f"{option.candidate.kind}: {option.candidate.words}",
        str(option.candidate.target),
        point.seconds,
        _between(option),
        number(point.usd),
        option.prediction.step_s,
        f"{max(option.prediction.memory_mib):.0f}",
        option.by,
        ", ".join(choice.marks(point)),
    )


def _knobs(choice: Choice) -> str:
    """Each setting of the chosen plan changed alone."""
    rows = [
        (
            *(one.setting, one.chosen, one.other),
            *_changed(choice, one.option, one.why, "" if one.asked_for else "; not asked for"),
        )
        for one in choice.knobs
    ]
    heads = ("setting", "chosen", "instead", "total time (s)", "USD", "so it is")
    return table("One setting changed at a time", heads, rows)


def _papers(choice: Choice, papers: Sequence[PaperChoice]) -> str:
    """What the papers' methods choose."""
    if not papers:
        return (
            "<p class=\"note\">The papers' methods are in dayfly's repository, and not installed "
            "with it: plan from a checkout in which make .venv/.test was run, and their choices "
            "stand here.</p>"
        )
    rows = [
        (
            letter,
            one.method,
            "" if one.option is None else one.option.short,
            *_changed(choice, one.option, one.why),
        )
        for letter, one in zip(choice_drawings.LETTERS, papers, strict=False)
    ]
    heads = ("", "method", "plan", "total time (s)", "USD", "beside dayfly's choice")
    asked = (
        '<p class="note">What the papers\' methods choose by their own models of a step or an '
        "epoch, of the same functions: FasDL's and CE-scaling's the least dollars within the "
        "deadline, or else within the chosen plan's total time; FuncPipe's and Hydrozoa's the "
        "least weighted sum of dollars and seconds, which weigh the same at the chosen plan. "
        "Seconds and dollars here are dayfly's predictions of what they choose.</p>"
    )
    return asked + table("The papers' choices", heads, rows)


def _changed(
    choice: Choice, option: Option | None, why: str, more: str = ""
) -> tuple[object, object, str]:
    """Seconds and dollars of another plan, and how it differs from the chosen one.

    more: what is added to that.
    """
    if option is None:
        return "", "", why
    chosen, said = choice.chosen, option.prediction
    words = [
        _beside(chosen.seconds, said.total_s, "faster", "slower"),
        _beside(chosen.usd, said.cost_usd, "cheaper", "dearer"),
    ]
    memory = "" if fits(option) else "; it needs more memory than its functions have"
    return (
        said.total_s,
        number(said.cost_usd),
        (", ".join(filter(None, words)) + memory or "the same") + more,
    )


def _beside(mine: float, its: float, less: str, more: str) -> str:
    """How much less or more; empty: the same to a tenth of a per cent."""
    if math.isclose(mine, its, rel_tol=1e-3):
        return ""
    if its > 2 * mine:
        return f"{its / mine:.1f} times as {'slow' if more == 'slower' else 'dear'}"
    return f"{per_cent(abs(its - mine), mine)} {less if its < mine else more}"


def _between(option: Option) -> str:
    """The total times between which 9 of 10 runs are to lie."""
    found = option.prediction.interval
    return "" if found is None else " to ".join(map(number, found.total_s))


def _cuts(choice: Choice) -> str:
    chosen = choice_drawings.cut_chart(choice.chosen.plan)
    others = [
        (at, point)
        for at, point in enumerate(choice.front.points, 1)
        if point is not choice.chosen and point.plan.candidate.settings.cut
    ]
    drawn = "".join(
        f"<h3>{text(f'{at}: {point}')}</h3>{choice_drawings.cut_chart(point.plan)}"
        for at, point in others[:_MOST_CUTS]
    )
    return chosen + (folded("Other cuts of the front", drawn) if drawn else "")


def _facts(choice: Choice) -> dict[str, object]:
    asked, profile = choice.asked, choice.targets[0].profile
    wanted = choice.chosen.plan.candidate.wanted
    return {
        "layers": len(profile.layers),
        "parameters (MB)": sum(one.parameters for one in profile.layers) / 1e6,
        "samples": profile.samples,
        "batch": wanted.batch_size,
        "epochs": wanted.epochs,
        "functions at most": asked.workers,
        "plans considered": choice.considered,
        "predicted": choice.predicted,
        "certified gap": per_cent(choice.gap, 1.0),
        "took (s)": choice.took_s,
    }


def _clock(value_s: float) -> str:
    if value_s < 600:
        return seconds(value_s)
    minutes, rest = divmod(round(value_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _written(file: Path, content: bytes) -> Path:
    with replacing(file) as beside:
        beside.write_bytes(content)
    return file
