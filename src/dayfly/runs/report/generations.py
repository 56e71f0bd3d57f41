"""The generations of a run: why each began, and what it cost to go from one to the next.

generation 0   ... step 714 | step 715 |                      ends
generation 1   invoked, warms up ......| read |begins| step 716 ...
               |======= both live ======================|       function seconds, billed
                                       |==== stall ====|         nobody trains
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dayfly.specs.events import (
    Begun,
    Ended,
    Event,
    GenerationBegun,
    Invoked,
    RolledBack,
    StartedAgain,
    StepTold,
    Told,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSeen:
    """One generation.

    Attributes:
        at: when it began, in seconds.
        first_step: of it.
        workers: how many it has.
        changes: what changes with it, in words; None: nothing.
        cause: why it began, in words.
        stall_s: from the end of the last step before it to the beginning of its first one; None: it
            is a life's first, or has taken no step.
        both_s: seconds that its functions lived before it began, and those of the generation before
            afterwards, together.
    """

    at: float
    first_step: int
    workers: int
    changes: str | None
    cause: str
    stall_s: float | None
    both_s: float


def generations(
    coordinator: Sequence[Event], workers: Mapping[int, Sequence[Told]]
) -> tuple[GenerationSeen, ...]:
    """Returns the generations that events tell of, in order, with Unix seconds.

    Args:
        coordinator: its events.
        workers: their events, by rank.
    """
    steps = _steps(workers)
    both_s = _both_s(coordinator)
    found: list[GenerationSeen] = []
    before: int | None = None  # number of the generation before, in one life
    for one, cause, fresh in _causes(coordinator):
        first, last = steps.get(one.number), None if fresh or before is None else steps.get(before)
        found.append(
            GenerationSeen(
                at=one.at,
                first_step=one.first_step,
                workers=one.workers,
                changes=one.changes,
                cause=cause,
                stall_s=None if first is None or last is None else max(0.0, first[0] - last[1]),
                both_s=both_s.get(one.number, 0.0),
            )
        )
        before = one.number
    return tuple(found)


def _causes(coordinator: Sequence[Event]) -> Iterator[tuple[GenerationBegun, str, bool]]:
    """Yields generations, each with its cause, and whether it is a coordinator's first."""
    cause, fresh, any_yet = "the run began", True, False
    for event in coordinator:
        match event:
            case Begun() if any_yet:
                cause, fresh = "the run was resumed", True
            case RolledBack() | StartedAgain():
                cause = f"all started again: {event.cause}"
            case GenerationBegun():
                if event.changes is not None:
                    who = "run.scale of a callback" if event.request is None else "asked for"
                    cause = f"{who}: {event.changes}"
                yield event, cause, fresh
                cause, fresh, any_yet = "lifetimes were about to end", False, True


def _steps(workers: Mapping[int, Sequence[Told]]) -> dict[int, tuple[float, float]]:
    """When the first step began, of those that were computed, and the last one ended; by number."""
    found: dict[int, tuple[float, float]] = {}
    for told in (one for records in workers.values() for one in records):
        if isinstance(told, StepTold) and told.computed:
            began_s, ended_s = told.began_s, told.began_s + told.step_s
            first, last = found.get(told.generation, (began_s, ended_s))
            found[told.generation] = min(first, began_s), max(last, ended_s)
    return found


def _both_s(coordinator: Sequence[Event]) -> dict[int, float]:
    """Function seconds in which a generation lived beside the one before it, by its number."""
    found: dict[int, float] = {}
    living: dict[tuple[str, int], float] = {}
    names, leaving, number, begun_s = "worker", frozenset[tuple[str, int]](), -1, 0.0
    for event in coordinator:
        match event:
            case Begun():
                living, names, leaving = {}, "worker", frozenset()
            case Invoked():
                living[event.function, event.attempt] = event.at
            case Ended():
                key = event.used.function, event.used.attempt
                if living.pop(key, None) is not None and key in leaving:
                    found[number] += event.at - begun_s
            case GenerationBegun():
                warm = [key for key in living if not key[0].startswith(names)]
                if warm:  # they have the other names
                    leaving, number, begun_s = frozenset(living) - set(warm), event.number, event.at
                    found[number] = sum(event.at - living[key] for key in warm)
                    names = warm[0][0].rpartition("-")[0]
    return found
