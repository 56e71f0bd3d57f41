"""Problems that methods are compared on, with goals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.parts.choosing.answer import Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem of any planner, and what is asked of it. name: `BERT-Base`, `random 3`."""

    name: str
    problem: Any
    goals: tuple[Goal, ...]
