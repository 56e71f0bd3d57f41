"""A choice as JSON, as `dayfly plan --json` prints it."""

from __future__ import annotations

from typing import Any

from dayfly.dataclass_json import dump
from dayfly.planning.choose.front import Point
from dayfly.planning.efficiency import Efficiency
from dayfly.runs.choosing.choice import Choice, certainty
from dayfly.runs.choosing.option import Option
from dayfly.runs.choosing.other_stores import OverStore


def tree(choice: Choice, output: str | None = None) -> dict[str, Any]:
    """For JSON."""
    return {
        "job": choice.job,
        "places": [
            {"platform": one.platform.name, "store": one.profile.channel} for one in choice.targets
        ],
        "front": [_point(choice, point) for point in choice.front.points],
        "chosen": choice.front.points.index(choice.chosen),
        "why": choice.words,
        "certainty": certainty(choice),
        "stores": [_over_store(one) for one in choice.stores],
        "why_store": choice.store_words or None,
        "gap": choice.gap,
        "considered": choice.considered,
        "predicted": choice.predicted,
        "notes": list(choice.notes),
        "took_s": choice.took_s,
        "epochs_to_target": None if choice.asked.reaching is None else dump(choice.asked.reaching),
        "output": output,
    }


def _efficiency(one: Efficiency) -> dict[str, Any]:
    """Without the curves, which the profile has."""
    return {name: value for name, value in dump(one).items() if name != "curves"}


def _over_store(one: OverStore) -> dict[str, Any]:
    said = None if one.option is None else one.option.prediction
    return {
        "store": one.store,
        "total_s": None if said is None else said.total_s,
        "seconds": None if said is None else said.total_s,  # its old name
        "usd": None if said is None else said.cost_usd,
        "breakdown_s": None if one.option is None else one.option.run_breakdown,
        "usd_by_kind": None if said is None else dict(said.by_kind),
        "why": one.why or None,
    }


def _point(choice: Choice, point: Point[Option]) -> dict[str, Any]:
    option, one = point.plan, point.plan.candidate
    plan = option.plan
    return {
        "startup_s": option.prediction.startup_s,
        "train_s": option.prediction.train_s,
        "total_s": option.prediction.total_s,
        "seconds": point.seconds,  # the old name of total_s
        "usd": point.usd,
        "words": one.words,
        "kind": one.kind,
        "platform": one.target.platform.name,
        "store": one.target.profile.channel,
        "needs": one.target.needs(one.settings.workers),
        "efficiency": None if one.efficiency is None else _efficiency(one.efficiency),
        "sure": one.target.sure,
        "derived": list(one.target.derived),
        "settings": plan.settings,
        "job": plan.job,
        "step_s": option.prediction.step_s,
        "breakdown_s": option.run_breakdown,
        "usd_by_kind": dict(option.prediction.by_kind),
        "memory_mib": list(option.prediction.memory_mib),
        "invocations": option.prediction.invocations,
        "interval": dump(option.prediction.interval),
        "warnings": list(option.prediction.warnings),
        "by": option.by,
        "limits": list(point.limits),
        "marks": list(choice.marks(point)),
    }
