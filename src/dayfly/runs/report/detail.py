"""How much of a timeline goes into a page: everything, or shares of time where there is too much.

    time     |  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7  |      bins of equal length
    events   begin                death                   end
    order       1     5     8     2     6     9     7     3         by distance to the nearest event
    page     |each |each |share|each |each |share|share|each |

Bins are taken in that order, each span in them is drawn by itself, and the first bin that would
exceed the budget ends it. Elsewhere the page shows which share of a bin each kind took.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import inf
from typing import Any, TypeVar

from dayfly.runs.report.spans import Pass, Step, TimeSpan
from dayfly.runs.report.stages import Stages
from dayfly.runs.report.timeline import Band, Timeline

AnyPart = TypeVar("AnyPart", bound=TimeSpan | Step | Pass)
#: Spans, steps and passes that a page has at most by themselves, about 1.5 MB.
SPANS = 150_000
#: Shares that a page has at most, about 1 MB.
SHARES = 300_000
#: Times are whole numbers of this many seconds.
UNIT_S = 1e-5
_MOST_BINS = 2000
#: A share is a whole number of this many parts.
_PARTS = 1000


@dataclass(frozen=True, slots=True)
class Detail:
    """How finely a timeline is drawn.

    Attributes:
        windows: times in which spans are drawn one by one: begin and end, in seconds.
        bin_s: width of a bin elsewhere; None: all is drawn one by one.
        bins: number of bins.
        total: number of spans, steps and passes of the run.
    """

    windows: tuple[tuple[float, float], ...]
    bin_s: float | None
    bins: int
    total: int

    def coarse(self) -> Iterator[int]:
        """The bins of which only shares are shown."""
        if self.bin_s is not None:
            for place in range(self.bins):
                if not self.shows((place + 0.5) * self.bin_s):
                    yield place

    def shows(self, at_s: float) -> bool:
        """Whether a moment lies in a window; the end belongs to the last one."""
        place = bisect_right(self.windows, (at_s, inf)) - 1
        if place < 0:
            return False
        end_s = self.windows[place][1]
        return at_s < end_s or (at_s == end_s and place == len(self.windows) - 1)


def choose(timeline: Timeline, *, spans: int = SPANS, shares: int = SHARES) -> Detail:
    """What to draw one by one, within budgets of spans (and steps and passes) and of shares."""
    drawn = [part for band in timeline.bands for part in _parts(band)]
    if len(drawn) <= spans or not timeline.length_s:
        return Detail(((0.0, timeline.length_s),), None, 0, len(drawn))
    rows = sum(len(band.spans) for band in timeline.bands)
    bins = max(1, min(_MOST_BINS, shares // max(1, rows)))
    bin_s = timeline.length_s / bins
    inside = [0] * bins
    for part in drawn:
        for place in _bins(part, bin_s, bins):
            inside[place] += 1
    events = {0, bins - 1}
    for band in timeline.bands:
        for one in band.attempts:
            if one.end in ("death", "lost"):
                events.add(min(bins - 1, int(one.end_s / bin_s)))
    chosen: list[int] = []
    for place in _by_distance(sorted(events), bins):
        spans -= inside[place]
        if spans < 0:
            break
        chosen.append(place)
    return Detail(tuple(_windows(sorted(chosen), bin_s)), bin_s, bins, len(drawn))


def tree(timeline: Timeline, detail: Detail, stages: Stages | None = None) -> dict[str, Any]:
    """For the page's script. Times count in units of `UNIT_S`.

    Spans are `[gap, length, gap, length, ...]`, where a gap begins at the end of the one before;
    steps are `[gap, length, number, computed, ...]` in the same way; shares are in thousandths, a
    number each coarse bin. Of a pipeline, bands have names and stand in groups, [first worker,
    title], and passes are `[gap, length, number, ...]`: twice the micro-batch, and one if backward.
    """
    coarse = tuple(detail.coarse())
    bands = [_band(band, detail, coarse) for band in timeline.bands]
    groups = {}
    if stages is not None:
        for band, made in zip(timeline.bands, bands, strict=True):
            made |= {
                "name": stages.name(band.worker),
                "short": stages.short(band.worker),
                "passes": _encoded(
                    _begun(band.passes, detail),
                    lambda one: (2 * one.micro_batch + (one.what == "b"),),
                ),
            }
        groups = {
            "groups": [
                [stages.layout.stage_ranks(stage).start, stages.title(stage)]
                for stage in range(stages.count)
            ]
        }
    return {
        "unit_s": UNIT_S,
        "length": _units(timeline.length_s),
        "windows": [[_units(start_s), _units(end_s)] for start_s, end_s in detail.windows],
        "bin": None if detail.bin_s is None else detail.bin_s / UNIT_S,
        "coarse": coarse,
        "pauses": [[_units(pause.at_s), pause.left_out_s] for pause in timeline.pauses],
        "checkpoints": [[_units(at_s), step] for at_s, step in timeline.checkpoints],
        "stops": [_units(at_s) for at_s in timeline.stops],
        "rollbacks": [
            [_units(one.at), one.to_step, one.redone_steps, one.cause] for one in timeline.rollbacks
        ],
        "changes": [[_units(one.at), one.first_step, one.changes] for one in timeline.changes],
        "bands": bands,
        **groups,
    }


def _band(band: Band, detail: Detail, coarse: Sequence[int]) -> dict[str, Any]:
    return {
        "worker": band.worker,
        "attempts": [
            [
                one.life,
                one.number,
                _units(one.start_s),
                None if one.ready_s is None else _units(one.ready_s),
                _units(one.end_s),
                one.end,
                one.why,
            ]
            for one in band.attempts
        ],
        "steps": _encoded(
            _begun(band.steps, detail), lambda step: (step.number, int(step.computed))
        ),
        "spans": {
            kind: _encoded(_clipped(spans, detail.windows)) for kind, spans in band.spans.items()
        },
        "shares": {
            kind: _shares(spans, detail, coarse) for kind, spans in band.spans.items() if coarse
        },
    }


def _clipped(
    spans: Iterable[TimeSpan], windows: Sequence[tuple[float, float]]
) -> Iterator[TimeSpan]:
    """The parts of spans that lie in the windows."""
    for span in spans:
        first = max(0, bisect_right(windows, (span.start_s, inf)) - 1)
        for start_s, end_s in islice(windows, first, None):
            if start_s >= span.end_s:
                break
            if span.start_s < end_s:
                yield TimeSpan(span.kind, max(span.start_s, start_s), min(span.end_s, end_s))


def _encoded(
    parts: Iterable[AnyPart], more: Callable[[AnyPart], Sequence[int]] | None = None
) -> list[int]:
    """Gap and length of each, and `more` numbers."""
    numbers: list[int] = []
    last = 0
    for part in parts:
        start, end = _units(part.start_s), _units(part.end_s)
        numbers += [start - last, end - start, *(more(part) if more else ())]
        last = end
    return numbers


def _begun(parts: Iterable[AnyPart], detail: Detail) -> Iterator[AnyPart]:
    """Those that begin in a window, whole."""
    for part in parts:
        if detail.shows(part.start_s):
            yield part


def _shares(spans: Iterable[TimeSpan], detail: Detail, coarse: Sequence[int]) -> list[int]:
    assert detail.bin_s is not None
    taken_s = [0.0] * detail.bins
    for span in spans:
        for place in _bins(span, detail.bin_s, detail.bins):
            start_s = max(span.start_s, place * detail.bin_s)
            end_s = min(span.end_s, (place + 1) * detail.bin_s)
            taken_s[place] += max(0.0, end_s - start_s)
    return [round(_PARTS * taken_s[place] / detail.bin_s) for place in coarse]


def _parts(band: Band) -> Iterator[TimeSpan | Step | Pass]:
    yield from band.steps
    yield from band.passes
    for spans in band.spans.values():
        yield from spans


def _bins(part: TimeSpan | Step | Pass, bin_s: float, bins: int) -> range:
    """The bins that it touches."""
    return range(
        min(bins - 1, int(part.start_s / bin_s)), min(bins - 1, int(part.end_s / bin_s)) + 1
    )


def _by_distance(events: Sequence[int], bins: int) -> list[int]:
    """All bins, those nearest to an event first, the earlier of two equally near."""

    def distance(place: int) -> int:
        after = bisect_right(events, place)
        return min(abs(place - event) for event in events[max(0, after - 1) : after + 1])

    return sorted(range(bins), key=lambda place: (distance(place), place))


def _windows(places: Iterable[int], bin_s: float) -> Iterator[tuple[float, float]]:
    """Chosen bins, neighbours joined."""
    for _, group in groupby(enumerate(places), key=lambda item: item[1] - item[0]):
        run = [place for _, place in group]
        yield run[0] * bin_s, (run[-1] + 1) * bin_s


def _units(seconds: float) -> int:
    return round(seconds / UNIT_S)
