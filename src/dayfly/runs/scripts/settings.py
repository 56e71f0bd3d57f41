"""How a script is to be run: what the command line's flags say, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass

from dayfly.errors import RequestError
from dayfly.runs.functions import FunctionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings(FunctionSettings):
    """Options of a run of a script, beside those of its functions. Raises RequestError as they do.

    max_restarts: how often all workers start again after one died; kills from outside and lifetimes
    that end are not counted. log_budget_mib: None: a quarter of the free space for files, 1 GiB
    elsewhere.
    """

    max_restarts: int = 3

    def __post_init__(self) -> None:
        FunctionSettings.__post_init__(self)  # super() does not know a class with slots
        if self.max_restarts < 0:
            raise RequestError(f"--max-restarts {self.max_restarts}: give 0 or more")
