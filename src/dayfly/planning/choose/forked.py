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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from typing import Any, Generic, TypeAlias, TypeVar

from dayfly.closing import Closing
from dayfly.errors import DayflyError

T = TypeVar("T")
R = TypeVar("R")
_Outcomes: TypeAlias = list[tuple[Any, Exception | None]]
#: CPU seconds that count beside those of this process: see `cpu_s`.
_beside_s = 0.0


def cpu_s() -> float:
    """Returns CPU seconds on the longest way to here: of this process, of those before it up to
    each fork, and while this one waited for its forks, of the one that computed longest. So a
    deadline by this clock holds in forks that are made later, and for what they compute."""
    return _beside_s + time.process_time()


def each(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns what the work makes of each item, in their order; see `Forks`."""
    with Forks(work, items) as forks:
        return forks.of(range(len(items)))


class Forks(Closing, Generic[T, R]):
    """Forks of this process, as it is now, that work beside it when they are asked.

    Args:
        work: must not depend on what it did before, and its results can be pickled.
        items: any.
        at_once: so many are asked for at a time, at most.
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
            pass  # no more processes or files are allowed: those that there are do all
        except BaseException:
            self.close()
            raise

    def of(self, numbers: Sequence[int]) -> list[R]:
        """Returns what the work makes of some of the items, in the order of their numbers.

        Raises:
            Exception: what the work raises, of the first item of which it does.
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
        """earlier: forks whose pipes the new one closes. Raises OSError: there can be none."""
        with ExitStack() as ours, ExitStack() as its:
            asked, questions = _pipe(its, ours)
            answers, told = _pipe(ours, its)
            before_s = cpu_s()
            with warnings.catch_warnings():  # as of Python 3.12, of threads that are not Python's
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                code = 1
                try:
                    ours.close()
                    for one in earlier:
                        one.questions.close()
                        one.answers.close()
                    _serve(work, asked, told, before_s)
                    code = 0
                finally:
                    os._exit(code)
            ours.pop_all()
        return cls(pid, questions, answers)

    def ask(self, numbers: Sequence[int]) -> None:
        with suppress(BrokenPipeError):  # it has ended, which `answer` says
            pickle.dump(numbers, self.questions)
            self.questions.flush()

    def answer(self) -> tuple[_Outcomes, float]:
        """What was found, and CPU seconds that it took. Raises DayflyError: it has ended."""
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
        """Ends it, unless it has; returns its exit status."""
        if self.status is None:  # else its pid may be another process's by now
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        self.answers.close()
        with suppress(BrokenPipeError):
            self.questions.close()
        return self.status


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[BufferedReader, BufferedWriter]:
    """A pipe of which each end is closed with the stack of its owner."""
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
    """What a fork does, until nobody can ask it any more."""
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
