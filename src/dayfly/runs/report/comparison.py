"""Predicted against measured: what a run by a plan took, beside what was said beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dayfly.plan.plan import Plan
from dayfly.plan.prediction import Prediction
from dayfly.runs import events
from dayfly.runs.planned import PLAN, Planned
from dayfly.runs.record import read_record
from dayfly.runs.report.reading import RunFiles, tree_of
from dayfly.runs.report.spans import joined
from dayfly.runs.report.step_parts import PARTS, step_parts

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure. predicted, measured: in the unit that ends the name; None: not known."""

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

    totals: step, run, cost, memory of each stage. kinds: dollars of the bill. traffic: of all
    workers. parts: of a step, by what rank 0 did. differences: what was not in the plan, in words.
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
        record: Json,
        bill: Json | None,
        coordinator: Sequence[Json],
        rank_0: Sequence[Json],
    ) -> Self:
        """From what is in a run's directory; a run that goes on is compared as far as it is."""
        planned = Planned.load(record["planned"])
        result: Json = record.get("result") or {}
        said = plan.prediction
        parts = step_parts(rank_0)
        return cls(
            totals=(
                Compared("step_s", None if said is None else said.step_s, result.get("step_s")),
                Compared("run_s", None if said is None else said.run_s, lived_s(coordinator)),
                Compared(
                    "cost_usd", None if said is None else said.cost_usd, result.get("cost_usd")
                ),
                *_memory(said, record["settings"], coordinator),
            ),
            kinds=_by_kind(said, bill),
            traffic=_traffic(said, result),
            parts=tuple(
                Compared(
                    f"{name}_s", None if said is None else said.breakdown.get(name), parts.get(name)
                )
                for name in PARTS
            ),
            differences=tuple(_differences(planned, plan, record, coordinator)),
            unpredicted=planned.unpredicted,
        )


def compared(run: RunFiles) -> Comparison | None:
    """Of a run; None without a plan. Raises RequestError if its plan cannot be read."""
    if not run.record.get("planned"):
        return None
    plan = Plan.read(run.directory / PLAN)
    return Comparison.of(plan, run.record, run.bill, run.coordinator, run.workers.get(0, ()))


def compared_in(directory: Path) -> Comparison | None:
    """Of the run in a directory, of whose workers only rank 0's events are read."""
    record = read_record(directory)
    if not record.get("planned"):
        return None
    return Comparison.of(
        Plan.read(directory / PLAN),
        record,
        tree_of(directory / "bill.json"),
        events.records(directory / "events" / "coordinator.jsonl"),
        events.records(directory / "events" / "worker-0.jsonl"),
    )


def lived_s(coordinator: Sequence[Json]) -> float | None:
    """Seconds in which at least one function lived; None before the first.

    One whose end nobody recorded, as its coordinator was killed, lived until the last event before
    it was invoked anew.
    """
    lives: list[tuple[float, float]] = []
    running: dict[str, float] = {}
    last_at = 0.0
    for record in coordinator:
        if record["kind"] == "invoked":
            if (began := running.pop(record["function"], None)) is not None:
                lives.append((began, last_at))
            running[record["function"]] = record["at"]
        elif record["kind"] == "ended" and record["used"]["function"] in running:
            lives.append((running.pop(record["used"]["function"]), record["at"]))
        last_at = record["at"]
    lives += [(began, last_at) for began in running.values()]
    return sum(end - begin for begin, end in joined(lives, 0.0)) if lives else None


def _memory(said: Prediction | None, settings: Json, coordinator: Sequence[Json]) -> list[Compared]:
    """Peaks of each stage's functions."""
    stages = len(settings.get("cut") or ()) + 1
    members = settings["workers"] // stages
    peaks: dict[int, float] = {}
    for record in coordinator:
        if record["kind"] == "ended" and (peak := record.get("peak_mib")) is not None:
            stage = int(record["used"]["function"].rpartition("-")[2]) // members
            peaks[stage] = max(peak, peaks.get(stage, 0.0))
    foreseen = said.memory_mib if said is not None else ()
    return [
        Compared(
            "memory_peak_mib" if stages == 1 else f"stage_{stage}_memory_peak_mib",
            foreseen[stage] if stage < len(foreseen) else None,
            peaks.get(stage),
        )
        for stage in range(stages)
    ]


def _by_kind(said: Prediction | None, bill: Json | None) -> tuple[Compared, ...]:
    foreseen = said.by_kind if said is not None else {}
    billed = (bill or {}).get("by_kind", {})
    return tuple(
        Compared(f"{name}_usd", foreseen.get(name), billed.get(name))
        for name in dict.fromkeys((*billed, *foreseen))
        if billed.get(name) or foreseen.get(name)
    )


def _traffic(said: Prediction | None, result: Json) -> tuple[Compared, ...]:
    volume = said.run_volume if said is not None else None
    return (
        Compared("bytes_up", None if volume is None else volume.bytes_up, result.get("bytes_up")),
        Compared(
            "bytes_down", None if volume is None else volume.bytes_down, result.get("bytes_down")
        ),
        Compared(
            "requests",
            None if volume is None else volume.puts + volume.gets,
            result.get("requests"),
        ),
    )


def _differences(
    planned: Planned, plan: Plan, record: Json, coordinator: Sequence[Json]
) -> list[str]:
    """What came other than planned, or was asked for otherwise."""
    ended = [one for one in coordinator if one["kind"] == "ended"]
    deaths = sum(bool(one.get("death")) for one in ended)
    invoked = sum(one["kind"] == "invoked" for one in coordinator)
    backs = [one for one in coordinator if one["kind"] == "rolled back"]
    resumed = record.get("generation", 0) - record.get("rollbacks", 0)
    result: Json = record.get("result") or {}
    said = list(planned.overridden)
    said += [f"since a resume, {change}" for change in planned.changed]
    if deaths:
        said.append(f"{deaths} death{'s' * (deaths > 1)}")
    if backs:
        redone = sum(one["redone_steps"] for one in backs)
        said.append(f"{len(backs)} rollback{'s' * (len(backs) > 1)}, {redone} steps done again")
    if resumed:
        said.append(f"resumed {_times(resumed)}")
    foreseen = plan.prediction.invocations if plan.prediction is not None else None
    others = invoked - deaths - len(backs) * record["settings"]["workers"]
    if foreseen is not None and not resumed and others != foreseen:
        said.append(
            f"{others} functions started, without those after deaths, of {foreseen} planned"
        )
    epochs = result.get("epochs")
    if record.get("status") == "done" and epochs is not None and epochs != plan.job["epochs"]:
        said.append(f"ended after {epochs} of {plan.job['epochs']} epochs: the target was reached")
    if record.get("status") in ("failed", "stopped"):
        said.append(f"{record['status']} after {result.get('steps')} steps")
    return said


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
