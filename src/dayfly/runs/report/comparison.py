"""Predicted against measured: what a run by a plan took, beside its prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dayfly.catalogue.metering import PROFILING
from dayfly.planning.plan import Plan, Prediction
from dayfly.runs.directory import PLAN
from dayfly.runs.events import Events, coordinator_events, worker_events
from dayfly.runs.phases import phases
from dayfly.runs.record_kinds import JobRunRecord, read_any
from dayfly.runs.report.markup import NOTHING, mb, shown, spoken, table, text, usd
from dayfly.runs.report.reading import RunFiles, read_bill
from dayfly.runs.report.spans import PARTS, joined, step_parts
from dayfly.runs.result import Result
from dayfly.runs.run_plan import Planned
from dayfly.runs.settings import Settings
from dayfly.specs.events import Begun, Ended, Event, Invoked, RolledBack, Told

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure.

    Attributes:
        predicted, measured: in the unit that ends the name; None: not known.
    """

    name: str
    predicted: float | None
    measured: float | None

    @property
    def error(self) -> float | None:
        """How much more was predicted than measured, as a share of that; None: not known."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run by a plan. Names of figures end with their unit, as keys of results do.

    Attributes:
        totals: step, start-up, training and total time, cost, memory of each stage.
        kinds: dollars of the bill.
        traffic: of all workers.
        parts: of a step, by what rank 0 did.
        differences: what was not in the plan, in words.
        unpredicted: why there is no prediction; None if there is one.
    """

    totals: tuple[Compared, ...]
    kinds: tuple[Compared, ...]
    traffic: tuple[Compared, ...]
    parts: tuple[Compared, ...]
    differences: tuple[str, ...]
    unpredicted: str | None

    @classmethod
    def of(
        cls,
        plan: Plan,
        record: JobRunRecord,
        bill: Json | None,
        coordinator: Sequence[Event],
        rank_0: Sequence[Told],
    ) -> Self:
        """From what is in a run's directory; a run that goes on is compared as far as it is."""
        planned = record.planned or Planned()
        result = record.result or Result(run_id=record.run_id, status=record.status)
        said = plan.prediction
        foreseen = {} if said is None else _foreseen(said)
        # No plan foresees what measuring the job cost: that came before it.
        profiling_usd = (bill or {}).get("by_kind", {}).get(PROFILING, 0.0)
        parts = step_parts(rank_0)
        spent = phases(Events(coordinator=tuple(coordinator), workers={0: tuple(rank_0)}))
        stepped = spent.training_s > 0
        return cls(
            totals=(
                Compared("step_s", foreseen.get("step_s"), result.step_s),
                Compared(
                    "startup_s", foreseen.get("startup_s"), spent.workers_s if stepped else None
                ),
                Compared("train_s", foreseen.get("train_s"), spent.training_s if stepped else None),
                Compared("total_s", foreseen.get("total_s"), lived_s(coordinator)),
                Compared("cost_usd", foreseen.get("cost_usd"), result.cost_usd - profiling_usd),
                *_memory(said, record.settings, coordinator),
            ),
            kinds=_by_kind(said, bill),
            traffic=tuple(
                Compared(name, foreseen.get(name), getattr(result, name))
                for name in ("bytes_up", "bytes_down", "requests")
            ),
            parts=tuple(
                Compared(f"{name}_s", foreseen.get(f"{name}_s"), parts.get(name)) for name in PARTS
            ),
            differences=(
                *_differences(planned, plan, record, coordinator),
                *([f"measuring the job, ${profiling_usd:.6f}"] if profiling_usd else ()),
            ),
            unpredicted=planned.unpredicted,
        )


def compared(run: RunFiles) -> Comparison | None:
    """Of a run; None without a plan. Raises RequestError if its plan cannot be read."""
    if not isinstance(run.record, JobRunRecord) or run.record.planned is None:
        return None
    plan, events = Plan.read(run.directory / PLAN), run.events
    return Comparison.of(plan, run.record, run.bill, events.coordinator, events.workers.get(0, ()))


def compared_in(directory: Path) -> Comparison | None:
    """Returns the comparison of the run in a directory; it reads only rank 0's events."""
    record = read_any(directory)
    if not isinstance(record, JobRunRecord) or record.planned is None:
        return None
    return Comparison.of(
        Plan.read(directory / PLAN),
        record,
        read_bill(directory),
        coordinator_events(directory / "events"),
        worker_events(directory / "events", 0),
    )


def lived_s(coordinator: Sequence[Event]) -> float | None:
    """Returns the seconds during which at least one function ran; None: none ran.

    A function whose end was not recorded, because its coordinator was killed, counts until the last
    event before its next invocation.
    """
    lives: list[tuple[float, float]] = []
    running: dict[int, float] = {}
    last_at = 0.0
    for one in coordinator:
        if isinstance(one, Invoked):
            if (began := running.pop(one.rank, None)) is not None:
                lives.append((began, last_at))
            running[one.rank] = one.at
        elif isinstance(one, Ended) and one.rank in running:
            lives.append((running.pop(one.rank), one.at))
        if not isinstance(one, Begun):
            last_at = one.at
    lives += [(began, last_at) for began in running.values()]
    return sum(end - begin for begin, end in joined(lives, 0.0)) if lives else None


def _memory(
    said: Prediction | None, settings: Settings, coordinator: Sequence[Event]
) -> list[Compared]:
    """Peaks of each stage's functions."""
    stages = settings.stages
    peaks: dict[int, float] = {}
    for one in coordinator:
        if isinstance(one, Ended) and one.peak_mib is not None:
            stage = settings.stage_of(one.rank)
            peaks[stage] = max(one.peak_mib, peaks.get(stage, 0.0))
    foreseen = said.memory_mib if said is not None else ()
    return [
        Compared(
            "memory_peak_mib" if stages == 1 else f"stage_{stage}_memory_peak_mib",
            _peak(foreseen, stage, stages),
            peaks.get(stage),
        )
        for stage in range(stages)
    ]


def _peak(foreseen: Sequence[float], stage: int, stages: int) -> float | None:
    """Of a stage; of a model that is not cut, of the workers that need most."""
    if stages == 1:
        return max(foreseen, default=None)
    return foreseen[stage] if stage < len(foreseen) else None


def _by_kind(said: Prediction | None, bill: Json | None) -> tuple[Compared, ...]:
    foreseen = said.by_kind if said is not None else {}
    billed = (bill or {}).get("by_kind", {})
    return tuple(
        Compared(f"{name}_usd", foreseen.get(name), billed.get(name))
        for name in dict.fromkeys((*billed, *foreseen))
        if billed.get(name) or foreseen.get(name)
    )


def _foreseen(said: Prediction) -> dict[str, float | None]:
    """Figures of a prediction by their names."""
    volume = said.run_volume
    return {
        "step_s": said.step_s,
        "startup_s": said.startup_s,
        "train_s": said.train_s,
        "total_s": said.total_s,
        "cost_usd": said.cost_usd,
        "bytes_up": volume.bytes_up,
        "bytes_down": volume.bytes_down,
        "requests": volume.puts + volume.gets,
        **{f"{name}_s": part for name, part in said.breakdown.items()},
    }


def _differences(
    planned: Planned, plan: Plan, record: JobRunRecord, coordinator: Sequence[Event]
) -> list[str]:
    """What came other than planned, or was asked for otherwise."""
    deaths = sum(one.death for one in coordinator if isinstance(one, Ended))
    invoked = sum(isinstance(one, Invoked) for one in coordinator)
    backs = [one for one in coordinator if isinstance(one, RolledBack)]
    resumed = record.generation - record.rollbacks - record.changes
    result = record.result
    said = list(planned.overridden)
    said += [f"since a resume, {change}" for change in planned.changed]
    if deaths:
        said.append(f"{deaths} death{'s' * (deaths > 1)}")
    if backs:
        redone = sum(one.redone_steps for one in backs)
        said.append(f"{len(backs)} rollback{'s' * (len(backs) > 1)}, {redone} steps done again")
    if resumed:
        said.append(f"resumed {_times(resumed)}")
    foreseen = plan.prediction.invocations if plan.prediction is not None else None
    others = invoked - deaths - len(backs) * record.settings.workers
    if foreseen is not None and not resumed and others != foreseen:
        said.append(
            f"{others} functions started, without those after deaths, of {foreseen} planned"
        )
    if result is not None and record.status == "done" and result.epochs != plan.job["epochs"]:
        said.append(
            f"ended after {result.epochs} of {plan.job['epochs']} epochs: the target was reached"
        )
    if result is not None and record.status in ("failed", "stopped"):
        said.append(f"{record.status} after {result.steps} steps")
    return said


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


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
    "Error: how much more was predicted than measured. The step is rank 0&#x27;s median. Start-up "
    "and total time count from the first invocation; total time is that in which functions lived. "
    "The cost is without that of measuring the job. "
    "Of a step, each moment counts once: for computing; else "
    "for overhead, which is applying the sum and what no span tells of; else for transfers; else "
    "for waiting (sync). Measured parts are medians of their own, and need not add up."
)
