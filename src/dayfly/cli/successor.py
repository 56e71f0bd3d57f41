"""The coordinator that goes on with a run once this one has come to the end of its lifetime.

    this process    run --- stop at a checkpoint | becomes: dayfly train --resume RUN
    elsewhere                                    | or: a command that starts the next one there

What the next one needs is in the run. It has the terminal and the exit code of this process.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from dayfly.errors import RequestError, RunFailed
from dayfly.runs.record import read_record
from dayfly.runs.result import HANDING_OVER

if TYPE_CHECKING:
    from dayfly.runs.run import Run
    from dayfly.runs.scripts.record import ScriptRun

AnyRun = TypeVar("AnyRun", "Run", "ScriptRun")

#: What stands for the run in a command: its URL in a store, or its directory.
RUN = "{run}"


@dataclass(frozen=True, slots=True)
class Successor:
    """A program that goes on with a run, with its arguments; `RUN` among them."""

    arguments: tuple[str, ...]

    @classmethod
    def here(cls, command: str, flags: Sequence[str]) -> Successor:
        """Returns this program, anew.

        Args:
            command: such as `train`.
            flags: beside the run.
        """
        return cls((sys.executable, "-m", "dayfly", command, "--resume", RUN, *flags))

    @classmethod
    def checked(cls, text: str) -> Successor:
        """Returns what `--successor` says.

        Raises:
            RequestError: it names no program of this machine, or does not pass on the run.
        """
        try:
            arguments = tuple(shlex.split(text))
        except ValueError as error:
            raise RequestError(f"--successor {text!r}: {error}") from error
        if not any(RUN in argument for argument in arguments):
            raise RequestError(
                f"--successor {text!r} does not say which run to go on with: write {RUN} in its "
                f"place, as in 'ssh host dayfly train --resume {RUN}'"
            )
        if shutil.which(arguments[0]) is None:
            raise RequestError(f"--successor {text!r}: there is no program {arguments[0]}")
        return cls(arguments)

    def take_over(self, directory: Path) -> NoReturn:
        """Becomes the successor: this program ends.

        Args:
            directory: of the run, which this process does not hold any more.

        Raises:
            RunFailed: the program cannot be started.
        """
        run = read_record(directory).get("store") or str(directory)
        arguments = [argument.replace(RUN, run) for argument in self.arguments]
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            os.execvp(arguments[0], arguments)
        except OSError as error:
            raise RunFailed(
                f"the next coordinator cannot be started: {arguments[0]}: {error.strerror}: go on "
                f"with the run by --resume {run}"
            ) from error


def followed(action: Callable[[], AnyRun], successor: Callable[[], Successor]) -> AnyRun:
    """Does what gives a run; one that is handed over goes on in the successor.

    Args:
        action: gives the run.
        successor: what goes on with it; asked for before anything starts.

    Raises:
        RequestError: there is no such program; and what `action` raises.
    """
    following = successor()
    run = action()
    if run.result.status == HANDING_OVER:
        following.take_over(run.directory)
    return run
