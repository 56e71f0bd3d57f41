"""Scripts, run in this process as `dayfly run` runs them, and what they print."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayfly.life.faults import Fault
from dayfly.runs.display import Display
from dayfly.runs.result import Result
from dayfly.runs.scripts import launch
from dayfly.runs.scripts.record import ScriptRun, ScriptSettings


class Notes(Display):
    """What a person is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.epochs: list[Mapping[str, Any]] = []

    def epoch(self, record: Mapping[str, Any]) -> None:
        self.epochs.append(record)

    def note(self, text: str) -> None:
        self.said.append(text)


@dataclass(frozen=True)
class Ran:
    """A run of a script, with the lines that its ranks printed."""

    directory: Path
    result: Result
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    epochs: tuple[Mapping[str, Any], ...]

    def of(self, rank: int) -> list[str]:
        prefix = f"[rank {rank}] "
        return [line.removeprefix(prefix) for line in self.lines if line.startswith(prefix)]


def run(
    directory: Path,
    text: str,
    *args: str,
    faults: Sequence[Fault] = (),
    **settings: Any,
) -> Ran:
    """Run a script as the file script.py of a directory, in that directory."""
    (directory / "script.py").write_text(textwrap.dedent(text))
    notes, output = Notes(), io.StringIO()
    made = launch.begin(
        "script.py",
        args,
        ScriptSettings(**{"workers": 2, **settings}),
        directory=directory / "run",
        display=notes,
        output=output,
        faults=faults,
    )
    return _ran(made, notes, output)


def resume(directory: Path, **changes: Any) -> Ran:
    """Go on with the run of `run`."""
    notes, output = Notes(), io.StringIO()
    made = launch.resume(directory / "run", display=notes, output=output, **changes)
    return _ran(made, notes, output)


def _ran(made: ScriptRun, notes: Notes, output: io.StringIO) -> Ran:
    printed = tuple(output.getvalue().splitlines())
    return Ran(made.directory, made.result, printed, tuple(notes.said), tuple(notes.epochs))
