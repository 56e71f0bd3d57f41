"""The stages of a pipeline: which worker is which replica, and how well each is filled.

--cut 4,9 --replicas 2      stage 0          stage 1          stage 2
layers                      0 to 3           4 to 8           9 to the last
workers                     0, 1             2, 3             4, 5

By stage: its passes, its bubble, and whether it is the bottleneck.

"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Self

from dayfly.runs.functions import FunctionSettings
from dayfly.runs.report.markup import NOTHING, table
from dayfly.runs.report.spans import StepWork, length
from dayfly.runs.settings import Settings
from dayfly.wire.pipelines.step import Layout

_SCHEDULES = {"fill-drain": "fill-drain", "1f1b": "1F1B"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A pipeline's form.

    Attributes:
        cut: the first layer of each stage but the first.
        replicas: of each stage, or one number for all.
        micro_batches: a replica's, of the stage with the most; 0 where the settings leave them to
            the job.
        memory_mib: of each stage's functions, None where nobody said.
    """

    cut: tuple[int, ...]
    replicas: int | tuple[int, ...] = 1
    micro_batches: int = 0
    schedule: str | None = None
    memory_mib: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, settings: FunctionSettings) -> Self | None:
        """From a run's settings; None if its model was not cut."""
        if not isinstance(settings, Settings) or not settings.cut:
            return None
        return cls(
            cut=settings.cut,
            replicas=settings.replicas or 1,
            micro_batches=settings.micro_batches or 0,
            schedule=settings.schedule,
            memory_mib=settings.stage_memory_mib or (settings.memory_mib,) * settings.stages,
        )

    @property
    def count(self) -> int:
        """How many stages there are."""
        return len(self.cut) + 1

    @property
    def ideal_bubble(self) -> float:
        """Share of a step in which a worker idles if all stages take equally long, 0 to 1.

        (K - 1) / (M + K - 1) for K stages and M micro-batches, of fill-drain as of 1F1B; nothing
        but passes takes time, and M is at least 1. GPipe (Huang et al. 2019), section 2.3.

        With d_s replicas of stage s, whose passes then take d_s times as long, K - 1 becomes the
        sum of all d_s less the least, and M the micro-batches of all replicas.
        """
        each = self.layout.each
        idle = sum(each) - min(each)
        return idle / (max(1, self.micro_batches) * max(each) + idle)

    @property
    def layout(self) -> Layout:
        """Which worker is which replica of which stage."""
        return Layout(self.count, self.replicas)

    def stage_of(self, worker: int) -> int:
        """The stage of a worker."""
        return self.layout.stage_rank(worker).stage

    def replica_of(self, worker: int) -> int | None:
        """Which replica of its stage a worker is; None: it is the only one."""
        own = self.layout.stage_rank(worker)
        return own.replica if self.layout.replicas_of(own.stage) > 1 else None

    def name(self, worker: int) -> str:
        """A worker, in words."""
        replica = self.replica_of(worker)
        of = "" if replica is None else f", replica {replica}"
        return f"stage {self.stage_of(worker)}{of} (worker {worker})"

    def short(self, worker: int) -> str:
        """A worker, where there is room for a few letters."""
        replica = self.replica_of(worker)
        return f"s{self.stage_of(worker)}" + ("" if replica is None else f"r{replica}")

    def layers(self, stage: int) -> str:
        """Which of the model's layers a stage has, both ends counted."""
        first = self.cut[stage - 1] if stage else 0
        if stage == self.count - 1:
            return f"layers {first} to the last"
        last = self.cut[stage] - 1
        return f"layers {first} to {last}" if first < last else f"layer {first}"

    def memory(self, stage: int) -> int | None:
        """The memory of a stage's functions, in MiB; None if nobody said."""
        return self.memory_mib[stage] if stage < len(self.memory_mib) else None

    def title(self, stage: int) -> str:
        """A stage with all that is known of it."""
        memory = self.memory(stage)
        return f"stage {stage}: {self.layers(stage)}" + (f", {memory} MiB" if memory else "")

    def form(self) -> str:
        """The pipeline in a few words."""
        parts = [f"{self.count} stages"]
        if self.layout.world_size > self.count:
            parts.append(f"{self.layout.in_words} replicas")
        if self.micro_batches:
            parts.append(f"{self.micro_batches} micro-batch{'es' * (self.micro_batches > 1)}")
        if self.schedule:
            parts.append(_SCHEDULES.get(self.schedule, self.schedule))
        return ", ".join(parts)


#: A stage that takes less than this many times the mean of all is no bottleneck.
_SLOWER = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Medians of one stage, over its replicas and steps; milliseconds.

    Attributes:
        forward_ms, backward_ms: of a micro-batch.
        computing_ms, up_ms, down_ms: of a step, how long each lane is busy.
        bubble: the share of a step, 0 to 1, in which nothing is computed; bare_transfer_ms of it
            something is moved, and in waiting_ms nothing.
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


def by_stage(works: Sequence[StepWork], stages: Stages) -> list[StageTimes]:
    """In order of the stages; those that told nothing are left out."""
    found: dict[int, list[StepWork]] = defaultdict(list)
    for work in works:
        found[stages.stage_of(work.worker)].append(work)
    return [_times(stage, found[stage]) for stage in sorted(found)]


def _times(stage: int, works: Sequence[StepWork]) -> StageTimes:
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
    """Over the stages; 0 to 1."""
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


#: Figures of a stage's row, by the heads of their columns.
_COLUMNS: Mapping[str, Callable[[StageTimes], float]] = {
    "forward (ms)": lambda one: one.forward_ms,
    "backward (ms)": lambda one: one.backward_ms,
    "apply (ms)": lambda one: one.apply_ms,
    "step (ms)": lambda one: one.step_ms,
    "bubble": lambda one: one.bubble,
    "bare transfer (ms)": lambda one: one.bare_transfer_ms,
    "waiting (ms)": lambda one: one.waiting_ms,
}


def stage_table(times: Sequence[StageTimes], stages: Stages) -> str:
    """A row for each stage, and the mean of all."""

    def cells(figures: Iterable[float]) -> list[str]:
        pairs = zip(_COLUMNS, figures, strict=True)
        return [f"{one:.1%}" if head == "bubble" else f"{one:.2f}" for head, one in pairs]

    rows = [
        (
            f"stage {one.stage}",
            stages.layers(one.stage).removeprefix("layers ").removeprefix("layer "),
            str(stages.memory(one.stage) or NOTHING),
            *cells(figure(one) for figure in _COLUMNS.values()),
        )
        for one in times
    ]
    means = (fmean(map(figure, times)) for figure in _COLUMNS.values())
    caption = "By stage: medians of a micro-batch's passes, and of a step"
    heads = ("stage", "layers", "memory (MiB)", *_COLUMNS)
    return table(caption, heads, rows, foot=("mean", "", "", *cells(means)))


def _pass_ms(one: StageTimes) -> float:
    return one.forward_ms + one.backward_ms


def _micro_batches(stages: Stages) -> str:
    return f"{stages.micro_batches} micro-batch{'es' * (stages.micro_batches > 1)}"


def in_ms(milliseconds: float) -> str:
    """`0.25 ms`, `12.3 ms`, `4730 ms`."""
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds:.0f} ms"
