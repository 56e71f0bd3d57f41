"""A scheduler, stepped through a whole run before anything starts.

scheduler   by epochs: a step an epoch      by steps: a step after every step
fails       OneCycleLR, SequentialLR, ...   made for fewer steps than the run has
"""

from __future__ import annotations

import warnings
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from dayfly.errors import RequestError, in_short
from dayfly.job import Job

#: Steps that are walked one by one; from there it is one jump to the run's last.
WALKED = 20_000


def check_scheduler(job: Job, scheduler: Any, steps: int) -> None:
    """Step a scheduler as often as a run does; it is of no further use then.

    Args:
        job: whose scheduler it is, and whose epochs are gone through.
        scheduler: just made, of an optimizer that nobody else uses.
        steps: of all epochs.

    Raises:
        RequestError: it fails, or takes the learning rate to what is no number.
    """
    if isinstance(scheduler, ReduceLROnPlateau) and not job.validate_every:
        raise RequestError(
            "the job's scheduler goes by the validation loss, and validate_every is 0: give a "
            "number from 1, or another scheduler"
        )
    by_steps = job.scheduler_every == "step"
    times = steps if by_steps else job.epochs
    done, error = walked(scheduler, times, jumps=True)
    if error is not None:
        unit = "step" if by_steps else "epoch"
        of_steps = f" ({job.epochs} epochs)" if by_steps else ""
        raise RequestError(
            f"the job's scheduler fails after {unit} {done + 1} of {times}{of_steps}: "
            f"{in_short(error)}: make it for as many {unit}s as the run has, or change "
            "scheduler_every or the epochs"
        ) from error


def walked(scheduler: Any, times: int, *, jumps: bool = False) -> tuple[int, Exception | None]:
    """Steps a scheduler; it is of no further use then.

    Args:
        scheduler: just made, of an optimizer that nobody else uses.
        times: steps of it.
        jumps: after `WALKED` steps go to the last one, so that it takes no time to speak of.

    Returns:
        The steps that it took, and why it takes no more; None: it took all.
    """
    done = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a scheduler that goes on without its optimizer
        try:
            while done < times:
                is_far = jumps and done == WALKED
                if is_far and isinstance(getattr(scheduler, "last_epoch", None), int):
                    scheduler.last_epoch += times - 1 - done
                    done = times - 1
                if isinstance(scheduler, ReduceLROnPlateau):
                    scheduler.step(1.0)
                else:
                    scheduler.step()
                done += 1
        except Exception as error:
            return done, error
    return done, None
