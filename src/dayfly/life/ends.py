"""Which ends of functions are causes, and which are consequences of others. Pure.

    worker 0   ------------WireError       its neighbour is gone: a consequence, no death
    worker 1   ---------X                  the first death is the cause
    worker 2   -------- returned           its work was done: neither
    worker 3   --------------killed        by the supervisor, which does not wait
    checkpoint    ^ all start again from here, in a new generation with a channel of its own

After a planned hand-over the others are given time: for the checkpoint that was made for it to
count, or, within a round of local SGD, to keep their own state as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from dayfly.errors import WireError, in_short
from dayfly.life.failure import Origin
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.reports import HANDED_OVER, KEPT_BY_RUN, KEPT_BY_WORKER

#: How long to wait for a checkpoint that was made for a hand-over, in seconds.
COMMIT_S = 60.0
#: How long to wait for the others to hand over too: they began with the first one.
OWN_S = 30.0
#: How long after an error of the wire another worker's death may be heard of that explains it.
CAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """How a generation ended before its work was done.

    Args:
        ends: of functions, without those that the supervisor killed.
        lost: why the channel failed, if it did.
        checkpoint_step: of the checkpoint that counts.
        reached: completed steps in this generation.
        frontier: completed steps in the whole run.
        world_size: number of workers.
    """

    ends: Sequence[Ended]
    lost: WireError | None = None
    checkpoint_step: int = 0
    reached: int = 0
    frontier: int = 0
    world_size: int = 0

    @property
    def causes(self) -> list[Ended]:
        """Deaths that have a cause of their own, in order."""
        return own_deaths(self.ends, explained=self.lost is not None)

    @property
    def first(self) -> Ended | None:
        """The first of the causes, if there is one: then no channel that failed was it."""
        return next(iter(self.causes), None)

    @property
    def consequences(self) -> list[Ended]:
        """What died of other ends."""
        dead = [one for one in self.ends if one.outcome is not Outcome.RETURNED]
        return [one for one in dead if one not in self.causes]

    @property
    def hand_overs(self) -> list[Ended]:
        """Workers that ended as planned, and are to go on."""
        return [one for one in self.ends if is_hand_over(one)]

    @property
    def planned(self) -> bool:
        """Whether the first to end was at the end of its lifetime, or just before: nobody died."""
        if self.first is None:
            return self.lost is None and bool(self.hand_overs)
        return self.first.outcome is Outcome.LIFETIME

    @property
    def redone_steps(self) -> int:
        """How many steps are done again, at most; none if every worker kept its own state."""
        own = {"step": self.checkpoint_step, "kept": KEPT_BY_WORKER}
        kept = sum(own.items() <= (one.result or {}).items() for one in self.ends)
        return self.reached - self.checkpoint_step if kept < self.world_size else 0

    @property
    def in_words(self) -> str:
        """What ended it, in a line: `worker 1 raised ValueError: no`."""
        if self.first is None and self.lost is not None:
            return f"the channel failed: {in_short(self.lost)}"
        return in_a_line(self.first or self.hand_overs[0])


def is_wire_error(ended: Ended) -> bool:
    """Returns whether a function died because a message failed, maybe by another one's death."""
    return ended.failure is not None and ended.failure.origin is Origin.WIRE


def is_hand_over(ended: Ended) -> bool:
    """Whether a worker ended as planned, before its work was done."""
    return ended.result is not None and ended.result["status"] == HANDED_OVER


def from_outside(ended: Ended) -> bool:
    """Whether a function was killed by somebody else or its platform: no fault of the job's."""
    return ended.outcome in (Outcome.KILLED, Outcome.CANCELLED, Outcome.SILENT)


def by_themselves(ends: Sequence[Ended], killed: Collection[str]) -> list[Ended]:
    """Those of the ends that the supervisor did not bring about.

    Args:
        killed: whom it ended.
    """
    return [
        one
        for one in ends
        if one.outcome is not Outcome.CANCELLED or one.invocation.function not in killed
    ]


def own_deaths(ends: Sequence[Ended], *, explained: bool = False) -> list[Ended]:
    """Those of the ends that are deaths of a cause of their own, in order.

    Errors of the wire are consequences if there is a hand-over or another death, or if they are
    explained by a channel that failed; else the first of them is the cause.

    Args:
        ends: without those that the supervisor killed.
    """
    dead = [one for one in ends if one.outcome is not Outcome.RETURNED]
    own = [one for one in dead if not is_wire_error(one)]
    if own or explained or any(is_hand_over(one) for one in ends):
        return own
    return dead[:1]


def patience_s(
    ends: Sequence[Ended], checkpoint_step: int, may_come: Callable[[int], bool]
) -> float:
    """How long to wait, from the first of the ends, before the other workers are killed.

    Args:
        checkpoint_step: of the checkpoint that counts.
        may_come: whether the checkpoint before a step does not count yet, and still can.
    """
    results = [one.result for one in ends if one.result is not None]
    kept = [(one["kept"], one["step"]) for one in results if "kept" in one]
    if any(where == KEPT_BY_RUN and may_come(step) for where, step in kept):
        return COMMIT_S
    if any(one.outcome is not Outcome.RETURNED and not is_wire_error(one) for one in ends):
        return 0.0
    if kept:
        return OWN_S if (KEPT_BY_WORKER, checkpoint_step) in kept else 0.0
    return CAUSE_S


def in_words(ended: Ended) -> str:
    """Who, and what happened to it: `worker 1 was killed from outside (killed by SIGKILL ...)`."""
    who = ended.invocation.function.replace("successor", "worker").replace("-", " ")
    what = {
        Outcome.RETURNED: "handed over to its successor",
        Outcome.RAISED: f"raised {ended.error}",
        Outcome.OUT_OF_MEMORY: f"ran out of memory ({ended.detail})",
        Outcome.LIFETIME: f"came to the end of its lifetime ({ended.detail})",
        Outcome.EXITED: f"ended itself ({ended.detail})",
        Outcome.KILLED: f"was killed from outside ({ended.detail})",
        Outcome.SILENT: f"fell silent ({ended.detail})",
        Outcome.CANCELLED: f"was ended by its platform ({ended.detail})",
    }[ended.outcome]
    return f"{who} {what}"


def in_a_line(ended: Ended) -> str:
    """The same, without what a function printed at its end."""
    return in_words(replace(ended, detail=ended.detail.partition("\n")[0]))


def status_after(ended: Ended, last: str | None) -> str | None:
    """The status of a worker whose function ended; None: another function has to go on.

    Args:
        last: how the run ends, if the checkpoint is committed after which all workers end. Then
            nothing is left to be done, even for one that died: its part is in that checkpoint.
    """
    if ended.result is not None and not is_hand_over(ended):
        return str(ended.result["status"])
    return last
