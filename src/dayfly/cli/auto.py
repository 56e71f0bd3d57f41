"""`dayfly train --plan auto`: shows which plan was chosen, and hands it on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayfly.cli.catalogue import own_catalogue
from dayfly.cli.choosing import goal_of
from dayfly.cli.outcome import how_sure
from dayfly.job import Job
from dayfly.planning.plan import Plan
from dayfly.runs.api import by_plan
from dayfly.runs.auto import alternatives, auto_plan
from dayfly.runs.display import Display
from dayfly.runs.settings import Settings

#: Settings that bound the choice, and that the plan says then.
_BOUNDS = ("workers", "memory_mib")


def by_auto_plan(
    job: Job,
    file: Path,
    of_the_job: Mapping[str, Any],
    given: Mapping[str, Any],
    flags: Mapping[str, Any],
    display: Display,
) -> tuple[Job, Settings, Plan]:
    """Choose, and show it; returns what runs, and the plan.

    Args:
        job: with the epochs and batch of the run.
        file: the job's.
        of_the_job: what the command said of the job.
        given: what it said of the run.
        flags: of the command, by their names with underscores.
        display: is told the choice.

    Raises:
        RequestError: settings that cannot be, or no plan is as asked for.
        RunFailed: a function that measured failed.
    """
    own = own_catalogue(flags.get("own"))
    found = auto_plan(
        job,
        file.stem,
        file.resolve().parent,
        given,
        goal_of(flags),
        own=None if own is None else Path(own).expanduser(),
        note=display.note,
    )
    choice = found.choice
    display.note(f"plan: {choice.chosen}")
    display.note(f"plan: {choice.words}")
    for line in alternatives(choice):
        display.note(f"instead: {line}")
    display.note(f"how sure: {how_sure(choice.chosen.plan.prediction)}")
    if found.measured_s is not None:
        display.note(f"measuring took {found.measured_s:.0f} s; {found.profile} keeps the profile")
    rest = {name: value for name, value in given.items() if name not in _BOUNDS}
    return *by_plan(found.plan, "the plan", job, of_the_job, rest), found.plan
