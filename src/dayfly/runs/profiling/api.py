"""`dayfly.profile`: a job, measured from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dayfly.job import Job
from dayfly.plan.profile import Profile
from dayfly.runs.api import checked_settings, main_directory, overridden
from dayfly.runs.displays import Lines, StandardError
from dayfly.runs.profiling import measuring


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
    what is being measured. settings: see `dayfly.runs.settings.Settings`, such as cpu_cores=,
    uplink_mb_per_s=, imitate=. `dayfly.plan.profile_file` writes and reads profiles.

    Raises RequestError if the request is wrong, and RunFailed if a function fails.
    """
    sizes = (memory_mib,) if isinstance(memory_mib, int) else tuple(memory_mib)
    for size in sizes:
        checked_settings(**settings, memory_mib=size)
    lines = Lines(StandardError())
    more: dict[str, Any] = {"told": lines.note, "note": lines.note} if progress else {}
    return measuring.profile(
        overridden(job, batch_size=batch_size),
        checked_settings(**settings),
        sizes,
        code=main_directory(),
        quick=quick,
        **more,
    )
