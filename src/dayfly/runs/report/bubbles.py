"""How well a pipeline is filled: by stage, its passes, its bubble, and which stage holds it up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from dayfly.runs.report.markup import NOTHING, table
from dayfly.runs.report.passes import Work, length
from dayfly.runs.report.stages import Stages

#: A stage that takes less than this many times the mean of all is no bottleneck.
_SLOWER = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Medians of one stage, over its replicas and steps; milliseconds.

    forward_ms, backward_ms: of a micro-batch. computing_ms, up_ms, down_ms: of a step, how long
    each lane is busy. bubble: the share of a step, 0 to 1, in which nothing is computed;
    bare_transfer_ms of it something is moved, and in waiting_ms nothing.
    """

    stage: int
    forward_ms: float
    backward_ms: float
    apply_ms: float
    step_ms: float
    computing_ms: float
    up_ms: float
    down_ms: float
    bubble: float
    bare_transfer_ms: float
    waiting_ms: float


def by_stage(works: Sequence[Work], stages: Stages) -> list[StageTimes]:
    """In order of the stages; those that told nothing are left out."""
    found: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        found[stages.stage_of(work.worker)].append(work)
    return [_times(stage, found[stage]) for stage in sorted(found)]


def _times(stage: int, works: Sequence[Work]) -> StageTimes:
    def passes_ms(what: str) -> float:
        taken = [ms for work in works for ms in work.taken_ms(what)]
        return median(taken) if taken else 0.0

    idle_ms = [length(work.idle()) for work in works]
    bare_ms = [work.bare_transfer_ms() for work in works]
    return StageTimes(
        stage=stage,
        forward_ms=passes_ms("f"),
        backward_ms=passes_ms("b"),
        apply_ms=median(length(work.apply) for work in works),
        step_ms=median(work.length_ms for work in works),
        computing_ms=median(w.length_ms - ms for w, ms in zip(works, idle_ms, strict=True)),
        up_ms=median(length(work.up) for work in works),
        down_ms=median(length(work.down) for work in works),
        bubble=median(work.bubble() for work in works),
        bare_transfer_ms=median(bare_ms),
        waiting_ms=median(ms - bare for ms, bare in zip(idle_ms, bare_ms, strict=True)),
    )


def mean_bubble(times: Sequence[StageTimes]) -> float:
    """Over the stages, which have equally many workers; 0 to 1."""
    return fmean(one.bubble for one in times)


def words(times: Sequence[StageTimes], stages: Stages) -> str:
    """Which stage holds the pipeline up, what does so if it is no stage, and the bubble."""
    parts = [_slowest(times, stages)]
    busiest = max(times, key=lambda one: max(one.up_ms, one.down_ms))
    moving_ms = max(busiest.up_ms, busiest.down_ms)
    if moving_ms > max(one.computing_ms for one in times):
        link = "uplink" if busiest.up_ms >= busiest.down_ms else "downlink"
        parts.append(
            f"But the {link} of stage {busiest.stage} is busy for longer than any stage computes: "
            f"{in_ms(moving_ms)} of a step's {in_ms(busiest.step_ms)}."
        )
    parts.append(
        f"The bubble is {mean_bubble(times):.0%} of a step; {stages.ideal_bubble:.0%} would be "
        f"ideal for {stages.count} equal stages and {_micro_batches(stages)}."
    )
    return " ".join(parts)


def _slowest(times: Sequence[StageTimes], stages: Stages) -> str:
    slowest = max(times, key=_pass_ms)
    mean_ms = fmean(map(_pass_ms, times))
    if mean_ms <= 0 or _pass_ms(slowest) < _SLOWER * mean_ms:
        return f"No stage is a bottleneck: all compute for about {in_ms(mean_ms)} a micro-batch."
    return (
        f"Stage {slowest.stage} ({stages.layers(slowest.stage)}) is the slowest: "
        f"{in_ms(_pass_ms(slowest))} a micro-batch, {_pass_ms(slowest) / mean_ms:.2g} times the "
        "mean of the stages."
    )


def stage_table(times: Sequence[StageTimes], stages: Stages) -> str:
    """A row for each stage, and the mean of all."""
    heads = (
        "stage",
        "layers",
        "memory (MiB)",
        "forward (ms)",
        "backward (ms)",
        "apply (ms)",
        "step (ms)",
        "bubble",
        "bare transfer (ms)",
        "waiting (ms)",
    )
    rows = [
        (
            f"stage {one.stage}",
            stages.layers(one.stage).removeprefix("layers ").removeprefix("layer "),
            _memory(stages.memory(one.stage)),
            *_cells(one),
        )
        for one in times
    ]
    columns = list(zip(*(_numbers(one) for one in times), strict=True))
    means = [fmean(column) for column in columns]
    foot = ("mean", "", "", *_shown(means))
    caption = "By stage: medians of a micro-batch's passes, and of a step"
    return table(caption, heads, rows, foot=foot)


def _numbers(one: StageTimes) -> tuple[float, ...]:
    return (
        one.forward_ms,
        one.backward_ms,
        one.apply_ms,
        one.step_ms,
        one.bubble,
        one.bare_transfer_ms,
        one.waiting_ms,
    )


def _cells(one: StageTimes) -> list[str]:
    return _shown(_numbers(one))


def _shown(numbers: Sequence[float]) -> list[str]:
    bubble = 4
    return [
        f"{number:.1%}" if place == bubble else f"{number:.2f}"
        for place, number in enumerate(numbers)
    ]


def _memory(mib: int | None) -> str:
    return NOTHING if mib is None else str(mib)


def _pass_ms(one: StageTimes) -> float:
    return one.forward_ms + one.backward_ms


def _micro_batches(stages: Stages) -> str:
    return f"{stages.micro_batches} micro-batch{'es' * (stages.micro_batches > 1)}"


def in_ms(milliseconds: float) -> str:
    """`0.25 ms`, `12.3 ms`, `4730 ms`."""
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds:.0f} ms"
