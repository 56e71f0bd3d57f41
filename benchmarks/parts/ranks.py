"""Processes that are measured, one a rank: told what to do, and gone with whoever started them.

    ranks = Ranks(Peer, 4)            a process each, which makes `Peer(rank)` and waits
    ranks.ask("open", url)            all of them at once: `peer.open(url)`; a list of the results
    ranks.together("timed", 10)       as well, at one moment: `peer.timed(10)`

They begin with the environment of dayfly's functions. What they are asked stays small, and goes by
pipes. The kernel kills them when their starter ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from benchmarks.parts import own
from dayfly.closing import Closing
from dayfly.errors import RunFailed, in_short
from dayfly.life.environment import setting
from dayfly.life.platforms import network

_PR_SET_PDEATHSIG = 1
#: How far ahead `together` is: long enough for all to have been told.
_AHEAD_S = 0.05


class Ranks(Closing):
    """As many processes. Close it to end them.

    make: what a process makes of its rank; its methods are what can be asked. spaces: the network
    namespace of each rank; none: they stay in this one. timeout_s: the longest time that anything
    asked may take. Raises RunFailed, from whatever is asked, naming the rank that failed; from then
    on they are not `in_order`, and nothing more can be asked.
    """

    def __init__(
        self,
        make: Callable[[int], object],
        count: int,
        *,
        spaces: Sequence[str] = (),
        timeout_s: float = 600.0,
    ) -> None:
        context = get_context("spawn")
        self.in_order = True
        self._timeout_s = timeout_s
        self._processes = []
        self._pipes: list[Connection] = []
        try:
            for rank in range(count):
                ours, theirs = context.Pipe()
                space = spaces[rank] if spaces else None
                process = context.Process(
                    target=_serve, args=(os.getpid(), rank, make, space, theirs), daemon=True
                )
                self._pipes.append(ours)
                self._processes.append(process)
                with setting(own.environment()):  # libraries read it as they are loaded
                    process.start()
                theirs.close()
            self._answers(self._pipes)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the processes, rank by rank."""
        return [process.pid for process in self._processes if process.pid is not None]

    def ask(self, method: str, *args: object, count: int | None = None) -> list[Any]:
        """What a method gives, rank by rank, of the first `count` ranks."""
        return self._exchange((method, args, None), count)

    def together(self, method: str, *args: object, count: int | None = None) -> list[Any]:
        """As `ask`, and all begin at one moment, a little later than now."""
        return self._exchange((method, args, time.monotonic() + _AHEAD_S), count)

    def close(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()

    def _exchange(self, message: tuple[object, ...], count: int | None) -> list[Any]:
        pipes, self.in_order = self._pipes[:count], False
        for rank, pipe in enumerate(pipes):
            try:
                pipe.send(message)
            except OSError as error:
                raise RunFailed(f"rank {rank} has ended; see above") from error
        answers = self._answers(pipes)
        self.in_order = True
        return answers

    def _answers(self, pipes: Sequence[Connection]) -> list[Any]:
        answers: dict[int, Any] = {}
        until = time.monotonic() + self._timeout_s
        while len(answers) < len(pipes):
            missing = {pipe: rank for rank, pipe in enumerate(pipes) if rank not in answers}
            ready = wait(list(missing), max(0.0, until - time.monotonic()))
            if not ready:
                stuck = min(missing.values())
                raise RunFailed(f"rank {stuck} gave no answer in {self._timeout_s:g} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    answer, error = pipe.recv()
                except (EOFError, ConnectionError):
                    raise RunFailed(f"rank {missing[pipe]} ended; see above") from None
                if error is not None:
                    raise RunFailed(f"rank {missing[pipe]}: {error}")
                answers[missing[pipe]] = answer
        return [answers[rank] for rank in range(len(pipes))]


def _serve(
    parent: int, rank: int, make: Callable[[int], object], space: str | None, pipe: Connection
) -> None:
    die_with(parent)
    # Ctrl-C is for the starter, who kills this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    try:
        if space is not None:
            network.enter(space)
        made = make(rank)
        pipe.send((None, None))
        while True:
            method, args, at_s = pipe.recv()
            if at_s is not None:
                time.sleep(max(0.0, at_s - time.monotonic()))
            pipe.send((getattr(made, method)(*args), None))
    except EOFError:
        return
    except Exception as error:
        # Whoever asked ends all of them: what is asked together is in disorder now.
        pipe.send((None, in_short(error)))


def die_with(parent: int) -> None:
    """Have this process killed when the one that measures ends, however it does."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
