"""`dayfly.profile` and `dayfly.plan`: a job is measured, and its best plans chosen, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack, get_type_hints

from dayfly.catalogue.gpu import GpuRequest
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.planning.choose.front import Front
from dayfly.planning.profile import Profile, read_profile
from dayfly.runs.api import checked_settings, main_directory, of_one_batch, overridden
from dayfly.runs.choosing.choice import Choice, choice_of
from dayfly.runs.choosing.option import Option
from dayfly.runs.choosing.query import TIME_LIMIT_S, Goal, PlanQuery
from dayfly.runs.choosing.reaching import reaching
from dayfly.runs.choosing.targets import TargetQuery, targets_of_job, targets_of_profiles
from dayfly.runs.display import Display, Lines, StandardError
from dayfly.runs.keywords import ChoiceKeywords, ProfileKeywords, check_keywords, shows
from dayfly.runs.profiling import measuring
from dayfly.runs.profiling.convergence import ConvergenceFailed
from dayfly.runs.profiling.convergence import convergence as measured_convergence
from dayfly.runs.profiling.convergence_query import ConvergenceQuery
from dayfly.runs.settings import Settings

#: Settings of `Settings` that a measurement depends on; the others belong to a prediction.
PROFILED = tuple(get_type_hints(ProfileKeywords))


@shows(ProfileKeywords)
def profile(
    job: Job,
    *,
    memory_mib: int | Sequence[int] = (),
    batch_size: int | None = None,
    quick: bool = False,
    repeat: int = 1,
    convergence: str | ConvergenceQuery | None = None,
    progress: bool = True,
    **settings: Unpack[ProfileKeywords],
) -> Profile:
    """Measures what a job takes in functions of each memory size.

    Args:
        job: what is to be trained.
        memory_mib: memory sizes in MiB, one or several; empty: memory is not limited.
        batch_size: samples of a step, in place of the job's.
        quick: measure less often: sooner done, and less sure.
        repeat: times as often: later done, and surer.
        convergence: methods of which short runs are to say how many samples they take to the loss
            of bsp, such as "bsp,local-sgd:8"; with seeds, epochs and the rest as a
            `ConvergenceQuery` of `dayfly.runs.profiling.convergence_query`. None: not measured.
        progress: say on standard error what is being measured.
        settings: of functions and channel, such as `cpu_cores`, `uplink_mb_per_s` or `imitate`; see
            `dayfly.runs.settings.Settings`.

    Returns:
        The profile, for `dayfly.predict` and `dayfly.plan`. `dayfly.planning.profile` writes
        and reads profiles.

    Raises:
        RequestError: the request is wrong.
        ConvergenceFailed: short runs came to no target; its `profile` is what was measured before.
        RunFailed: a function fails.
    """
    check_keywords(settings, Settings, beside=profile)
    for name in settings:
        if name not in PROFILED:
            raise RequestError(
                f"{name} changes nothing of a profile, which is of one function's steps: leave it "
                "out, and give it to dayfly predict, or dayfly.plan"
            )
    sizes = tuple(memory_mib) if isinstance(memory_mib, list | tuple) else (memory_mib,)
    for size in sizes:
        checked_settings(**settings, memory_mib=size)
    say = Lines(StandardError()).note if progress else Display().note
    whole, code = overridden(job, batch_size=batch_size), main_directory()
    short = ConvergenceQuery.parse(convergence) if isinstance(convergence, str) else convergence
    if short is not None:
        short.check(whole)
    found = measuring.profile(
        whole,
        checked_settings(**settings),
        sizes,
        code=code,
        quick=quick,
        repeat=repeat,
        told=say,
        note=say,
    )
    if short is None:
        return found
    try:
        learnt = measured_convergence(whole, found.samples, short, code=code, told=say, note=say)
    except (RequestError, RunFailed) as failure:
        raise ConvergenceFailed(str(failure), found) from failure
    return replace(found, convergence=learnt)


@shows(ChoiceKeywords)
def plan(
    job: Job | Profile | str | Path,
    *,
    platform: str | Sequence[str] = (),
    store: str | Sequence[str] = (),
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    assumed: Mapping[str, float] | None = None,
    gpu: str | None = None,
    everywhere: bool = False,
    catalogue: str | Path | None = None,
    curve: str | Path | None = None,
    **asked: Unpack[ChoiceKeywords],
) -> Front[Option]:
    """Chooses the best plans of a job over platforms and stores.

    Args:
        job: a job, its profile, or the file of one.
        platform: names of the catalogue; a profile has its own, and others by its FLOPs.
        store: names of the catalogue; a profile has its own.
        deadline_s: most seconds of the run. `front.cheapest_within` and its neighbours choose.
        budget_usd: most dollars of the run.
        time_limit_s: most seconds of search and re-ranking, about.
        assumed: of a job, what is said in place of the catalogue's rows
            (`dayfly.planning.catalogued.Assumed`).
        gpu: type of GPU of the functions, and the share of one, as `T4` or `T4:0.25`; without
            platforms those that have it.
        everywhere: all places of the catalogue, in place of platform, store and gpu.
        catalogue: directory of your own rows.
        curve: a run of the job whose validations say how many epochs `target_loss` or
            `target_accuracy` takes: its directory, or its URL.
        asked: what the choice is among, such as `workers` (most functions at once) or `memory_mib`;
            see `dayfly.runs.choosing.query.PlanQuery`.

    Returns:
        The front of seconds against dollars, by rising seconds. A point's `plan.plan` goes to
        `dayfly.train(job, plan=...)`.

    Raises:
        RequestError: the request is wrong, or no plan keeps deadline and budget: with what binds
            and the nearest plan.
    """
    # Those left out are keywords of this function, or made of them.
    check_keywords(asked, PlanQuery, without=("goal", "time_limit_s", "reaching"), beside=plan)
    goal = Goal(deadline_s=deadline_s, budget_usd=budget_usd)
    wanted = PlanQuery(goal=goal, time_limit_s=time_limit_s, **asked)
    if curve is not None:
        wanted = reaching(wanted, curve)
    own = None if catalogue is None else Path(catalogue).expanduser()
    if everywhere and (platform or store or gpu is not None):
        raise RequestError(
            "everywhere looks at all platforms, stores and GPUs: leave out platform, store and "
            "gpu, or everywhere"
        )
    names = _names(platform), _names(store)
    return chosen(job, *names, wanted, assumed or {}, own, gpu, everywhere=everywhere).front


def chosen(
    job: Job | Profile | str | Path,
    platforms: Sequence[str],
    stores: Sequence[str],
    asked: PlanQuery,
    assumed: Mapping[str, float],
    own: Path | None,
    gpu: str | None = None,
    *,
    everywhere: bool = False,
) -> Choice:
    """The choice behind `plan`, with its recommendation."""
    known = Catalogue(own)
    query = TargetQuery(
        platforms=platforms,
        stores=stores,
        memory_mib=asked.memory_mib,
        most_workers=asked.workers,
        assumed={name: (value,) for name, value in assumed.items()},
        gpu=None if gpu is None else GpuRequest.parse(gpu),
        everywhere=everywhere,
        known=known,
    )
    if isinstance(job, Job):
        places = targets_of_job(of_one_batch(job, asked.largest_batch), "job", query)
    else:
        profile = job if isinstance(job, Profile) else read_profile(Path(job))
        places = targets_of_profiles([profile], query)
    return choice_of(places, asked)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(given.split(",")) if isinstance(given, str) else tuple(given)
