"""Workers that live and die together: who is told of as ended in which way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dayfly.errors import WireError
from dayfly.life.commits import Checkpoint
from dayfly.life.gang import Gang, GangEnd, Verdict
from dayfly.life.platforms.base import (
    Ended,
    Invocation,
    Outcome,
)
from dayfly.life.reports import Report
from dayfly.life.restarts import Restarts
from dayfly.specs.functions import FunctionSpec
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import Key
from tests.life import ends
from tests.life.silent import Silent

RETURNED, RAISED, CANCELLED = Outcome.RETURNED, Outcome.RAISED, Outcome.CANCELLED


def end(invocation: Invocation, outcome: Outcome) -> Ended:
    raised = outcome is RAISED
    return replace(
        ends.end(
            0,
            outcome,
            "ValueError: no" if raised else None,
            result={"status": "done"} if outcome is RETURNED else None,
        ),
        invocation=invocation,
    )


class Scripted(Silent):
    """Functions end as told: those of `alone` by themselves, the others once they are to be killed.

    alone, late: outcomes by function.
    """

    def __init__(self, alone: Mapping[str, Outcome], late: Mapping[str, Outcome]) -> None:
        self._alone = alone
        self._late = late
        self._running: dict[str, Invocation] = {}
        self._over: dict[str, Outcome] = {}

    def invoke(self, invocation: Invocation) -> None:
        self._running[invocation.function] = invocation
        if (outcome := self._alone.get(invocation.function)) is not None:
            self._over[invocation.function] = outcome

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        over, self._over = self._over, {}
        return [end(self._running.pop(name), outcome) for name, outcome in over.items()]

    def cancel(self, function: str) -> None:
        self._over[function] = self._late[function]

    def running(self) -> Sequence[str]:
        return sorted(self._running)

    def close(self) -> None:
        self._running.clear()


class Told:
    """An audience that keeps what it is told of ends: rank, outcome, whether it was a death."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, Outcome, bool]] = []

    def invoked(self, rank: int, invocation: Invocation) -> None:
        return None

    def ended(self, rank: int, ended: Ended, *, death: bool) -> None:
        self.ends.append((rank, ended.outcome, death))

    def reported(self, report: Report) -> None:
        return None

    def committed(self, checkpoint: Checkpoint) -> None:
        return None

    def stopping(self) -> None:
        return None

    def rolled_back(self, from_step: int, to_step: int, redone_steps: int, cause: str) -> None:
        return None


class Lost(FileChannel):
    """Cannot be read any more."""

    def waiting(self, destination: int) -> Sequence[Key]:
        raise WireError("the channel is gone")


@pytest.fixture
def root() -> Iterator[Path]:
    with (
        tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm") as path,
        FileChannel.make(
            Path(path), Namespace("run", 0), senders=3, budget_bytes=2**24, ahead_bytes=2**18
        ),
    ):
        yield Path(path)


def lived(channel: Channel, platform: Scripted, told: Told) -> GangEnd:
    invocations = [
        Invocation(
            function=f"worker-{rank}", attempt=0, handler="m:f", payload={}, spec=FunctionSpec()
        )
        for rank in range(3)
    ]
    gang = Gang(
        platform=platform,
        channel=channel,
        invocations=invocations,
        attend=lambda keys: False,
        stop_asked=lambda: False,
        audience=told,
    )
    with channel:
        return gang.run()


def test_who_returned_between_the_look_and_the_kill_ended_in_good_order(root: Path) -> None:
    platform = Scripted({"worker-1": RAISED}, {"worker-0": RETURNED, "worker-2": CANCELLED})
    told = Told()
    found = lived(FileChannel(root, Namespace("run", 0)), platform, told)
    assert found.verdict is Verdict.DIED
    assert [(one.invocation.function, one.outcome) for one in found.ends] == [("worker-1", RAISED)]
    assert sorted(told.ends, key=lambda one: one[0]) == [
        (0, RETURNED, False),
        (1, RAISED, True),
        (2, CANCELLED, False),
    ]
    assert str(Restarts(0).after(found, kept=True, where="", now=0.0).failure) == (
        "worker 1 raised ValueError: no (no restart, as --max-restarts 0 allows)\n\n"
        "Traceback ...\nValueError: no"
    )


def test_so_did_who_returned_before_the_kill_that_a_lost_channel_brought(root: Path) -> None:
    late = {"worker-0": RETURNED, "worker-1": CANCELLED, "worker-2": RETURNED}
    told = Told()
    found = lived(Lost(root, Namespace("run", 0)), Scripted({}, late), told)
    assert (found.verdict, found.ends, str(found.failure)) == (
        Verdict.DIED,
        (),
        "the channel is gone",
    )
    assert sorted(told.ends, key=lambda one: one[0]) == [
        (0, RETURNED, False),
        (1, CANCELLED, False),
        (2, RETURNED, False),
    ]
    assert str(Restarts(0).after(found, kept=True, where="", now=0.0).failure) == (
        "the channel failed: WireError: the channel is gone "
        "(no restart, as --max-restarts 0 allows)"
    )
