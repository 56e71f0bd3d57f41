"""Work on items of a list, done by this process and by forks of it at the same time.

    this process   the 1st, the n+1st, ... of what is asked for   reads what the others found
    fork 1         the 2nd, the n+2nd, ...                        pickled, through its own pipe
    ...                                                           n: CPUs that this process may use

A fork shares the memory of its parent, so items need not be sent, only their numbers; starting it
takes some milliseconds, and again as much where either writes to what both share. So forks stay
until all is done, with what they have read and computed. Of several threads a fork has only the one
that forked, and would wait for ever for a lock that another one held. So a process with several
threads does all the work itself.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

from dayfly.closing import Closing
from dayfly.errors import DayflyError

T = TypeVar("T")
R = TypeVar("R")
_Outcomes: TypeAlias = list[tuple[Any, Exception | None]]
#: CPU seconds of the processes that this one was forked from, until then.
_before_s = 0.0


def cpu_s() -> float:
    """Returns the CPU seconds of this process since it was started, those of the processes included
    that it was forked from until it was: a deadline by this clock holds in forks, too."""
    return _before_s + time.process_time()


def each(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns what the work makes of each item, in their order; see `Forks`."""
    with Forks(work, items) as forks:
        return forks.of(range(len(items)))


class Forks(Closing, Generic[T, R]):
    """Forks of this process, as it is now, that work beside it when they are asked.

    Args:
        work: must not depend on what it did before, and its results can be pickled.
        items: any.
    """

    def __init__(self, work: Callable[[T], R], items: Sequence[T]) -> None:
        self._work, self._items = work, items
        self._forks: list[_Fork] = []
        processes = min(len(items), len(os.sched_getaffinity(0)))
        if threading.active_count() == 1:
            with suppress(OSError):  # no more processes are allowed: those that there are do all
                for _ in range(1, processes):
                    self._forks.append(_Fork.of(self._outcomes, self._forks))

    def of(self, numbers: Sequence[int]) -> list[R]:
        """Returns what the work makes of some of the items, in the order of their numbers.

        Raises:
            Exception: what the work raises, of the first item of which it does.
            DayflyError: a fork ended before its work was done.
        """
        processes = 1 + len(self._forks)
        mine, *others = (numbers[at::processes] for at in range(processes))
        busy = [(fork, share) for fork, share in zip(self._forks, others, strict=True) if share]
        for fork, share in busy:
            fork.ask(share)
        shares = [self._outcomes(mine), *(fork.answer() for fork, _ in busy)]
        outcomes = [shares[at % processes][at // processes] for at in range(len(numbers))]
        for _, raised in outcomes:
            if raised is not None:
                raise raised
        return [made for made, _ in outcomes]

    def close(self) -> None:
        """Ends the forks, whatever they do."""
        while self._forks:
            self._forks.pop().end()

    def _outcomes(self, numbers: Sequence[int]) -> _Outcomes:
        """What the work makes of each, or raises."""
        found: _Outcomes = []
        for number in numbers:
            try:
                found.append((self._work(self._items[number]), None))
            except Exception as raised:
                found.append((None, raised))
        return found


@dataclass(slots=True)
class _Fork:
    """A process, and the pipes by which it is asked, and answers. status: it ended with it."""

    pid: int
    questions: BufferedWriter
    answers: BufferedReader
    status: int | None = None

    @classmethod
    def of(cls, work: Callable[[Sequence[int]], _Outcomes], earlier: Sequence[_Fork]) -> _Fork:
        """earlier: forks whose pipes this one is not to hold open."""
        read, write = os.pipe()
        asked, questions = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        read, write = os.pipe()
        answers, told = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        before_s = cpu_s()
        with asked, told:
            with warnings.catch_warnings():  # as of Python 3.12, of threads that are not Python's
                warnings.simplefilter("ignore", DeprecationWarning)
                try:
                    pid = os.fork()
                except OSError:
                    questions.close()
                    answers.close()
                    raise
            if not pid:
                for pipe in (questions, answers, *(one.questions for one in earlier)):
                    pipe.close()
                _serve(work, asked, told, before_s)
        return cls(pid, questions, answers)

    def ask(self, numbers: Sequence[int]) -> None:
        with suppress(BrokenPipeError):  # it has ended, which `answer` says
            pickle.dump(numbers, self.questions)
            self.questions.flush()

    def answer(self) -> _Outcomes:
        """Raises DayflyError: it has ended."""
        try:
            outcomes: _Outcomes = pickle.load(self.answers)
        except (EOFError, pickle.UnpicklingError):
            status = self.end()
            raise DayflyError(
                f"a process that was forked for a part of this work ended with status {status}: is "
                "there too little memory?"
            ) from None
        return outcomes

    def end(self) -> int:
        """Ends it, unless it has; returns its exit status."""
        self.answers.close()
        with suppress(BrokenPipeError):
            self.questions.close()
        if self.status is None:  # else its pid may be another process's by now
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status


def _serve(
    work: Callable[[Sequence[int]], _Outcomes],
    asked: BufferedReader,
    told: BufferedWriter,
    before_s: float,
) -> NoReturn:
    """What a fork does, until nobody can ask it any more."""
    global _before_s
    code = 1
    try:
        _before_s = before_s
        gc.disable()  # it ends soon, and looking for garbage would copy what it shares
        while asked.peek(1):
            pickle.dump(work(pickle.load(asked)), told, pickle.HIGHEST_PROTOCOL)
            told.flush()
        code = 0
    finally:
        os._exit(code)
