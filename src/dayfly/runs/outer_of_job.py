"""Which outer optimizer a job's run has: the settings', or the job's own."""

from __future__ import annotations

from dataclasses import replace

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.runs.settings import Settings
from dayfly.specs.outer import OF_JOB


def with_outer(job: Job, settings: Settings) -> Settings:
    """Returns the settings of a run that begins; they name the job's outer optimizer, if any.

    Args:
        job: that is to be trained.
        settings: as they were asked for.

    Raises:
        RequestError: job and settings name an outer optimizer each, or the protocol takes none.
    """
    if job.outer_optimizer is not None and settings.outer not in (None, OF_JOB):
        raise RequestError(
            f"--outer {settings.outer}: the job has an outer_optimizer of its own: leave out one "
            "of them"
        )
    if job.outer_optimizer is not None:
        if settings.protocol.outer is None and settings.outer is None:
            raise RequestError(
                f"the job has an outer_optimizer, and --sync {settings.sync} takes none: give "
                "--sync local-sgd --k N, or leave it out of the job"
            )
        settings = replace(settings, outer=OF_JOB)
    check_outer(job, settings)
    if settings.outer_optimizer is None:
        for flag, given in (("fragments", settings.fragments), ("overlap", settings.overlap)):
            if given is not None:
                raise RequestError(
                    f"--{flag} {given} streams outer gradients: give --sync local-sgd --k N "
                    "--outer nesterov, too, or leave it out"
                )
    return settings


def check_outer(job: Job, settings: Settings) -> None:
    """Raise RequestError unless a job has an outer optimizer just if its run has the job's own.

    Args:
        job: that is trained.
        settings: of its run.
    """
    if settings.outer == OF_JOB and job.outer_optimizer is None:
        raise RequestError(
            "the run goes by the job's own outer optimizer, and the job has none: give it "
            "outer_optimizer=, or --outer nesterov"
        )
    if settings.outer != OF_JOB and job.outer_optimizer is not None:
        raise RequestError(
            "the job has an outer_optimizer, and the run goes on as it began, without it: leave it "
            "out of the job"
        )
