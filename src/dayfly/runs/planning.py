"""Plans of runs: what settings mean to the planner, what it predicts, and a plan's settings again.

Settings + job  ->  Configuration  ->  Prediction
     ^                                     |
     '------------- Plan <-----------------'
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.plan import trees
from dayfly.plan.configuration import Configuration
from dayfly.plan.plan import Plan
from dayfly.plan.prediction import Prediction
from dayfly.plan.profile import Profile
from dayfly.runs.allotment import allotment
from dayfly.runs.settings import Settings

#: Settings that a plan does not keep: they are of the machine on which it was made.
_OF_THE_MACHINE = ("catalogue",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of a job a prediction depends on, beside its profile.

    batch_size: of all workers. accumulate: pieces of a worker's share, unless settings say
    otherwise.
    """

    batch_size: int
    epochs: int = 1
    validate_every: int = 1
    accumulate: int = 1

    @classmethod
    def of(cls, job: Job) -> Self:
        """Of a job."""
        return cls(**{one.name: getattr(job, one.name) for one in fields(cls)})

    @classmethod
    def by(cls, plan: Plan) -> Self:
        """Of what a plan says of its job."""
        return cls(**plan.job)


def configuration(settings: Settings, wanted: Wanted) -> Configuration:
    """What the planner is asked about: the settings, with what they leave open decided.

    Raises RequestError for what the imitated platform does not have.
    """
    kinds = [allotment(kind).limits for kind in settings.kinds]
    return Configuration(
        workers=settings.workers,
        memory_mib=tuple(limits.memory_mib for limits in kinds),
        cut=settings.cut,
        replicas=settings.members,
        micro_batches=settings.micro_batches or wanted.accumulate,
        schedule=settings.schedule,
        sync=settings.sync,
        k=settings.round_steps,
        collective=settings.algorithm,
        aggregators=settings.aggregators,
        compress=settings.compress,
        batch_size=wanted.batch_size,
        epochs=wanted.epochs,
        validate_every=wanted.validate_every,
        lifetime_s=kinds[0].lifetime_s,
        cold_start_s=kinds[0].cold_start_s,
        checkpoint_every_s=settings.checkpoint_every_s,
    )


def configuration_of(plan: Plan, place: str = "plan") -> Configuration:
    """What a plan is of. Raises RequestError for settings that are not known or cannot be."""
    return configuration(settings_of(plan, place), Wanted.by(plan))


def settings_of(plan: Plan, place: str = "plan", **changes: Any) -> Settings:
    """The settings of a plan. changes: in their place, as flags beside --plan.

    place: the plan's file, in errors. Raises RequestError for settings that are not known, of
    another type, or that cannot be.
    """
    given = trees.given(Settings, plan.settings, f"{place}: settings")
    try:
        planned = Settings(**given)
    except RequestError as error:
        raise RequestError(f"{place}: settings: {error}") from error
    return planned.changed(**changes) if changes else planned


def plan_of(
    profile: Profile, settings: Settings, wanted: Wanted, prediction: Prediction | None = None
) -> Plan:
    """A plan of these: it says all that follows from the job, too."""
    tree = settings_tree(settings)
    if wanted.accumulate != 1:
        tree.setdefault("micro_batches", wanted.accumulate)
    job = {"batch_size": wanted.batch_size, "epochs": wanted.epochs}
    if wanted.validate_every != 1:
        job["validate_every"] = wanted.validate_every
    return Plan(settings=tree, job=job, profile=profile, prediction=prediction)


def settings_tree(settings: Settings) -> dict[str, Any]:
    """For a plan: the settings that are not the usual ones."""
    own = {one.name: (getattr(settings, one.name), one.default) for one in fields(settings)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, (value, usual) in own.items()
        if value != usual and name not in _OF_THE_MACHINE
    }


def read_plan(file: Path) -> Plan:
    """Raises RequestError, which names file and place, for what is no plan."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise RequestError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    return Plan.parse(text, str(file))


def write_plan(plan: Plan, file: Path) -> None:
    """Whole or not at all. Raises RequestError if it cannot be written."""
    beside = file.with_name(f".{file.name}.new")
    try:
        beside.write_text(plan.text(), encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RequestError(f"{str(file)!r} cannot be written: {error.strerror}") from error
