"""What a supervisor keeps alive, a job or a script of torch.distributed; and whom it tells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dayfly.life.commits import Checkpoint
from dayfly.life.deaths import RestartPolicy
from dayfly.life.ends import GenerationEnd
from dayfly.life.platforms.base import Ended, Invocation, Platform
from dayfly.life.reports import Report
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.generations import GenerationPlan
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import Key


class Workload(ABC):
    """A run, as its supervisor sees it: one generation of workers after another.

    Methods are called by the supervisor's thread, for each generation in this order: `plan`,
    `open`, `payload` and the others while it lives, and `starts_again` or `changes` if another one
    follows. One that is `upcoming` is opened before, and its `plan` is asked for once it goes on.

    Attributes:
        handler: of its functions.
        policy: of this run.
    """

    handler: str
    policy: RestartPolicy

    @abstractmethod
    def plan(self) -> GenerationPlan:
        """The generation that is to begin. Raises RunFailed if none may."""

    @abstractmethod
    def platform(self, plan: GenerationPlan) -> Platform:
        """Where a generation's functions run; nothing else runs there."""

    @abstractmethod
    def open(self, plan: GenerationPlan) -> AbstractContextManager[Channel]:
        """The supervisor's end of the generation's channel, without earlier messages."""

    @abstractmethod
    def payload(
        self,
        plan: GenerationPlan,
        rank: int,
        attempt: int,
        trimmed_step: int,
        *,
        waits: bool = False,
    ) -> Mapping[str, Any]:
        """What a rank's attempt is told.

        Args:
            trimmed_step: the message log before it is gone.
            waits: it is to warm up, and to wait for `reports.GO`.
        """

    def function(self, plan: GenerationPlan, rank: int) -> FunctionSpec | None:
        """What a rank's next function gets; None: it cannot be had, and the run is to stop."""
        return plan.layout[rank].spec

    def committed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint counts from now on: later attempts start from it."""
        return None

    def decide(self, step: int, record: Mapping[str, Any]) -> bytes | None:
        """What follows at the boundary after an epoch: stored by then, and the same if asked again.

        Args:
            step: completed steps.
            record: of the epoch.

        Returns:
            What the workers are told, who wait for it; None: they do not.
        """
        return None

    def serve(self, keys: Sequence[Key]) -> bool:
        """Answer what workers ask; called at each look.

        Args:
            keys: of the messages that wait for the supervisor.

        Returns:
            Whether anything was asked: it looks again sooner then.
        """
        return False

    def change_asked(self) -> bool:
        """Whether the workers are to end so that others go on; asked at each look."""
        return False

    def upcoming(self) -> GenerationPlan | None:
        """The generation that is to warm up while this one trains, the same at each look.

        Returns:
            None: there is none, or its workers cannot begin before those of this one have ended.
        """
        return None

    def renew(self) -> None:
        """Lifetimes end soon: `upcoming` is to have successors, if it can."""
        return None

    def refuse(self, why: str) -> None:
        """What is upcoming cannot begin: nothing changes."""
        return None

    def changes(self, *, warm: bool) -> None:
        """Takes up what is upcoming, or the plan that was asked for, where a resumed run finds it.

        Called between two generations: the workers of this one train no more. The run goes on from
        the checkpoint that was committed last.

        Args:
            warm: the workers of `upcoming` go on; else others start.
        """
        return None

    def go(self) -> bytes:
        """What workers are told that warmed up."""
        return b""

    @abstractmethod
    def starts_again(self, end: GenerationEnd) -> None:
        """All workers start again: note it where a resumed run finds it. None runs any more."""


class RunListener(Protocol):
    """What a supervisor tells of a run; its methods are called in the supervisor's thread.

    Functions and reports are of a generation by a plan, which may not train yet.
    """

    def begins(self, plan: GenerationPlan) -> None:
        """A generation begins."""

    def invoked(self, plan: GenerationPlan, rank: int, invocation: Invocation) -> None:
        """A function was started."""

    def ended(self, plan: GenerationPlan, rank: int, ended: Ended, *, death: bool) -> None:
        """A function ended: it returned, or it died."""

    def reported(self, plan: GenerationPlan, report: Report) -> None:
        """A worker sent records."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint counts from now on."""

    def stopping(self) -> None:
        """The workers were asked to stop."""
