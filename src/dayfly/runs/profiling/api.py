"""`dayfly.profile`: a job, measured from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.planning.profile import Profile
from dayfly.runs.api import checked_settings, main_directory, overridden
from dayfly.runs.displays import Lines, Silent, StandardError
from dayfly.runs.keywords import check_keywords
from dayfly.runs.profiling import measuring
from dayfly.runs.settings import Settings

#: Settings of `Settings` that a measurement depends on; the others belong to a prediction.
PROFILED = (
    "platform",
    "channel",
    "cpu_cores",
    "uplink_mb_per_s",
    "downlink_mb_per_s",
    "latency_ms",
    "imitate",
    "wait_timeout_s",
    "catalogue",
)


def profile(
    job: Job,
    *,
    memory_mib: int | Sequence[int] = (),
    batch_size: int | None = None,
    quick: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Profile:
    """Measure what a job takes in functions of each memory size; none: memory is not limited.

    batch_size: in place of the job's. quick: measure less often. progress: say on standard error
    what is being measured. settings: those of `dayfly.runs.settings.Settings` in `PROFILED`, such
    as cpu_cores=, uplink_mb_per_s=, imitate=. `dayfly.planning.profile_file` writes and reads
    profiles.

    Raises RequestError if the request is wrong, and RunFailed if a function fails.
    """
    check_keywords(settings, Settings)
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
