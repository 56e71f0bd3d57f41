"""`run.json` of a script's run: enough to start the script again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dayfly.dataclass_json import PathText
from dayfly.runs.record import SCRIPT, RunRecord
from dayfly.runs.scripts.settings import ScriptSettings
from dayfly.runs.scripts.source import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRecord(RunRecord):
    """A script's. deaths: in how many of the generations before a worker died."""

    kind: ClassVar[str] = SCRIPT

    settings: ScriptSettings
    script: Script
    args: tuple[str, ...]
    cwd: PathText
    deaths: int = 0

    def started_again(self, *, died: bool) -> Self:
        """The record of the next generation of the same life."""
        return replace(self, generation=self.generation + 1, deaths=self.deaths + died)
