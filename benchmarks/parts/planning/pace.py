"""How fast this machine computes just now: a probe of fixed work beside what is measured.

    paces(["cnn"])                a process each, before anything is measured; asleep until asked
    pace.beside(what)             its result, and what a pass took on average meanwhile

The CPU of a machine that others use, too, is faster or slower from one second to the next, and no
prediction can know that. What a probe takes beside a profile, and again beside a run, says by how
much it changed in between. So a probe computes all the while, but little: a burst of passes, and
then a sleep of many times as long.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Protocol, TypeVar

from benchmarks.parts.planning.jobs import WORKS
from benchmarks.parts.ranks import Ranks
from dayfly.closing import Closing
from dayfly.errors import RequestError
from dayfly.training.replica import build_model

Result = TypeVar("Result")
#: CPU seconds of a burst, and what part of a CPU bursts take in all.
_BURST_S, _SHARE = 0.1, 0.05
#: The longest time that a probe may take; on a busy machine it takes longer than its CPU time.
_TIMEOUT_S = 120.0


class Paced(Protocol):
    """Says how fast the machine was beside something."""

    def beside(self, what: Callable[[], Result]) -> tuple[Result, float]:
        """What it gives, and seconds of a pass while it lasted."""


class Even:
    """Of what takes as long however fast the machine is: a pass takes one of its own."""

    def beside(self, what: Callable[[], Result]) -> tuple[Result, float]:
        """What it gives, and 1."""
        return what(), 1.0


class Pace(Closing):
    """A process that computes passes of one of `WORKS`, with a part of its batch.

    It has one thread and no limit of CPU, does nothing unless asked, and ends with this process,
    or when its pipe is closed. Raises RunFailed, from whatever is asked, if it ended.
    """

    def __init__(self, work: str) -> None:
        self._ranks = Ranks(partial(_Bursts, work), 1, timeout_s=_TIMEOUT_S)

    def beside(self, what: Callable[[], Result]) -> tuple[Result, float]:
        """What it gives, and the mean of the CPU seconds of a pass while it lasted."""
        self._ranks.ask("begin")
        try:
            found = what()
        finally:
            [pass_s] = self._ranks.ask("end")
        return found, float(pass_s)

    def close(self) -> None:
        self._ranks.close()


@contextmanager
def paces(works: Iterable[str]) -> Iterator[Mapping[str, Pace]]:
    """Of each of these works; their processes end with the block."""
    with ExitStack() as stack:
        yield {work: stack.enter_context(Pace(work)) for work in dict.fromkeys(works)}


def pace_text(pass_s: float, made_s: float) -> str:
    """What is written beside a profile that is kept. made_s: when, in seconds since 1970."""
    return json.dumps({"pass_s": pass_s, "made_s": made_s}) + "\n"


def read_pace(file: Path) -> tuple[float, float | None]:
    """Seconds of a pass, and when, as `pace_text` wrote them; None: nobody wrote when.

    Raises RequestError, which names the file.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        pass_s, made_s = float(found["pass_s"]), found.get("made_s")
        made_s = None if made_s is None else float(made_s)
    except OSError as error:
        raise RequestError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise RequestError(f'{str(file)!r} is no pace: give {{"pass_s": seconds}}') from error
    if not 0 < pass_s < float("inf"):
        raise RequestError(f"{str(file)!r}: pass_s is {pass_s:g}: give seconds above 0")
    return pass_s, made_s


class _Bursts:
    """In the process: the same passes, again and again."""

    def __init__(self, work: str, rank: int) -> None:
        what = WORKS[work]
        model = build_model(what.job(Path(), batch_size=what.few))
        self._pass = what.passes_of(model, what.few)
        self._pass_s()  # the first one makes what the others use again
        self._took_s: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread()

    def begin(self) -> None:
        """From now on, until the end."""
        self._took_s.clear()
        self._over.clear()
        self._thread = threading.Thread(target=self._now_and_then, daemon=True)
        self._thread.start()

    def end(self) -> float:
        """CPU seconds of a pass since it began, on average."""
        self._over.set()
        self._thread.join(_TIMEOUT_S)
        return fmean(self._took_s)

    def _now_and_then(self) -> None:
        while True:
            self._burst()
            if self._over.wait(_BURST_S * (1 / _SHARE - 1)):
                return

    def _burst(self) -> None:
        # Not counted: others have used the caches since.
        until = time.thread_time() + _BURST_S - self._pass_s()
        while True:
            self._took_s.append(self._pass_s())
            if time.thread_time() >= until:
                return

    def _pass_s(self) -> float:
        began = time.thread_time()
        self._pass()
        return time.thread_time() - began
