"""Workers in which workloads run: started once, used again, replaced when something went wrong."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType

from torch import Tensor

from tests.process_group.server import request
from tests.process_group.worker import Outcome, Task
from tests.process_group.workloads import Workload

#: Seconds until workers are taken for hung; nothing takes as long when all is well.
HUNG_S = 120.0
#: Seconds for an interpreter to end.
END_S = 60.0
#: Seconds from the end of a process's connections to its own.
DYING_S = 20.0


@dataclass(frozen=True)
class _Worker:
    pid: int
    connection: Connection


#: World size, backend and environment. A backend's faults are its own, if it has its own processes.
_Place = tuple[int, str, frozenset[tuple[str, str]]]


class World:
    """Workers for worlds of each size, forked from one server. Close it: then nothing is left.

    references: what workloads gave over the backend that others are compared with, by size.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dayfly-test-")
        self.directory = Path(self._directory.name)
        self._log = self.directory / "log"
        self._log_begins = 0
        self.references: dict[tuple[Workload, int], Sequence[Mapping[str, Tensor]]] = {}
        self._runs = 0
        # A process speaks over the channel that its first group chose, to the peers that it had.
        self._workers: dict[_Place, list[_Worker]] = {}
        self._ending: list[tuple[str, _Worker]] = []
        self._server, theirs = socket.socketpair()
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.process_group.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._server.settimeout(HUNG_S)
        if self._server.recv(5) != b"ready":
            raise RuntimeError(f"the server of workers did not start: {self.log()}")

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self.end_all()
        self.crashes()
        self._server.close()
        self._process.wait(HUNG_S)
        self._directory.cleanup()

    def log(self) -> str:
        """What workers have written since the last run began, the end of it."""
        with self._log.open(errors="replace") as log:
            log.seek(self._log_begins)
            return log.read()[-8000:]

    def run(
        self,
        workload: str,
        world_size: int,
        backend: str,
        *,
        timeout_s: float = HUNG_S / 2,
        environment: Mapping[str, str] | None = None,
    ) -> list[Outcome]:
        """What came of a workload, a rank each. If one failed, all of them end; new ones follow."""
        self._runs += 1
        self._log_begins = self._log.stat().st_size
        directory = self.directory / str(self._runs)
        directory.mkdir()
        place = world_size, backend, frozenset((environment or {}).items())
        workers = self._workers.get(place) or self._started(place)
        for rank, worker in enumerate(workers):
            task = Task(
                workload=workload,
                backend=backend,
                rank=rank,
                world_size=world_size,
                directory=directory,
                timeout_s=timeout_s,
                environment=environment or {},
            )
            worker.connection.send_bytes(pickle.dumps(task))
        answers = _answers([worker.connection for worker in workers])
        if all(answer.values is not None for answer in answers):
            return answers
        return self._let_go(place, workload, answers)

    def crashes(self) -> list[str]:
        """Of all worlds that have ended so far: which interpreters did not as they should, and how.

        Each is told of once.
        """
        found = []
        for what, worker in self._ending:
            if code := request(self._server, ("end", worker.pid, END_S)):
                found.append(f"{what} ended with {code}")
        self._ending.clear()
        return found

    def end(self, world_size: int, environment: Mapping[str, str] | None = None) -> None:
        """Have the workers of a world end, of each backend, as interpreters do."""
        asked = world_size, frozenset((environment or {}).items())
        for place in [place for place in self._workers if (place[0], place[2]) == asked]:
            self._let_go(place, "nothing", [Outcome(error="")] * world_size)

    def end_all(self) -> None:
        """Have all workers end; rank 0 of a world removes the channel that it made."""
        for world_size, _, environment in list(self._workers):
            self.end(world_size, dict(environment))

    def _let_go(self, place: _Place, what: str, answers: Sequence[Outcome]) -> list[Outcome]:
        """Have workers end: what answered in its own time, what did not at once."""
        outcomes = []
        for rank, worker in enumerate(self._workers.pop(place)):
            answer = answers[rank]
            worker.connection.close()
            if answer == Outcome():
                code = request(self._server, ("end", worker.pid, DYING_S))
                outcomes.append(replace(answer, code=code))
            else:
                self._ending.append((f"rank {rank} of {place[0]} over {place[1]}, {what}", worker))
                outcomes.append(answer)
        return outcomes

    def _started(self, place: _Place) -> list[_Worker]:
        workers = self._workers[place] = []
        for _ in range(place[0]):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                pid = request(self._server, ("start", str(self._log)), theirs.fileno())
                workers.append(_Worker(pid, Connection(ours.detach())))
        return workers


def _answers(connections: Sequence[Connection]) -> list[Outcome]:
    """What workers answer; an empty outcome for one that has ended, or that does not in time."""
    answers: dict[Connection, Outcome] = {}
    until_s = time.monotonic() + HUNG_S
    while len(answers) < len(connections):
        left = [connection for connection in connections if connection not in answers]
        ready = wait(left, max(0.0, until_s - time.monotonic()))
        if not ready:
            break
        for connection in ready:
            assert isinstance(connection, Connection)
            try:
                answers[connection] = pickle.loads(connection.recv_bytes())
            except (EOFError, ConnectionResetError):
                answers[connection] = Outcome()
    return [answers.get(connection, Outcome()) for connection in connections]
