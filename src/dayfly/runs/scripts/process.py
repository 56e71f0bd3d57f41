"""A function that runs a script, as the calls of the script find it: its task, and its wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dayfly.life.faults import Faults
from dayfly.life.heartbeats import Heartbeats
from dayfly.life.platforms.base import Context
from dayfly.life.reports import Reporter
from dayfly.wire.channels.base import Channel
from dayfly.wire.stores.base import Store

if TYPE_CHECKING:
    from dayfly.runs.scripts.environment import ScriptTask

#: Records by which a worker tells that it entered a loop of `dayfly.parallel`, from whose
#: checkpoint the script goes on, and that it makes process groups of torch's.
LOOP, GROUPS = "loop", "groups"


class Leave(BaseException):
    """Ends a script in order, from within a call of its own.

    Args:
        status: see `life.reports`.
        step: the next one of its loop.
        kept: whether all that was done is in the run checkpoint before `step`.
    """

    def __init__(self, status: str, step: int, *, kept: bool) -> None:
        super().__init__(status)
        self.status = status
        self.step = step
        self.kept = kept


@dataclass(slots=True, kw_only=True)
class ScriptProcess:
    """One attempt of one rank.

    Args:
        channel: that of `heartbeats`.
        began: when, by `time.monotonic()`.
        closing: called in order once the script has ended.
        grouped: whether the script made process groups, which was told.
    """

    task: ScriptTask
    channel: Channel
    store: Store
    context: Context
    faults: Faults
    reporter: Reporter
    heartbeats: Heartbeats
    began: float
    closing: list[Callable[[], None]] = field(default_factory=list)
    grouped: bool = False

    def makes_group(self) -> None:
        """Tell the coordinator, once: members of a group are numbered alike, so all of them have to
        start again when one does."""
        if not self.grouped:
            self.grouped = True
            self.reporter.add(GROUPS, urgent=True)

    def close(self) -> None:
        """End what the script's calls have made."""
        while self.closing:
            self.closing.pop()()


_here: list[ScriptProcess] = []


def here() -> ScriptProcess | None:
    """This process, if it runs a script for `dayfly run`."""
    return _here[0] if _here else None


@contextmanager
def running(process: ScriptProcess) -> Iterator[None]:
    """While it lasts, `here` gives it."""
    _here.append(process)
    try:
        yield
    finally:
        _here.clear()
