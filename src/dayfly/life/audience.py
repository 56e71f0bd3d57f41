"""Who is told what happens in the life of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dayfly.life.platforms.base import Ended, Invocation
from dayfly.life.reports import Report
from dayfly.specs.generations import GenerationPlan

if TYPE_CHECKING:
    from dayfly.life.commits import Checkpoint


class Audience(Protocol):
    """Who wants to know what happens in the life of a run."""

    def begins(self, plan: GenerationPlan) -> None:
        """A generation begins."""

    def invoked(self, rank: int, invocation: Invocation) -> None:
        """A function was started."""

    def ended(self, rank: int, ended: Ended, *, death: bool) -> None:
        """A function ended: it returned, or it died."""

    def reported(self, report: Report) -> None:
        """A worker sent records."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint counts from now on."""

    def stopping(self) -> None:
        """The workers were asked to stop."""
