"""Items of work, computed in parallel by this process and by forks of it.

    this process   items 1, n + 1, 2n + 1 ... of a question   reads the results of the forks
    fork 1         items 2, n + 2, 2n + 2 ...                 sends pickled results through a pipe
    ...                                                       n: number of processes

A fork shares its parent's memory, so a question names items by their numbers. Forking takes some
milliseconds, and so does copying the pages that either process writes to later. So a fork is kept
until all questions are answered, with what it has cached. A fork has only the thread that forked,
and would wait for ever for a lock that another thread held. So a process with several threads forks
nothing and computes all items itself.
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from typing import Any, Generic, TypeAlias, TypeVar

from dayfly.closing import Closing
from dayfly.errors import DayflyError
from dayfly.lifeline import Lifeline, arm

T = TypeVar("T")
R = TypeVar("R")
_Outcomes: TypeAlias = list[tuple[Any, Exception | None]]
#: What `cpu_s` counts besides the CPU time of this process, in seconds.
_beside_s = 0.0


def cpu_s() -> float:
    """Returns the CPU time of the critical path up to now, in seconds.

    It is the CPU time of this process and of its ancestors, each until it forked the next one.
    While a process waits for the answers of its forks, that of the slowest fork counts. So a
    deadline by this clock holds in forks that are made later, too, and includes what they compute.
    """
    return _beside_s + time.process_time()


def each(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Computes all items in parallel.

    Args:
        work, items: as of `Forks`.

    Returns:
        The result of each item, in the order of the items.

    Raises:
        Exception, DayflyError: as of `Forks.of`.
    """
    with Forks(work, items) as forks:
        return forks.of(range(len(items)))


class Forks(Closing, Generic[T, R]):
    """Forks of this process that compute items in parallel with it; they are made at once.

    Args:
        work: computes the result of an item. It must not depend on earlier calls, and its results
            must be such as can be pickled.
        items: all that may be asked for.
        at_once: the most items of a question; None: all. There are no more processes than that.
    """

    def __init__(
        self, work: Callable[[T], R], items: Sequence[T], at_once: int | None = None
    ) -> None:
        self._work, self._items = work, items
        self._forks: list[_Fork] = []
        most = len(items) if at_once is None else min(at_once, len(items))
        if threading.active_count() > 1:
            return
        try:
            for _ in range(1, min(most, len(os.sched_getaffinity(0)))):
                self._forks.append(_Fork.of(self._outcomes, self._forks))
        except OSError:
            pass  # no more processes or files are allowed: fewer processes compute all items
        except BaseException:
            self.close()
            raise

    def of(self, numbers: Sequence[int]) -> list[R]:
        """Computes some of the items.

        Args:
            numbers: of the items.

        Returns:
            Their results, in the order of the numbers.

        Raises:
            Exception: what the work raised for the first item for which it did.
            DayflyError: a fork ended before its work was done.
        """
        global _beside_s
        processes, began_s = 1 + len(self._forks), cpu_s()
        mine, *others = (numbers[at::processes] for at in range(processes))
        busy = [(fork, share) for fork, share in zip(self._forks, others, strict=True) if share]
        try:
            for fork, share in busy:
                fork.ask(share)
            made = self._outcomes(mine)
            took_s = cpu_s() - began_s
            answers = [fork.answer() for fork, _ in busy]
        except BaseException:
            self.close()  # answers that nobody read would be taken for those of the next question
            raise
        _beside_s += max([0.0, *(its_s - took_s for _, its_s in answers)])
        shares = [made, *(outcomes for outcomes, _ in answers)]
        outcomes = [shares[at % processes][at // processes] for at in range(len(numbers))]
        for _, raised in outcomes:
            if raised is not None:
                raise raised
        return [one for one, _ in outcomes]

    def close(self) -> None:
        """Kills the forks, also while they compute."""
        while self._forks:
            self._forks.pop().end()

    def _outcomes(self, numbers: Sequence[int]) -> _Outcomes:
        """Returns the result of each item, or the exception that the work raised."""
        found: _Outcomes = []
        for number in numbers:
            try:
                found.append((self._work(self._items[number]), None))
            except Exception as raised:
                found.append((None, raised))
        return found


@dataclass(slots=True)
class _Fork:
    """A child process and its pipes. status: exit status; None: it was not waited for yet.

    lifeline: kills it when this process ends, while it computes, too.
    """

    pid: int
    lifeline: Lifeline
    questions: BufferedWriter
    answers: BufferedReader
    status: int | None = None

    @classmethod
    def of(cls, work: Callable[[Sequence[int]], _Outcomes], earlier: Sequence[_Fork]) -> _Fork:
        """Makes a fork. earlier: forks whose pipes the new one inherits, and closes.

        Raises OSError: the kernel allows no more processes or files.
        """
        with ExitStack() as ours, ExitStack() as its:
            lifeline = Lifeline()
            ours.callback(lifeline.close)
            # A fork closes the ends of the lifelines that it inherits, but not this copy.
            line = os.dup(lifeline.read_fd)
            its.callback(os.close, line)
            asked, questions = _pipe(its, ours)
            answers, told = _pipe(ours, its)
            before_s = cpu_s()
            with warnings.catch_warnings():  # as of Python 3.12, of threads that are not Python's
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                code = 1
                try:
                    arm(line)
                    ours.close()
                    for one in earlier:
                        one.questions.close()
                        one.answers.close()
                    _serve(work, asked, told, before_s)
                    code = 0
                finally:
                    os._exit(code)
            ours.pop_all()
        return cls(pid, lifeline, questions, answers)

    def ask(self, numbers: Sequence[int]) -> None:
        with suppress(BrokenPipeError):  # it has ended, which `answer` says
            pickle.dump(numbers, self.questions)
            self.questions.flush()

    def answer(self) -> tuple[_Outcomes, float]:
        """Returns results, and the CPU seconds that they took. Raises DayflyError: it has ended."""
        try:
            answered: tuple[_Outcomes, float] = pickle.load(self.answers)
        except (EOFError, pickle.UnpicklingError):
            status = self.end()
            why = ": is there too little memory?" if status == -signal.SIGKILL else ""
            raise DayflyError(
                f"a process that was forked for a part of this work ended with status {status}{why}"
            ) from None
        return answered

    def end(self) -> int:
        """Kills it, if it still runs. Returns its exit status."""
        if self.status is None:  # otherwise its pid may belong to another process by now
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        self.lifeline.close()
        self.answers.close()
        with suppress(BrokenPipeError):
            self.questions.close()
        return self.status


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[BufferedReader, BufferedWriter]:
    """Makes a pipe. reader, writer: stacks that close its ends."""
    read, write = os.pipe()
    return (
        reader.enter_context(os.fdopen(read, "rb")),
        writer.enter_context(os.fdopen(write, "wb")),
    )


def _serve(
    work: Callable[[Sequence[int]], _Outcomes],
    asked: BufferedReader,
    told: BufferedWriter,
    before_s: float,
) -> None:
    """Answers questions until the pipe of questions is closed."""
    global _beside_s
    _beside_s = before_s
    gc.disable()  # it ends soon, and looking for garbage would copy what it shares
    while asked.peek(1):
        numbers, began_s = pickle.load(asked), cpu_s()
        outcomes = work(numbers)
        try:
            answer = pickle.dumps((outcomes, cpu_s() - began_s), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            unsent = DayflyError(f"a fork cannot send what it found: {error}")
            answer = pickle.dumps(([(None, unsent)] * len(numbers), cpu_s() - began_s))
        told.write(answer)
        told.flush()
