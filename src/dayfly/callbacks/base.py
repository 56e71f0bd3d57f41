"""What a callback is, and the run as it sees it. No torch.

coordinator   start | on_run_start                                        | on_run_end
boundary            |        on_epoch_end -> store -> tell the workers    |
queue               | on_event, on_event, ... in a thread of its own      |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dayfly.errors import RequestError

if TYPE_CHECKING:
    from dayfly.job import Job
    from dayfly.specs.events import Event


class RunView(Protocol):
    """A run that is under way, as its callbacks see it.

    Attributes:
        run_id: the run's.
        directory: of the run's files.
        job: what is trained; `job.epochs` is the epoch to which it goes.
        result: in `on_run_end`, how the run ended, as `Run.result` is; None before.
    """

    run_id: str
    directory: Path
    job: Job
    result: Any

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dict an epoch that is done, in order, as of `Run.history`: copies."""
        ...

    def stop(self, reason: str = "callback") -> None:
        """Ends the run, done, at this boundary. In `on_epoch_end` only.

        Args:
            reason: in a word, as `stop_reason` has it.

        Raises:
            RequestError: it is no boundary, or the reason is empty or longer than 100 characters.
        """

    def keep(self, name: str) -> None:
        """Keeps the weights of this boundary as `kept/NAME.safetensors`. In `on_epoch_end` only.

        Args:
            name: letters, digits, `-`, `_` and `.`, at most 100, not beginning with `-` or `.`.

        Raises:
            RequestError: it is no boundary, or the name is another.
        """

    def scale(self, **changes: Any) -> None:
        """Has the run go on by another plan from this boundary on. In `on_epoch_end` only.

        After a last epoch, or where the run ends, nothing changes.

        Args:
            changes: settings as of `Run.scale`, such as `workers=8`; what the run has already
                stays as it is.

        Raises:
            RequestError: it is no boundary, or the run cannot have these settings.
        """


class Callback:
    """Hears of a run in its coordinator. Override what you need.

    A callback travels with the job, so it must be picklable; open files and connections belong
    into `on_run_start`. A resumed run has a fresh copy: decide from `run.history`, not from what
    the callback noted. One that raises fails the run with its traceback.

    Args:
        optional: one that raises is switched off instead, which is said; the run goes on.

    Examples:
        >>> import dayfly
        >>> class Falling(dayfly.callbacks.Callback):
        ...     def on_epoch_end(self, run, record):
        ...         if record["train_loss"] < 0.1:
        ...             run.stop("low-enough")
        >>> Falling(optional=True).optional
        True
    """

    optional: bool = False

    def __init__(self, *, optional: bool = False) -> None:
        self.optional = optional

    def on_run_start(self, run: RunView) -> None:
        """The run begins, or goes on after a resume; no function was started yet."""

    def on_epoch_end(self, run: RunView, record: dict[str, Any]) -> None:
        """An epoch ended, and the workers wait: they do so only where this is overridden.

        It may call `run.stop`, `run.keep` and `run.scale`. That is stored with its step, so after a
        death or a resume the same epoch is not asked about again.

        Args:
            run: `run.history` ends with the record.
            record: of the epoch, as of `Run.history`.
        """

    def on_event(self, run: RunView, event: Event) -> None:
        """Hears of an event, in a thread of the callback's own.

        It stalls nobody: at most 10,000 events wait, more are dropped and counted. Each worker
        tells of an epoch, so the same epoch may come several times.

        Args:
            run: the run.
            event: of `dayfly.specs.events`.
        """

    def on_run_end(self, run: RunView) -> None:
        """The run ended, also if it failed; `run.result` says how. Its results are written."""


def overrides(callback: Callback, method: str) -> bool:
    """Whether a callback has a method of its own."""
    return getattr(type(callback), method) is not getattr(Callback, method)


def checked(callbacks: Any) -> tuple[Callback, ...]:
    """Callbacks as a user gives them. Raises RequestError for what is none."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, (list, tuple)):
        raise RequestError(
            f"callbacks are {type(callbacks).__name__}: give a list of dayfly.callbacks.Callback"
        )
    for one in callbacks:
        if not isinstance(one, Callback):
            found = f"the class {one.__name__}" if isinstance(one, type) else type(one).__name__
            raise RequestError(
                f"a callback is {found}: give an object of a subclass of dayfly.callbacks.Callback"
            )
    return tuple(callbacks)
