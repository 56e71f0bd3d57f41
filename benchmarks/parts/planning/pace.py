"""How fast this machine computes just now: a probe of fixed work beside what is measured.

    paces(["cnn"])                a process each, before anything is measured; asleep until asked
    pace.beside(what)             probe | what | probe: its result, and the mean of both

The CPU of a machine that others use, too, is faster or slower from minute to minute, and no
prediction can know that. What a probe takes beside a profile, and again beside a run, says by how
much it changed in between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

import torch

from benchmarks.parts.planning.jobs import WORKS
from benchmarks.parts.ranks import Ranks
from dayfly.closing import Closing
from dayfly.errors import RequestError
from dayfly.train.replica import build_model

Result = TypeVar("Result")
#: CPU seconds of a probe: some passes of every work, and little beside a run.
_PROBE_S = 0.4
#: The longest time that a probe may take; on a busy machine it takes longer than its CPU time.
_TIMEOUT_S = 120.0


class Pace(Closing):
    """A process that computes passes of one of `WORKS`, at its batch size. Close it to end it.

    It has one thread and no limit of CPU, does nothing unless asked, and ends with this process,
    or when its pipe is closed. Raises RunFailed, from whatever is asked, if it ended.
    """

    def __init__(self, work: str, probe_s: float = _PROBE_S) -> None:
        self._ranks = Ranks(partial(_Passes, work, probe_s), 1, timeout_s=_TIMEOUT_S)

    def pass_s(self) -> float:
        """CPU seconds of a pass, forward and backward, just now."""
        [found] = self._ranks.ask("median_s")
        return float(found)

    def beside(self, what: Callable[[], Result]) -> tuple[Result, float]:
        """What it gives, and the mean of the seconds of a pass right before and right after it."""
        before_s = self.pass_s()
        found = what()
        return found, fmean((before_s, self.pass_s()))

    def close(self) -> None:
        self._ranks.close()


@contextmanager
def paces(works: Iterable[str]) -> Iterator[Mapping[str, Pace]]:
    """Of each of these works; their processes end with the block."""
    with ExitStack() as stack:
        yield {work: stack.enter_context(Pace(work)) for work in dict.fromkeys(works)}


def pace_text(pass_s: float) -> str:
    """What is written beside a profile that is kept."""
    return json.dumps({"pass_s": pass_s}) + "\n"


def read_pace(file: Path) -> float:
    """Seconds of a pass, as `pace_text` wrote them. Raises RequestError, which names the file."""
    try:
        pass_s = float(json.loads(file.read_text(encoding="utf-8"))["pass_s"])
    except OSError as error:
        raise RequestError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise RequestError(f'{str(file)!r} is no pace: give {{"pass_s": seconds}}') from error
    if not 0 < pass_s < float("inf"):
        raise RequestError(f"{str(file)!r}: pass_s is {pass_s:g}: give seconds above 0")
    return pass_s


class _Passes:
    """In the process: the same passes, again and again."""

    def __init__(self, work: str, probe_s: float, rank: int) -> None:
        what = WORKS[work]
        self._probe_s = probe_s
        self._job = what.job(Path(), batch_size=what.batch_size)
        self._model = build_model(self._job)
        samples, _ = what.data(what.batch_size)
        self._x, self._y = torch.from_numpy(samples.x), torch.from_numpy(samples.y)
        self._pass()  # the first one makes what the others use again

    def median_s(self) -> float:
        """CPU seconds of a pass."""
        until = time.thread_time() + self._probe_s
        took_s: list[float] = []
        while time.thread_time() < until:
            began = time.thread_time()
            self._pass()
            took_s.append(time.thread_time() - began)
        return median(took_s)

    def _pass(self) -> None:
        self._model.zero_grad()
        self._job.loss(self._model(self._x), self._y).backward()
