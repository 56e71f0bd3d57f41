"""A supervisor among stand-ins: no process, no clock but the script's, one log of all it does.

run = Supervised(tmp_path, [says(0, part(4)), says(1, part(4))], [ends(0), ends(1)])
run.to_end()     "done"; each list is what happens while the platform is waited for once
run.later        put, told, trim, ... in their order, after both workers were started
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from dayfly.life import supervisor
from dayfly.life.commits import Checkpoint, CheckpointPart, digest_of, folder_of
from dayfly.life.deaths import Deaths, Restart, RestartPolicy
from dayfly.life.ends import GenerationEnd
from dayfly.life.faults import Faults
from dayfly.life.platforms.base import Ended, Invocation, Outcome
from dayfly.life.reports import Report, packed
from dayfly.life.restarts import Restarts
from dayfly.life.supervisor import Supervisor
from dayfly.life.worker_state import Past
from dayfly.life.workload import Workload
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.generations import GenerationPlan, RankPlan
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.message import Header
from dayfly.wire.stores.base import Buffer, Pieces, Version
from dayfly.wire.stores.files import FileStore
from tests.life.ends import end
from tests.life.silent import Silent

#: Waits after which nothing will happen any more: a hundred minutes of the script's clock.
_MOST_WAITS = 120_000

Happening = Callable[["Supervised"], None]
Turn = Sequence[Happening]


def says(rank: int, *records: Mapping[str, Any], attempt: int = 0) -> Happening:
    """A report of a worker arrives."""
    return lambda run: run.channel.report(rank, attempt, records)


def part(step: int, *names: str, then: str | None = None, **more: Any) -> dict[str, Any]:
    """A record: a worker wrote its part of a checkpoint. more: fields of it."""
    parts = [asdict(part_of(step, name)) for name in names or ("part",)]
    return {"kind": "part", "step": step, "parts": parts, "then": then, **more}


def part_of(step: int, name: str) -> CheckpointPart:
    return CheckpointPart(f"{folder_of(step)}/{name}", 1, digest_of(name.encode()))


def took(step: int) -> dict[str, Any]:
    """A record: a worker completed a step."""
    return {"kind": "step", "step": step}


def caught_up(step: int) -> dict[str, Any]:
    """A record: a worker reads the log no more."""
    return {"kind": "caught up", "step": step}


def ends(rank: int, status: str = "done", *, of: str = "worker", **more: Any) -> Happening:
    """A function returns. more: fields of its result."""
    result = {"status": status, "step": 0, "kept": None, **more}
    return lambda run: run.platform.end(rank, end(rank, Outcome.RETURNED, result=result), of)


def dies(
    rank: int,
    outcome: Outcome = Outcome.KILLED,
    error: str | None = None,
    *,
    of: str = "worker",
) -> Happening:
    """A function does not return."""
    return lambda run: run.platform.end(rank, end(rank, outcome, error), of)


def change_to(workers: int, *, warm: bool = False) -> Happening:
    """Somebody asks for another number of workers. warm: they start while these still train."""

    def happen(run: Supervised) -> None:
        run.workload.asked, run.workload.warms = workers, warm

    return happen


def warms(rank: int, attempt: int) -> Happening:
    """A worker of the next generation has all that it needs but the checkpoint."""
    return lambda run: run.ahead.report(rank, attempt, [{"kind": "warm"}])


def begins(rank: int, attempt: int, digest: str = "the same", step: int = 4) -> Happening:
    """A worker of the next generation has loaded the checkpoint."""
    record = {"kind": "start", "step": step, "digest": digest}
    return lambda run: run.ahead.report(rank, attempt, [record])


def sees_messages_of_before(run: Supervised) -> None:
    """Notes whether the messages of the first generation are still there."""
    run.log.append("there" if run.workload.opened[0] else "gone")


def stop(run: Supervised) -> None:
    """Somebody asks the run to stop."""
    run.stop_asked = True


class Clock:
    """In place of `time`: it goes on where somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Memory(Channel):
    """Messages in memory, of which the supervisor's are logged."""

    def __init__(self, log: list[str], abilities: Abilities) -> None:
        super().__init__(Namespace("run", 0))
        self.abilities = abilities
        self.failure: Exception | None = None
        self.listings = 0
        self._log = log
        self._messages: dict[Key, bytes] = {}
        self._reports = 0

    def report(self, rank: int, attempt: int, records: Sequence[Mapping[str, Any]]) -> None:
        key = Key(self._reports, f"report-{attempt}", rank, COORDINATOR)
        self._messages[key] = packed(
            {"traffic": {}, "records": [{"at": 0.0, **one} for one in records]}
        )
        self._reports += 1

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        self._log.append(f"tell {key.operation} {key.step}")
        return self._messages.setdefault(key, bytes(payload)) == bytes(payload)

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        raise NotImplementedError

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        return self._messages[key]

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        return frozenset(keys) & self._messages.keys()

    def waiting(self, destination: int) -> Sequence[Key]:
        self.listings += 1
        if self.failure is not None:
            raise self.failure
        return sorted(key for key in self._messages if key.destination == destination)

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._messages.pop(key, None)

    def trim(self, before_step: int) -> None:
        self._log.append(f"trim {before_step}")

    def size_bytes(self) -> int:
        return 0

    def destroy(self) -> None:
        self._messages.clear()


class FailingFiles(FileStore):
    """Objects on a disk that may fail."""

    def __init__(self, root: Path, log: list[str]) -> None:
        super().__init__(root)
        self._log = log
        self.failure: Exception | None = None

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        if self.failure is not None:
            raise self.failure
        version = super().put(name, data)
        self._log.append(f"put {name}")
        return version

    def clear(self, prefix: str = "") -> None:
        super().clear(prefix)
        self._log.append(f"delete {prefix}")


class Scripted(Silent):
    """Functions end as the script says, or once they are killed, unless they are `stubborn`.

    late: how a function ends of itself just before it is killed, by its name.
    """

    def __init__(self, run: Supervised, turns: Sequence[Turn]) -> None:
        self.stubborn = False
        self.late: dict[str, Happening] = {}
        self._run = run
        self._turns = list(turns)
        self._running: dict[str, Invocation] = {}
        self._over: list[Ended] = []
        self._waits = 0

    def invoke(self, invocation: Invocation) -> None:
        assert invocation.function not in self._running
        self._running[invocation.function] = invocation
        self._run.log.append(f"invoke {_words(invocation)} from {invocation.payload['from']}")
        self._run.starts.append((self._run.clock.now, dict(invocation.payload)))

    def end(self, rank: int, ended: Ended, of: str = "worker") -> None:
        """Once: who has ended cannot be killed."""
        invocation = self._running[f"{of}-{rank}"]
        if all(one.invocation is not invocation for one in self._over):
            self._over.append(replace(ended, invocation=invocation))

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        self._waits += 1
        assert self._waits < _MOST_WAITS, f"the supervisor waits for ever: {self._run.log}"
        for happening in self._turns.pop(0) if self._turns else ():
            happening(self._run)
        if not self._over:
            self._run.clock.sleep(timeout_s)
        over, self._over = self._over, []
        for one in over:
            del self._running[one.invocation.function]
        return over

    def cancel(self, function: str) -> None:
        self._run.log.append(f"kill {function}")
        if (late := self.late.get(function)) is not None:
            late(self._run)
        elif not self.stubborn:
            of, _, rank = function.rpartition("-")
            self.end(int(rank), end(int(rank), Outcome.CANCELLED), of)

    def running(self) -> Sequence[str]:
        return sorted(self._running)

    def close(self) -> None:
        self._running.clear()


class Told:
    """A listener that keeps what it is told; of reports only the number."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self.reports = 0
        self.generations: list[tuple[int, int]] = []

    def begins(self, plan: GenerationPlan) -> None:
        self.generations.append((plan.number, plan.first_step))

    def invoked(self, plan: GenerationPlan, rank: int, invocation: Invocation) -> None:
        self._log.append(f"told invoked {_words(invocation)}")

    def ended(self, plan: GenerationPlan, rank: int, ended: Ended, *, death: bool) -> None:
        how = ", a death" if death else ""
        self._log.append(f"told {rank} {ended.outcome.value}{how}")

    def reported(self, plan: GenerationPlan, report: Report) -> None:
        self.reports += 1

    def committed(self, checkpoint: Checkpoint) -> None:
        self._log.append(f"told committed {checkpoint.step}")

    def stopping(self) -> None:
        self._log.append("told stopping")


class Passed(Faults):
    """No failure on purpose, only the places where there might be one."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def at(self, step: int, place: str) -> None:
        self._log.append(f"at {step} {place}")


class Trained(Workload):
    """Two workers, from the checkpoint before step 0; a generation number `lives` is not begun.

    asked: workers of the next generation, if that is to change; warms: beside those of this one.
    """

    handler = "m:f"

    def __init__(self, run: Supervised, policy: RestartPolicy, lives: int) -> None:
        self.policy = policy
        self.checkpoint = Checkpoint(0, (part_of(0, "part"),))
        self.number = 0
        self.then: Callable[[], None] = lambda: None
        self.asked: int | None = None
        self.warms = False
        self.opened = {0: False, 1: False}  # the channels, by turn
        self._upcoming: GenerationPlan | None = None
        self._turn = 0
        self._workers = 2
        self._run = run
        self._lives = lives

    def plan(self) -> GenerationPlan:
        return self._plan_of(self.number, self._workers, self._turn)

    def _plan_of(self, number: int, workers: int, turn: int) -> GenerationPlan:
        return GenerationPlan(
            number=number,
            platform="silent",
            channel="memory://",
            store=self._run.store.url,
            first_step=self.checkpoint.step,
            layout=[RankPlan(spec=FunctionSpec(), replica=one) for one in range(workers)],
            turn=turn,
        )

    def change_asked(self) -> bool:
        return self.asked is not None and not self.warms

    def upcoming(self) -> GenerationPlan | None:
        if self._upcoming is None and self.warms and self.asked is not None:
            self._upcoming = self._plan_of(self.number + 1, self.asked, 1 - self._turn)
        return self._upcoming

    def refuse(self, why: str) -> None:
        self._run.log.append(f"refused: {why}")
        self.asked = self._upcoming = None

    def changes(self, *, warm: bool) -> None:
        if self.asked is not None:
            how = ", warm" * warm
            self._run.log.append(f"{self.asked} workers from {self.checkpoint.step}{how}")
            self.number, self._workers = self.number + 1, self.asked
        self._turn ^= warm
        self.asked = self._upcoming = None

    def platform(self, plan: GenerationPlan) -> Scripted:
        return self._run.platform

    @contextmanager
    def open(self, plan: GenerationPlan) -> Iterator[Channel]:
        self.opened[plan.turn] = True
        yield self._run.ahead if plan.turn else self._run.channel
        self.opened[plan.turn] = False

    def payload(
        self,
        plan: GenerationPlan,
        rank: int,
        attempt: int,
        trimmed_step: int,
        *,
        waits: bool = False,
    ) -> Mapping[str, Any]:
        return {"from": "go" if waits else self.checkpoint.step, "trimmed": trimmed_step}

    def committed(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def starts_again(self, end: GenerationEnd) -> None:
        back = f"back from {end.reached} to {end.checkpoint_step}, {end.redone_steps} again"
        self._run.log.append(f"{back}: {end.in_words}")
        self.number += 1
        self.then()
        if self.number == self._lives:
            raise StartsAgain


class StartsAgain(Exception):
    """All start again, which the script has nothing for."""


class Supervised:
    """A supervisor of two workers, and what surrounds it.

    turns: what happens while the platform is waited for, once each. replays: whether one that died
    catches up alone; else all start again. script: of a script, how often all start again; None: of
    a job. lives: generations, at most. starts: when functions were invoked, and with what.
    """

    def __init__(
        self,
        root: Path,
        *turns: Turn,
        replays: bool = True,
        script: Restarts | None = None,
        lives: int = 1,
        list_every_s: float = 0.0,
        heartbeat_s: float | None = None,
    ) -> None:
        self.log: list[str] = []
        self.starts: list[tuple[float, dict[str, Any]]] = []
        self.stop_asked = False
        self.clock = Clock()
        self.channel = Memory(self.log, Abilities(list_every_s=list_every_s))
        self.ahead = Memory(self.log, Abilities())  # of a generation that warms up
        self.store = FailingFiles(root, self.log)
        self.platform = Scripted(self, turns)
        self.listener = Told(self.log)
        restart = Restart.ONE if replays else Restart.ALL
        policy = script or Deaths(restart, heartbeat_s=heartbeat_s)
        self.workload = Trained(self, policy, lives)
        self._supervisor = Supervisor(
            workload=self.workload,
            store=self.store,
            stop_asked=lambda: self.stop_asked,
            listener=self.listener,
            faults=Passed(self.log),
        )

    def to_end(self) -> str:
        """How the run ends."""
        before = supervisor.time
        supervisor.time = self.clock  # type: ignore[assignment]
        try:
            return self._supervisor.run()
        except StartsAgain:
            return AGAIN
        finally:
            supervisor.time = before

    @property
    def past(self) -> Past:
        """What its generations share."""
        return self._supervisor._past

    @property
    def later(self) -> list[str]:
        """The log after the first start of both workers."""
        assert self.log[: len(STARTS)] == STARTS
        return self.log[len(STARTS) :]


#: How a run ends in which all start again.
AGAIN = "starts again"

#: How each generation begins that starts at once.
STARTS = [
    "at 0 begin",
    "told invoked 0.0",
    "invoke 0.0 from 0",
    "told invoked 1.0",
    "invoke 1.0 from 0",
    "at 0 invoked",
]


def _words(invocation: Invocation) -> str:
    """Rank and attempt."""
    return f"{invocation.function.rpartition('-')[2]}.{invocation.attempt}"
