"""The page's section on a pipeline: its stages, its bubble, and the picture of one step.

The picture is drawn as papers draw pipelines, in SVG that needs no script:

stage 0   |0|1|2|3|          |0 |1 |2 |3 |
stage 1     |0|1|2|3|     |0 |1 |2 |3 |
stage 2       |0|1|2|3|0 |1 |2 |3 |            micro-batches; under each row what goes up and down

"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from dayfly.runs.report import stages
from dayfly.runs.report.markup import text
from dayfly.runs.report.reading import RunFiles
from dayfly.runs.report.spans import KINDS, Pairs, StepWork, joined, works
from dayfly.runs.report.stages import Stages, in_ms


@dataclass(frozen=True, slots=True)
class CutRun:
    """A run whose model was cut.

    Attributes:
        works: what its workers told of their steps, so far.
    """

    stages: Stages
    works: Sequence[StepWork]

    @classmethod
    def of(cls, run: RunFiles) -> Self | None:
        """None if the model was not cut.

        Where the settings leave the number of micro-batches to the job, the passes tell it. Workers
        of an earlier life that had more of them are left out.
        """
        stages = Stages.of(run.record.settings)
        if stages is None:
            return None
        now = stages.layout.world_size
        told = works({rank: of for rank, of in run.events.workers.items() if rank < now})
        if not stages.micro_batches:
            numbers = [number for work in told for _, number, _, _ in work.passes]
            micros = max(numbers, default=0) + 1
            if not stages.layout.even:  # numbered throughout the batch
                micros = -(-micros // max(stages.layout.each))
            stages = replace(stages, micro_batches=micros)
        return cls(stages, told)

    def words(self) -> str | None:
        """Which stage is the slowest, and the bubble; None before a step was told."""
        times = stages.by_stage(self.works, self.stages)
        return stages.words(times, self.stages) if times else None

    def tiles(self) -> list[tuple[str, str, str]]:
        """The form, and the bubble beside the ideal one."""
        form, _, more = self.stages.form().partition(", ")
        tiles = [("pipeline", form, more)]
        if times := stages.by_stage(self.works, self.stages):
            ideal = f"of a step; {self.stages.ideal_bubble:.1%} is ideal"
            tiles.append(("bubble", f"{stages.mean_bubble(times):.1%}", ideal))
        return tiles

    def section(self) -> str:
        """Words, the picture of the median step, and a table by stage."""
        times = stages.by_stage(self.works, self.stages)
        if not times:
            content = '<p class="note">No step has been reported yet.</p>'
        else:
            content = (
                f"<p>{text(stages.words(times, self.stages))}</p>"
                f"{chart(median_step(self.works), self.stages)}"
                f"{stages.stage_table(times, self.stages)}"
                f'<p class="note">{_NOTE}</p>'
            )
        return (
            '<section aria-labelledby="pipeline-title"><h2 id="pipeline-title">Pipeline</h2>'
            f"{content}</section>\n\n"
        )


_NOTE = (
    "The bubble is the share of a step in which a worker neither computes a pass nor applies the "
    "sum. In it, bare transfer is when something of the worker&#x27;s goes up or down, waiting is "
    "the rest. Ideal: (K &minus; 1) / (M + K &minus; 1) for K equal stages and M micro-batches, of "
    "fill-drain and 1F1B (GPipe, section 2.3). Steps taken from the log do not count."
)


#: Passes in a picture; where there are more, replicas are left out, each stage keeps one.
MOST_PASSES = 3000
# Pixels.
_NAMES, _HEAD, _ROW, _STRIP, _GAP, _AXIS, _RIGHT = 84, 20, 22, 4, 6, 24, 12
_WIDTHS = (980, 2600)
_LETTER = 7  # the most that a letter of a time is wide
#: Nine of ten passes are at least this wide if the widths allow: two digits and their margins.
_PASS = 17.0
_DIGIT = 6.6


def median_step(works: Sequence[StepWork]) -> list[StepWork]:
    """The step of median length among those that most workers told of whole, by worker."""
    steps: dict[tuple[int, int], list[StepWork]] = defaultdict(list)
    for work in works:
        steps[work.key].append(work)
    most = max(map(len, steps.values()), default=0)
    whole = [found for found in steps.values() if len(found) == most]
    whole.sort(key=lambda found: (_length_ms(found), found[0].key))
    if not whole:
        return []
    return sorted(whole[(len(whole) - 1) // 2], key=lambda work: work.worker)


def _began_s(step: Sequence[StepWork]) -> float:
    """When the first pass of a step began, in Unix seconds; whoever came earlier waited for it."""
    first = [work.began_s + work.passes[0][2] / 1000 for work in step if work.passes]
    return min(first or [work.began_s for work in step])


def _length_ms(step: Sequence[StepWork]) -> float:
    """From the first pass of a step to the end of its last worker."""
    return (max(w.began_s + w.length_ms / 1000 for w in step) - _began_s(step)) * 1000


def chart(step: Sequence[StepWork], stages: Stages) -> str:
    """The picture of a step, as `median_step` gives it, with a sentence under it."""
    shown = _fitting(step, stages)
    scale = _Scale.of(shown)
    rows, names, y = [], [], _AXIS
    last = None
    for work in shown:
        stage = stages.stage_of(work.worker)
        if stage != last:
            last = stage
            names.append(_text(2, y + 14, f"stage {stage}", "head"))
            title = stages.title(stage).partition(": ")[2]
            rows.append(_text(2, y + 14, title, "soft"))
            y += _HEAD
        replica = stages.replica_of(work.worker)
        name = "" if replica is None else f"replica {replica}"
        names.append(_text(2, y + 15, name or f"worker {work.worker}", "name"))
        rows += _row(work, stages.name(work.worker), y, scale)
        y += _ROW + 2 * _STRIP + _GAP
    ticks = list(_ticks(scale, y))
    number = step[0].key[1]
    label = f"Step {number} of all workers, drawn as time from left to right"
    left_out = len(step) - len(shown)
    note = (
        f"Step {number}, the median one of those told whole: {in_ms(scale.length_ms)}. "
        "Numbers are micro-batches; what is empty in a row is its bubble. Thin lines: uplink, "
        "downlink."
    )
    note += f" {left_out} replicas are left out, for room." if left_out else ""
    return (
        f'<div class="scroll gantt" tabindex="0" role="region" aria-label="{text(label)}">'
        f"{_svg(_NAMES, y, names, 'names', 'Workers')}"
        f"{_svg(scale.width, y, [*ticks, *rows], 'drawing', label)}</div>"
        f'<p class="keys">{_KEYS}</p><p class="note">{text(note)}</p>'
    )


_KEYS = "".join(
    f'<span><svg width="13" height="13" aria-hidden="true"><rect class="{name}" width="13" '
    f'height="13" rx="2"/></svg>{name}</span>'
    for name in (*KINDS.values(), "apply", "upload", "download")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Milliseconds since the first worker's step began, as pixels. numbered: passes one by one."""

    origin_s: float
    length_ms: float
    width: int
    numbered: bool

    @classmethod
    def of(cls, step: Sequence[StepWork]) -> _Scale:
        origin_s, length_ms = _began_s(step), _length_ms(step) or 1.0
        passes_ms = sorted(end - start for work in step for _, _, start, end in work.passes)
        short_ms = passes_ms[len(passes_ms) // 10] if passes_ms else length_ms
        wanted = _PASS * length_ms / short_ms if short_ms > 0 else 0.0
        least, most = _WIDTHS
        return cls(
            origin_s=origin_s,
            length_ms=length_ms,
            width=round(min(max(wanted, least), most)) + _RIGHT,
            numbered=len(passes_ms) <= MOST_PASSES,
        )

    def x(self, work: StepWork, at_ms: float) -> float:
        return self.at(max(0.0, (work.began_s - self.origin_s) * 1000 + at_ms))

    def at(self, ms: float) -> float:
        return round(ms / self.length_ms * (self.width - _RIGHT), 1)


def _fitting(step: Sequence[StepWork], stages: Stages) -> list[StepWork]:
    """As many replicas of every stage as there is room for, at least one."""
    replicas = max(stages.layout.each)
    while True:
        shown = [work for work in step if (stages.replica_of(work.worker) or 0) < replicas]
        if replicas == 1 or sum(len(work.passes) for work in shown) <= MOST_PASSES:
            return shown or list(step)
        replicas -= 1


def _row(work: StepWork, name: str, y: int, scale: _Scale) -> Iterator[str]:
    bottom = y + _ROW
    whole = [(0.0, work.length_ms)]
    yield _path("idle", _boxes(work, whole, y, _ROW, scale))
    if scale.numbered:
        yield from _numbered(work, name, y, scale)
    else:
        for what, kind in KINDS.items():
            pairs = [(start, end) for told, _, start, end in work.passes if told == what]
            close_ms = scale.length_ms / scale.width
            yield _path(kind, _boxes(work, joined(pairs, close_ms), y, _ROW, scale))
    yield _path("apply", _boxes(work, work.apply, y, _ROW, scale))
    yield _path("upload", _boxes(work, work.up, bottom + 1, _STRIP - 1, scale))
    yield _path("download", _boxes(work, work.down, bottom + _STRIP + 1, _STRIP - 1, scale))


def _numbered(work: StepWork, name: str, y: int, scale: _Scale) -> Iterator[str]:
    for what, number, start, end in work.passes:
        left, right = scale.x(work, start), scale.x(work, end)
        kind = KINDS[what]
        told = f"{kind} of micro-batch {number}, {in_ms(end - start)}, {name}"
        yield (
            f'<rect class="{kind}" x="{left:g}" y="{y}" width="{max(0.5, right - left):.1f}" '
            f'height="{_ROW}"><title>{text(told)}</title></rect>'
        )
        if right - left > _DIGIT * len(str(number)) + 2:
            middle = (left + right) / 2
            yield _text(middle, y + 15, str(number), f"of-{kind}")


def _boxes(work: StepWork, pairs: Pairs, y: int, height: int, scale: _Scale) -> str:
    """Rectangles as one path."""
    parts = []
    for start, end in pairs:
        left, right = scale.x(work, start), scale.x(work, end)
        parts.append(f"M{left:g} {y}h{max(0.5, right - left):.1f}v{height}H{left:g}z")
    return "".join(parts)


def _path(kind: str, drawn: str) -> str:
    return f'<path class="{kind}" d="{drawn}"/>' if drawn else ""


def _ticks(scale: _Scale, height: int) -> Iterator[str]:
    every = _round(scale.length_ms * 90 / scale.width)
    for place in range(int(scale.length_ms / every) + 1):
        x = scale.at(place * every)
        yield f'<path class="tick" d="M{x:g} {_AXIS - 6}V{height}"/>'
        label = f"{place * every:g} ms"
        if x + 2 + _LETTER * len(label) <= scale.width:
            yield _text(x + 2, 12, label, "soft")


def _round(rough: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 1e-3
    while power * 10 <= rough:
        power *= 10
    return next((times * power for times in (1, 2, 5) if times * power >= rough), 10 * power)


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{text(words)}</text>'


def _svg(width: int, height: int, parts: Sequence[str], kind: str, label: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'style="--share:{width}" role="img" aria-label="{text(label)}">{"".join(parts)}</svg>'
    )
