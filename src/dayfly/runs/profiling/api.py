"""`dayfly.profile`: a job, measured from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack, get_type_hints

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.planning.profile import Profile
from dayfly.runs.api import checked_settings, main_directory, overridden
from dayfly.runs.displays import Lines, Silent, StandardError
from dayfly.runs.keywords import ProfileKeywords, check_keywords, shows
from dayfly.runs.profiling import measuring
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
    progress: bool = True,
    **settings: Unpack[ProfileKeywords],
) -> Profile:
    """Measures what a job takes in functions of each memory size.

    Args:
        job: what is to be trained.
        memory_mib: memory sizes in MiB, one or several; empty: memory is not limited.
        batch_size: samples of a step, in place of the job's.
        quick: measure less often: sooner done, and less sure.
        progress: say on standard error what is being measured.
        settings: of functions and channel, such as `cpu_cores`, `uplink_mb_per_s` or `imitate`; see
            `dayfly.runs.settings.Settings`.

    Returns:
        The profile, for `dayfly.predict` and `dayfly.plan`. `dayfly.planning.profile_file` writes
        and reads profiles.

    Raises:
        RequestError: the request is wrong.
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
    say = Lines(StandardError()).note if progress else Silent().note
    return measuring.profile(
        overridden(job, batch_size=batch_size),
        checked_settings(**settings),
        sizes,
        code=main_directory(),
        quick=quick,
        told=say,
        note=say,
    )
