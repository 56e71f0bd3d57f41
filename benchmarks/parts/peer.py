"""The processes of `torch_ddp.py`: started, told what to do, ended.

They are started as torchrun would, one a rank, and talk over the loopback interface. Threads,
instruction sets and allocator are those of dayfly's functions. They stay from round to round,
asleep while the other side is measured, so starting them costs them nothing.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import IO, Any

from benchmarks.parts import own
from benchmarks.parts.measured import Measured
from dayfly.closing import Closing
from dayfly.errors import RunFailed
from dayfly.life.sessions import Session
from dayfly.lifeline import Lifeline

#: Longest time that a command may take; a rank that waits for a dead one gives up long before.
_TIMEOUT_S = 600.0
_TAIL_CHARACTERS = 2000


class TorchDDP(Closing):
    """A group of peers that train one workload. Close it to end them.

    They die with this process, whatever ends it, and carry the session's mark besides.
    """

    def __init__(
        self, workload: str, quick: bool, data: Path, world_size: int, session: Session
    ) -> None:
        self._logs = session.root / "peers"
        self._logs.mkdir(exist_ok=True)
        self._lifeline = Lifeline()
        self._processes: list[subprocess.Popen[str]] = []
        rendezvous = self._logs / f"{workload}-{world_size}"
        checkout = str(Path(__file__).parents[2])
        path = os.pathsep.join([checkout, *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            for rank in range(world_size):
                specification = {
                    "workload": workload,
                    "quick": quick,
                    "data": str(data),
                    "rendezvous": str(rendezvous),
                    "rank": rank,
                    "world_size": world_size,
                    "lifeline_fd": self._lifeline.read_fd,
                }
                with self._log(rank).open("wb") as log:
                    self._processes.append(
                        subprocess.Popen(
                            [
                                *(sys.executable, "-m", "benchmarks.parts.torch_ddp"),
                                json.dumps(specification),
                            ],
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            stderr=log,
                            text=True,
                            env={
                                **own.environment(),
                                "GLOO_SOCKET_IFNAME": "lo",
                                "PYTHONPATH": path,
                                **session.mark("peers"),
                            },
                            pass_fds=(self._lifeline.read_fd,),
                            start_new_session=True,
                        )
                    )
        except BaseException:
            self.close()
            raise

    def train(self) -> Measured:
        """A whole training from the first weights on."""
        return _together(self._ask("train"))

    def alone(self) -> Measured:
        """The same without communication."""
        return _together(self._ask("alone"))

    def reduce_ms(self) -> float:
        """Milliseconds of an all-reduce of all gradients, with nothing beside it."""
        return fmean(answer["reduce_ms"] for answer in self._ask("reduce"))

    def close(self) -> None:
        self._lifeline.close()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):  # a command that it ended before it read
                        stream.close()

    def _ask(self, command: str) -> list[dict[str, Any]]:
        """Every rank's answer. Raises RunFailed with the log's end if one dies or is stuck."""
        try:
            for process in self._processes:
                stdin = _there(process.stdin)
                stdin.write(f"{command}\n")
                stdin.flush()
        except BrokenPipeError:
            pass  # Its answer is missing, too.
        answers: dict[int, dict[str, Any]] = {}
        until = time.monotonic() + _TIMEOUT_S
        while len(answers) < len(self._processes):
            missing = {
                _there(process.stdout): rank
                for rank, process in enumerate(self._processes)
                if rank not in answers
            }
            ready, _, _ = select.select(list(missing), [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise self._failure(min(missing.values()), f"no answer in {_TIMEOUT_S:.0f} s")
            for stream in ready:
                line = stream.readline()
                if not line:
                    raise self._failure(missing[stream], "it ended")
                answers[missing[stream]] = json.loads(line)
        return [answers[rank] for rank in range(len(self._processes))]

    def _failure(self, rank: int, what: str) -> RunFailed:
        tail = self._log(rank).read_text(errors="replace")[-_TAIL_CHARACTERS:].strip()
        return RunFailed(f"rank {rank} of the torch DDP peers: {what}; the end of its log:\n{tail}")

    def _log(self, rank: int) -> Path:
        return self._logs / f"rank-{rank}.log"


def _together(answers: list[dict[str, Any]]) -> Measured:
    """The ranks' answers as one: rank 0's clock, and the means of the rest."""
    return Measured(
        steps_per_s=answers[0]["steps_per_s"],
        losses=[fmean(losses) for losses in zip(*(a["losses"] for a in answers), strict=True)],
        parts_ms={
            part: fmean(answer["parts_ms"][part] for answer in answers)
            for part in answers[0]["parts_ms"]
        },
    )


def _there(stream: IO[str] | None) -> IO[str]:
    assert stream is not None, "it was asked for as a pipe"
    return stream
