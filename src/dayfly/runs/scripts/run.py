"""A script's run, over or stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dayfly.runs.directory import RECORD
from dayfly.runs.result import Result

#: Where a script keeps what later generations find again, in the run's directory.
FILES = "files"


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """directory: the run's files. stopped_by: the signal that ended it early, if one did. lives:
    how often all workers lived. changed: the script is another one by now. sure_to_fail: whether
    to go on with it would only fail again."""

    directory: Path
    result: Result
    stopped_by: int | None = None
    lives: int = 1
    changed: bool = False
    sure_to_fail: bool = False

    @property
    def to_go_on(self) -> str | None:
        """What to type to go on with a run that is not done; None where that is of no use."""
        known = (self.directory / RECORD).is_file()
        if self.changed or self.sure_to_fail or not known:
            return None
        saved = any(path.is_file() for path in (self.directory / FILES).rglob("*"))
        how = "to go on from the script's own checkpoint" if saved else "to start it again"
        return f"{how}: dayfly run --resume {self.directory}"
