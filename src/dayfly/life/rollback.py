"""When all workers go back to the run checkpoint, as nothing is kept from which one could catch up.

    worker 0   ------------WireError       its neighbour is gone: a consequence, no death
    worker 1   ---------X                  the first death is the cause
    worker 2   --------------killed        by the coordinator, which does not wait
    checkpoint    ^ all start again from here, in a new generation with a channel of its own

After a planned hand-over the others are given time: for the checkpoint that was made for it to
count, or, within a round of local SGD, to keep their own state as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from dayfly.errors import WireError, in_short
from dayfly.life.deaths import Deaths, in_words
from dayfly.life.failure import Origin
from dayfly.life.platforms.base import Ended, Outcome

#: How a generation ends that is followed by another one of the same life.
ROLLED_BACK = "rolled back"

#: What a worker that hands over says is kept of what it did: all, in a run checkpoint that counts
#: once every worker's part is there; or its own state, from which its successor goes on.
KEPT_BY_RUN, KEPT_BY_WORKER = "run", "worker"

#: How long to wait for a checkpoint that was made for a hand-over, in seconds.
COMMIT_S = 60.0
#: How long to wait for the others to hand over too: they began with the first one.
OWN_S = 30.0
#: How long after an error of the wire another worker's death may be heard of that explains it.
CAUSE_S = 1.0


@dataclass(slots=True)
class Past:
    """What the generations of one life share.

    frontier: completed steps of the run, the most that there ever were. attempts: the latest of
    each rank. pause_s: before the functions of the next generation start, in seconds.
    """

    frontier: int
    attempts: dict[int, int] = field(default_factory=dict)
    pause_s: float = 0.0
    deaths: Deaths = field(default_factory=Deaths)


def is_wire_error(ended: Ended) -> bool:
    """Whether a function died of what it waited for, which may be another one's death."""
    return ended.failure is not None and ended.failure.origin is Origin.WIRE


def is_hand_over(ended: Ended) -> bool:
    """Whether a worker ended as planned, before its work was done."""
    return ended.result is not None and ended.result["status"] == "handed over"


def by_themselves(ends: Sequence[Ended], killed: Collection[str]) -> list[Ended]:
    """Those of the ends that the coordinator did not bring about. killed: whom it ended."""
    return [
        one
        for one in ends
        if one.outcome is not Outcome.CANCELLED or one.invocation.function not in killed
    ]


def own_deaths(ends: Sequence[Ended], *, explained: bool = False) -> list[Ended]:
    """Those of the ends that are deaths of a cause of their own, in order.

    Errors of the wire are consequences if there is a hand-over or another death, or if they are
    explained by a channel that failed; else the first of them is the cause. ends: without those
    that the coordinator killed.
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

    checkpoint_step: of the checkpoint that counts. may_come: whether the checkpoint before a step
    does not count yet, and still can.
    """
    kept = [(one.result["kept"], one.result["step"]) for one in ends if one.result is not None]
    if any(where == KEPT_BY_RUN and may_come(step) for where, step in kept):
        return COMMIT_S
    if any(one.outcome is not Outcome.RETURNED and not is_wire_error(one) for one in ends):
        return 0.0
    if kept:
        return OWN_S if (KEPT_BY_WORKER, checkpoint_step) in kept else 0.0
    return CAUSE_S


def judge(
    ends: Sequence[Ended],
    failure: WireError | None,
    checkpoint_step: int,
    past: Past,
    now: float,
) -> str:
    """Counts what made all go back; returns it in words, and sets the pause of `past`.

    Args:
        ends: as in `own_deaths`.
        failure: of the channel itself, if it failed.
        checkpoint_step: of the checkpoint to which all go back.
        past: of this life of the run.
        now: seconds of a monotonic clock.

    Raises:
        RunFailed: the run gives up.
    """
    deaths, frontier = own_deaths(ends, explained=failure is not None), past.frontier
    hand_overs = [one for one in ends if is_hand_over(one)]
    if deaths:
        found = [past.deaths.note(one, frontier, now) for one in deaths]
    elif failure is not None:
        found = [past.deaths.note_channel(in_short(failure), frontier, now)]
    else:
        lost = [one for one in hand_overs if _is_lost(one, checkpoint_step)]
        found = [past.deaths.note(one, frontier, now) for one in lost]
    for decision in found:
        if decision.failure is not None:
            raise decision.failure
    past.pause_s = max((decision.pause_s for decision in found), default=0.0)
    if deaths or failure is None:
        return in_words((deaths or hand_overs)[0])
    return f"the channel failed: {in_short(failure)}"


def _is_lost(hand_over: Ended, checkpoint_step: int) -> bool:
    """Whether nothing is kept of it: what it did is redone, and that must not go on for ever."""
    assert hand_over.result is not None
    kept, step = hand_over.result["kept"], hand_over.result["step"]
    if kept == KEPT_BY_WORKER:
        return bool(step != checkpoint_step)
    return kept is None or step > checkpoint_step


def redone_steps(
    ends: Sequence[Ended], from_step: int, checkpoint_step: int, world_size: int
) -> int:
    """How many steps are done again, at most; none if every worker kept its own state."""
    own = {"step": checkpoint_step, "kept": KEPT_BY_WORKER}
    kept = [one for one in ends if one.result is not None and own.items() <= one.result.items()]
    return from_step - checkpoint_step if len(kept) < world_size else 0
