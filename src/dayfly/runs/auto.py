"""`--plan auto`: a job is measured, unless that was done, and the best plan is chosen.

    job, its code, what of it was asked    a digest: is there a profile of exactly that?
    the machine's pace                     and is the machine as fast as it was then?

Profiles are kept in the user's cache, named by the digest of all that they depend on.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import FunctionUse
from dayfly.data.base import paths_of
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.json_files import cache_folder
from dayfly.life.platforms.base import Ended
from dayfly.planning.choose.front import Point, dollars, seconds
from dayfly.planning.conditions import MOST_PACE
from dayfly.planning.intervals import how_sure
from dayfly.planning.plan import Plan
from dayfly.planning.profile import Profile, profile_text, read_profile
from dayfly.runs.api import by_plan, checked_settings
from dayfly.runs.choosing.choice import Choice, choice_of
from dayfly.runs.choosing.places import usual_sizes
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.keywords import AUTO
from dayfly.runs.made_with import made_here
from dayfly.runs.outer_of_job import with_outer
from dayfly.runs.planning_api import PROFILED
from dayfly.runs.profiling import measuring
from dayfly.runs.profiling.watch import pace_s
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import ship
from dayfly.runs.tariffs import tariff_of
from dayfly.runs.whole_files import replacing
from dayfly.specs.generations import Tariff
from dayfly.specs.protocols import PROTOCOLS
from dayfly.wire.stores.files import FileStore

#: Memory sizes that are measured unless they are said: so many of the imitated platform's, from
#: the least that holds PyTorch and a model.
_SIZES, _LEAST_MIB = 3, 512
#: And where none is imitated: the size that functions without a limit are billed as.
_USUAL_MIB = 1769
#: Alternatives that are told.
_TOLD = 2
#: Settings that bound the choice, and that the plan says then.
_BOUNDS = ("workers", "memory_mib")
#: Settings that a job with an outer optimizer of its own has to fit.
_EXCHANGE = ("sync", "k", "outer", "fragments", "overlap")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoPlan:
    """What was found.

    Attributes:
        profile: where it is kept.
        measured_s: seconds of measuring it now; None: it was at hand.
        used: by the functions that measured it now.
    """

    choice: Choice
    profile: Path
    measured_s: float | None
    used: tuple[FunctionUse, ...]

    @property
    def plan(self) -> Plan:
        """The chosen one."""
        return self.choice.chosen.plan.plan


def by_auto_plan(
    job: Job,
    name: str,
    code: Path | None,
    of_the_job: Mapping[str, Any],
    given: Mapping[str, Any],
    goal: Goal,
    note: Callable[[str], None],
) -> tuple[Job, Settings, AutoPlan]:
    """Choose a plan, say which, and return what runs by it.

    Args:
        job, name, code, given, goal, note: as of `auto_plan`.
        of_the_job: what was asked of the job in place of its own values; None: not given.

    Raises:
        RequestError: as of `auto_plan`.
        RunFailed: likewise.
    """
    sync = given.get("sync", "bsp")
    if sync in PROTOCOLS and PROTOCOLS[sync].staleness:
        raise RequestError(
            f"--plan auto cannot have --sync {sync}, whose steps to a target differ: give workers, "
            f"memory, --aggregators and --shares {AUTO} in place of --plan"
        )
    exchange = {key: given[key] for key in _EXCHANGE if key in given}
    with_outer(job, Settings(**exchange))  # before anything is measured
    found = auto_plan(job, name, code, given, goal, note)
    choice = found.choice
    note(f"plan: {choice.chosen}")
    note(f"plan: {choice.words}")
    for line in alternatives(choice):
        note(f"instead: {line}")
    note(f"how sure: {how_sure(choice.chosen.plan.prediction)}")
    if found.measured_s is not None:
        note(f"measuring took {found.measured_s:.0f} s; {found.profile} keeps the profile")
    rest = {key: value for key, value in given.items() if key not in _BOUNDS}
    return *by_plan(found.plan, "the plan", job, of_the_job, rest), found


def auto_plan(
    job: Job,
    name: str,
    code: Path | None,
    given: Mapping[str, Any],
    goal: Goal,
    note: Callable[[str], None],
) -> AutoPlan:
    """Measure a job, unless its profile is at hand and still true, and choose how to run it.

    Args:
        job: with the epochs and batch of the run.
        name: the job's.
        code: directory of its file; None: it has none.
        given: settings of the run, by name; None: not given. `workers` is how many there may be at
            most, and `memory_mib` the only size that is looked at.
        goal: which plan is chosen.
        note: told what is done.

    Raises:
        RequestError: settings that cannot be, or no plan is as asked for.
        RunFailed: a function that measured failed.
    """
    if named := [name for name in ("each_memory_mib", "shares") if given.get(name)]:
        raise RequestError(
            f"--plan auto chooses among workers that are alike: leave out {' and '.join(named)}"
        )
    own = given.get("catalogue")
    known = Catalogue(None if own is None else Path(own).expanduser())
    settings = {key: given[key] for key in PROFILED if given.get(key) is not None}
    sizes = _sizes(given, known)
    for size in sizes:
        checked_settings(**settings, memory_mib=size)
    file = _file(job, name, code, settings, sizes)
    profile, why = _at_hand(file)
    measured_s, used = None, list[FunctionUse]()
    if profile is None:
        tariff = tariff_of(checked_settings(**settings))
        note(f"plan: measuring the job first, {why}; it takes some minutes, once")
        profile = measuring.profile(
            job,
            checked_settings(**settings),
            sizes,
            name=name,
            code=code,
            told=note,
            note=note,
            heard=lambda ended: used.append(_used(ended, tariff)),
        )
        measured_s = profile.took_s
        _keep(profile, file, note)
    else:
        note(f"plan: by the profile of this job in {file}")
    batch = job.batch_size if job.batch_per_worker is None else None  # the profile says it then
    query = PlanQuery(goal=goal, batch_size=batch, epochs=job.epochs)
    if given.get("workers") is not None:
        query = replace(query, workers=given["workers"])
    choice = choice_of((Target.of(profile, known),), query, note)
    return AutoPlan(choice=choice, profile=file, measured_s=measured_s, used=tuple(used))


def at_hand(job: Job, name: str, code: Path | None, given: Mapping[str, Any]) -> Profile | None:
    """Returns the profile that `auto_plan` has kept of a job, if it is still true.

    Args:
        job, name, code, given: as of `auto_plan`.
    """
    own = given.get("catalogue")
    known = Catalogue(None if own is None else Path(own).expanduser())
    settings = {key: given[key] for key in PROFILED if given.get(key) is not None}
    return _at_hand(_file(job, name, code, settings, _sizes(given, known)))[0]


def _file(
    job: Job,
    name: str,
    code: Path | None,
    settings: Mapping[str, Any],
    sizes: Sequence[int],
) -> Path:
    """Where its profile is kept."""
    return cache_folder("profiles") / f"{name}-{_digest(job, code, settings, sizes)[:16]}.json"


def _used(ended: Ended, tariff: Tariff) -> FunctionUse:
    spec = ended.invocation.spec
    return FunctionUse(
        memory_mib=spec.memory_mib,
        init_s=ended.init_s,
        run_s=ended.run_s,
        vcpus=tariff.vcpus,
        gpu_share=spec.gpu_share,
        price_list=tariff.price_list,
    )


def _sizes(given: Mapping[str, Any], known: Catalogue) -> tuple[int, ...]:
    """Memory sizes to measure: those that are asked for, or usual where functions are imitated."""
    if given.get("memory_mib") is not None:
        return (given["memory_mib"],)
    if given.get("imitate") is None:
        return (_USUAL_MIB,)
    sizes = usual_sizes(known.platform(given["imitate"]))
    return tuple(size for size in sizes if size >= _LEAST_MIB)[:_SIZES] or sizes[-1:]


def _digest(job: Job, code: Path | None, settings: Mapping[str, Any], sizes: Sequence[int]) -> str:
    """Of all that a profile depends on, but how fast the machine is today."""
    with tempfile.TemporaryDirectory(prefix="dayfly-") as scratch:
        alike = replace(job, epochs=1, seed=0)  # no step takes longer for any of them
        shipped = ship(alike, code, FileStore(Path(scratch) / "store"))
    data = None
    if not callable(job.data):
        places = [place for place in paths_of(job.data) if place.exists()]
        files = [one for it in places for one in (sorted(it.rglob("*")) if it.is_dir() else [it])]
        data = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
    depends = {
        "job": (shipped.job, shipped.code, data),
        "settings": {name: str(value) for name, value in settings.items()},
        "sizes": list(sizes),
        "machine": {**made_here(), "cores": len(os.sched_getaffinity(0))},
    }
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()


def _at_hand(file: Path) -> tuple[Profile | None, str]:
    """The profile, if it is there and still true; otherwise why there is none."""
    if not file.exists():
        return None, "as there is no profile of it as it is now"
    try:
        profile = read_profile(file)
    except RequestError as error:
        return None, f"as its profile cannot be read ({error})"
    paces = [one for size in profile.sizes if size.conditions for one in size.conditions.pace_s]
    if paces:
        change = pace_s() / (sum(paces) / len(paces))
        if not 1 / MOST_PACE <= change <= MOST_PACE:
            return None, f"as this machine takes {change:.2g} times what it took when it was made"
    return profile, ""


def _keep(profile: Profile, file: Path, note: Callable[[str], None]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as beside:
            beside.write_text(profile_text(profile))
    except OSError as error:
        note(f"plan: the profile cannot be kept in {file.parent}: {error.strerror}")


def alternatives(choice: Choice) -> list[str]:
    """The plans next to the chosen one, and why each lost, a sentence each."""
    chosen, goal = choice.chosen, choice.asked.goal
    on_front = [point for point in choice.front.points if point is not chosen]
    on_front.sort(key=lambda point: abs(choice.front.points.index(point) - _place(choice)))
    said = [f"{point}: {_why_not(point, chosen, goal)}" for point in on_front[:_TOLD]]
    for other in choice.others[: _TOLD - len(said)]:
        said.append(
            f"{other.plan.words}: slower and dearer, {seconds(other.seconds)} and "
            f"{dollars(other.usd)}"
        )
    return said


def _place(choice: Choice) -> int:
    return choice.front.points.index(choice.chosen)


def _why_not(point: Point[Any], chosen: Point[Any], goal: Goal) -> str:
    if goal.deadline_s is not None and point.seconds > goal.deadline_s:
        return f"it misses the deadline of {seconds(goal.deadline_s)}"
    if goal.budget_usd is not None and point.usd > goal.budget_usd:
        return f"it is beyond the budget of {dollars(goal.budget_usd)}"
    faster, dearer = chosen.seconds / point.seconds, point.usd / chosen.usd
    if faster > 1:
        return f"{faster:.2f} times as fast, for {dearer:.2f} times the dollars"
    return f"{dearer:.2f} times the dollars, and takes {1 / faster:.2f} times as long"
