"""A list of work, done by this process and by forks of it at the same time.

    this process    item 0, item n, item 2n ...   reads what the others found
    fork 1          item 1, item n + 1 ...        pickled, through a pipe of its own; ends
    ...                                           n: CPUs that this process may use

A fork shares the memory of its parent, so items need not be sent; starting it takes some
milliseconds. Of several threads a fork has only the one that forked, and would wait for ever for a
lock that another one held. So a process with several threads does all the work itself.
"""

from __future__ import annotations

import gc
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar

from dayfly.errors import DayflyError

T = TypeVar("T")
R = TypeVar("R")
_Outcomes: TypeAlias = list[tuple[Any, Exception | None]]


def each(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns what the work makes of each item, in their order.

    Args:
        work: must not depend on what it did before, and its results can be pickled.
        items: any.

    Raises:
        Exception: what the work raises, of the first item of which it does.
        DayflyError: a fork ended before its work was done.
    """
    processes = min(len(items), len(os.sched_getaffinity(0)))
    if processes < 2 or threading.active_count() > 1:
        return [work(one) for one in items]
    forks = [_Fork.of(work, items[number::processes]) for number in range(1, processes)]
    try:
        mine = _outcomes(work, items[::processes])
    finally:
        written = [fork.ended() for fork in forks]
    shares = [mine, *map(_read, written)]
    outcomes = [shares[at % processes][at // processes] for at in range(len(items))]
    for _, raised in outcomes:
        if raised is not None:
            raise raised
    return [made for made, _ in outcomes]


def _outcomes(work: Callable[[T], R], items: Iterable[T]) -> _Outcomes:
    """What it makes of each, or raises."""
    found: _Outcomes = []
    for one in items:
        try:
            found.append((work(one), None))
        except Exception as raised:
            found.append((None, raised))
    return found


@dataclass(frozen=True, slots=True)
class _Fork:
    """A process that works on its share, and the pipe from which its outcomes come."""

    pid: int
    results: int

    @classmethod
    def of(cls, work: Callable[[T], R], items: Sequence[T]) -> _Fork:
        results, to = os.pipe()
        with warnings.catch_warnings():  # as of Python 3.12, of threads that are not Python's
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            os.close(results)
            _work(work, items, to)
        os.close(to)
        return cls(pid, results)

    def ended(self) -> tuple[int, bytes]:
        """Waits for it, and returns its exit status and what it wrote."""
        with os.fdopen(self.results, "rb") as pipe:
            written = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), written


def _read(ended: tuple[int, bytes]) -> _Outcomes:
    status, written = ended
    if status:
        raise DayflyError(
            f"a process that was forked for a part of this work ended with status {status}: is "
            "there too little memory?"
        )
    outcomes: _Outcomes = pickle.loads(written)
    return outcomes


def _work(work: Callable[[T], R], items: Sequence[T], to: int) -> NoReturn:
    code = 1
    try:
        gc.disable()  # it ends soon, and looking for garbage would copy what it shares
        with os.fdopen(to, "wb") as pipe:
            pickle.dump(_outcomes(work, items), pipe, pickle.HIGHEST_PROTOCOL)
        code = 0
    finally:
        os._exit(code)
