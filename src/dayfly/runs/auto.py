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
from dayfly.runs.made_with import made_here
from dayfly.runs.outer_of_job import with_outer
from dayfly.runs.planning_api import PROFILED
from dayfly.runs.plans import JobSpec
from dayfly.runs.profiling import measuring
from dayfly.runs.profiling.convergence import convergence
from dayfly.runs.profiling.convergence_query import ConvergenceQuery
from dayfly.runs.profiling.watch import pace_s
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import ship
from dayfly.runs.tariffs import tariff_of
from dayfly.runs.whole_files import replacing
from dayfly.specs.generations import Tariff
from dayfly.specs.methods import AXES, BSP, Method
from dayfly.specs.outer import OF_JOB
from dayfly.specs.protocols import PROTOCOLS
from dayfly.wire.collectives import check_name
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
#: Settings of one method; with them `sync` names one protocol.
_OF_METHOD = ("k", "outer", "outer_lr", "outer_momentum")


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
    **more: Any,
) -> tuple[Job, Settings, AutoPlan]:
    """Choose a plan, say which, and return what runs by it.

    Args:
        job, name, code, given, goal, note, more: as of `auto_plan`.
        of_the_job: what was asked of the job in place of its own values; None: not given.

    Raises:
        RequestError: as of `auto_plan`.
        RunFailed: likewise.
    """
    found = auto_plan(job, name, code, given, goal, note, **more)
    choice = found.choice
    note(f"plan: {choice.chosen}{choice.chosen.plan.candidate.samples}")
    note(f"plan: {choice.words}")
    for line in alternatives(choice):
        note(f"instead: {line}")
    if choice.asked.ways != (BSP,):
        for line in choice.notes:
            note(f"note: {line}")
    note(f"how sure: {how_sure(choice.chosen.plan.prediction)}")
    if found.measured_s is not None:
        note(f"measuring took {found.measured_s:.0f} s; {found.profile} keeps the profile")
    of_plan = {*_BOUNDS, "sync", "aggregators", *_OF_METHOD, *AXES}
    rest = {key: value for key, value in given.items() if key not in of_plan}
    # The choice was made for the job as it was asked for, and says epochs and batch.
    said = JobSpec.by(found.plan)
    other = said.batch_per_worker is None and said.batch_size != job.batch_size
    asked = {**of_the_job, "epochs": None, "batch_size": said.batch_size if other else None}
    return *by_plan(found.plan, "the plan", job, asked, rest), found


def query_of(
    job: Job, given: Mapping[str, Any], goal: Goal, efficiencies: Sequence[str] = ()
) -> PlanQuery:
    """Returns what a plan is chosen among.

    Args:
        job: with the epochs and batch of the run.
        given: settings of the run, by name. `sync` names methods, as of `dayfly plan`, or with `k`
            or an outer optimizer beside it one protocol.
        goal: which plan is chosen.
        efficiencies: as `PlanQuery` has them.

    Raises:
        RequestError: no such methods, or the job cannot be trained by one.
    """
    sync = given.get("sync", BSP.sync)
    names = tuple(one.strip() for one in sync.split(","))
    own = {name: given[name] for name in _OF_METHOD if given.get(name) is not None}
    if (aggregators := given.get("aggregators")) is not None:
        if sync not in PROTOCOLS or not PROTOCOLS[sync].staleness:
            raise RequestError(
                f"--aggregators {aggregators} beside --sync {sync}: a plan chooses how many sum, "
                f"unless the name of a method says it, such as hap:{aggregators}: say it there, or "
                "leave it out"
            )
        own["aggregators"] = aggregators
    if own:
        if len(names) > 1:
            flag = next(iter(own)).replace("_", "-")
            raise RequestError(
                f"--{flag} beside --sync {sync}: say it in the name of the method that it is of, "
                "such as local-sgd:8 or nesterov:20+outer-lr=0.5"
            )
        names = (str(Method(sync=sync, **own)),)
    axes: dict[str, Any] = {name: (given[name],) for name in AXES if given.get(name) is not None}
    # A batch that follows the workers the profile says.
    batch = job.batch_size if job.batch_per_worker is None else None
    asked = PlanQuery(
        goal=goal,
        batch_size=batch,
        epochs=job.epochs,
        methods=names,
        efficiencies=tuple(efficiencies),
        **axes,
    )
    if given.get("workers") is not None:
        asked = replace(asked, workers=given["workers"])
    for method in asked.ways:
        _check_outer(job, method)
    return asked


def _check_outer(job: Job, method: Method) -> None:
    """Raises RequestError if a job's own outer optimizer forbids a method, or a plan of it."""
    settings: dict[str, Any] = {"aggregators": 1} if method.leaves_open else {}
    settings |= {**method.settings, "workers": 1 + (method.aggregators or 1)}
    if with_outer(job, Settings(**settings)).outer == OF_JOB:
        raise RequestError(
            "an outer optimizer of the job's own cannot be planned, as no profile says what it "
            "keeps: give settings in place of --plan, or --outer nesterov and a job without it"
        )


def auto_plan(
    job: Job,
    name: str,
    code: Path | None,
    given: Mapping[str, Any],
    goal: Goal,
    note: Callable[[str], None],
    *,
    efficiencies: Sequence[str] = (),
    short: ConvergenceQuery | None = None,
) -> AutoPlan:
    """Measure a job, unless its profile is at hand and still true, and choose how to run it.

    Args:
        job: with the epochs and batch of the run.
        name: the job's.
        code: directory of its file; None: it has none.
        given: settings of the run, by name; None: not given. `workers` is how many there may be at
            most, and `memory_mib` the only size that is looked at; of methods as `query_of`.
        goal: which plan is chosen.
        note: told what is done.
        efficiencies: as `PlanQuery` has them.
        short: short runs that say how many samples methods take, unless the profile has them; None:
            none are made.

    Raises:
        RequestError: settings that cannot be, or no plan is as asked for.
        RunFailed: a function that measured failed.
    """
    if named := [name for name in ("each_memory_mib", "shares") if given.get(name)]:
        raise RequestError(
            f"--plan auto chooses among workers that are alike: leave out {' and '.join(named)}"
        )
    query = query_of(job, given, goal, efficiencies)
    if (collective := given.get("collective")) is not None:
        check_name(collective)
    if short is not None:
        short.check(job)
    own = given.get("catalogue")
    known = Catalogue(None if own is None else Path(own).expanduser())
    settings = {key: given[key] for key in PROFILED if given.get(key) is not None}
    sizes = _sizes(given, known)
    for size in sizes:
        checked_settings(**settings, memory_mib=size)
    file = _file(job, name, code, settings, sizes)
    profile, why = _at_hand(file)
    learnt = None if profile is None else profile.convergence
    measured_s, used = None, list[FunctionUse]()
    if profile is None or why:
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
        profile = replace(profile, convergence=learnt)  # what was learnt depends on no clock
        _keep(profile, file, note)
    else:
        note(f"plan: by the profile of this job in {file}")
    if short is not None and not short.answered_by(learnt, job, profile.samples):
        learnt = convergence(
            job,
            profile.samples,
            short,
            name=name,
            code=code,
            told=note,
            note=note,
            heard=used.append,
        )
        measured_s = (measured_s or 0.0) + learnt.took_s
        profile = replace(profile, convergence=learnt)
        _keep(profile, file, note)
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
    profile, why = _at_hand(_file(job, name, code, settings, _sizes(given, known)))
    return None if why else profile


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
    """The profile, if it is there; and why it is not true, or empty: it is."""
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
            why = f"as this machine takes {change:.2g} times what it took when it was made"
            return profile, why
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
