"""Calling functions that measure, and those that are to be beside them; none outlives its use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dayfly.errors import RunFailed
from dayfly.life.platforms.base import Ended, Invocation, Outcome, Platform
from dayfly.life.reports import read_reports
from dayfly.planning.profile import in_words
from dayfly.runs.profiling import life, neighbours
from dayfly.runs.task import Task
from dayfly.specs.functions import FunctionSpec
from dayfly.wire.channels.base import Channel
from dayfly.wire.stores.base import Store

_NEIGHBOUR = "dayfly.runs.profiling.neighbours:main"
#: Longest wait between two looks at what functions report, in seconds.
_LOOK_S = 0.2


class TooSmall(RunFailed):
    """A function ran out of memory."""


def invocation(
    function: str, handler: str, payload: Mapping[str, Any], spec: FunctionSpec
) -> Invocation:
    """The only attempt of a function."""
    return Invocation(function=function, attempt=0, handler=handler, payload=payload, spec=spec)


def call(platform: Platform, calls: Sequence[Invocation], channel: Channel) -> list[Ended]:
    """Invoke functions, wait for all of these, and throw away what they report.

    Raises TooSmall or RunFailed if a function, also another one, ends in another way than it is to.
    """
    ended: dict[str, Ended] = {}
    try:
        for one in calls:
            platform.invoke(one)
        while not all(one.function in ended for one in calls):
            for over in platform.wait(_LOOK_S):
                _check(over)
                ended[over.invocation.function] = over
            for _ in read_reports(channel):
                pass
    finally:
        _end(platform, calls)
    return [ended[one.function] for one in calls]


@contextmanager
def beside(
    platform: Platform, store: Store, task: Task, request: life.Request, spec: FunctionSpec
) -> Iterator[None]:
    """While it is open, neighbours are there, and compute when the watched function says so.

    Raises TooSmall if one of them has not enough memory.
    """
    name = request.name
    payload = {"task": task.dump(), "samples": request.each, "name": name}
    calls = [
        invocation(f"neighbour-{n}", _NEIGHBOUR, {**payload, "number": n}, spec)
        for n in range(request.neighbours)
    ]
    marks = [neighbours.ready(name, n) for n in range(request.neighbours)]
    try:
        for one in calls:
            platform.invoke(one)
        while any(store.stat(mark) is None for mark in marks):
            for over in platform.wait(_LOOK_S):
                _check(over)
        yield
    finally:
        _end(platform, calls)
        neighbours.end(store, name)
        store.delete(marks)


def _end(platform: Platform, calls: Sequence[Invocation]) -> None:
    """Kill those functions that have not ended, and wait for that."""
    names = {one.function for one in calls}
    for name in names:
        platform.cancel(name)
    while names & set(platform.running()):
        platform.wait(_LOOK_S)


def _check(ended: Ended) -> None:
    """Raise what became of a function, unless it returned."""
    size = in_words(ended.invocation.spec.memory_mib)
    if ended.outcome is Outcome.RETURNED:
        return
    if ended.outcome is Outcome.OUT_OF_MEMORY:
        raise TooSmall(f"functions of {size} are too small for the job, and run out of memory")
    what = ended.error or ended.detail or ended.outcome.value
    raise RunFailed(f"a function of {size} that measured failed: {what}")
