"""When a script should save: rank 0's decision, for one numbered call after another. Pure.

    call        0      1      2 ...  40     41 ...  80     81 ...
    rank 0      decide        "41: no, next 81"     "81: yes, next 95"
    others      no     read 1 no     no     read 41  no    read 81

An announcement says what its call answers and at which call the next one is; calls in between
answer no, without a word. Calls are announced about once in `EVERY_S`, and more often only before
the end of a life, as far as that must not be missed. Where steps are short, an announcement is made
one call ahead, so that it is there when it is read.

Symbols: s the longest step of this life, c the longest save with its step, L the seconds that are
left until the first of the workers is ended. A save is due `every_s` after the one before, and when
L falls below what is kept free for the end:

    2 s + 2 c + SPARE_S      another step that takes twice the longest, and such a save
                             but no more than half a life, as in `life.lifetimes`
    s + c + SPARE_S          at least: after another step there must be time to save
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Seconds between two announcements, about.
EVERY_S = 1.0
#: Seconds at the end of a life that do not depend on the script; clocks of functions differ less.
SPARE_S = 1.0
#: A life that has not seen a save yet takes one for as long as this share of it, or a step.
_UNSEEN_SHARE = 0.05
#: No more than this share of a life is kept free for its end, as long as a step and a save fit.
_MOST_SHARE = 0.5
#: The part of the time that is left for steps until the next announcement, so that it comes in time
#: even if steps take this many times as long from now on.
_SLOWER = 4
#: A call is announced ahead if the time that is left for steps is so many times the longest one.
_AHEAD_STEPS = 16
#: Steps from which the next ones are foretold.
_STEPS = 64


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a call answers, and the number of the next call that is announced."""

    due: bool
    following: int


class Decisions:
    """Rank 0's, in one life. For each call: `begin`, `decide` what is `wanted`, and `answer`.

    All times are in seconds, by one clock.
    """

    def __init__(self) -> None:
        self._call = -1
        self._began_s = self._called_s = self._saved_s = 0.0
        self._whole_s: float | None = None
        self._first_step_s = 0.0
        self._longest_step_s = 0.0
        self._longest_save_s = 0.0
        self._steps: deque[float] = deque(maxlen=_STEPS)
        self._said = False
        # Whether this life had its last save, as far as is known.
        self._ending = False
        self._made: dict[int, Announcement] = {}
        # The first call that is not decided; before it, and after the one before, answers are no.
        self._next = 1

    def begin(self, now_s: float) -> int:
        """A call begins; returns its number, from 0."""
        self._call += 1
        took_s = now_s - self._called_s
        if self._call == 0:
            self._began_s = self._saved_s = now_s
        elif self._said:
            self._longest_save_s = max(self._longest_save_s, took_s)
        else:
            self._steps.append(took_s)
            if self._call == 1:
                self._first_step_s = took_s  # often far longer than all others
            else:
                self._longest_step_s = max(self._longest_step_s, took_s)
        self._called_s = now_s
        return self._call

    def wanted(self, left_s: Callable[[], float]) -> Iterator[int]:
        """Numbers of the calls to decide now, one after another: this one, and the next ahead."""
        if self._next == self._call:
            yield self._call
        if self._next == self._call + 1 and self._call > 0:
            slack_s = left_s() - self._kept_s()
            if slack_s > _AHEAD_STEPS * (self._longest_step_s or self._first_step_s):
                yield self._call + 1

    def decide(self, call: int, left_s: float, every_s: float) -> Announcement:
        """The announcement of a call that is wanted; left_s: of the life that ends first."""
        if self._whole_s is None:
            self._whole_s = left_s + self._called_s - self._began_s
        step_s = self._usual_step_s()
        ahead_s = (call - self._call) * step_s
        slack_s = left_s - ahead_s - self._kept_s()
        since_s = self._called_s + ahead_s - self._saved_s
        ended, self._ending = self._ending, slack_s < 0
        due = not ended if self._ending else since_s >= every_s
        gap_s = EVERY_S
        if due:
            self._saved_s, since_s = self._called_s + ahead_s, 0.0
        if not self._ending:
            gap_s = min(gap_s, every_s - since_s, slack_s / _SLOWER)
        # Never further than calls have come so far: the first few may be faster than all others.
        reach = int(min(gap_s / step_s, call)) if step_s else 1
        self._next = call + max(1, reach)
        self._made[call] = made = Announcement(due, self._next)
        return made

    def answer(self) -> bool:
        """What the call that began answers."""
        made = self._made.pop(self._call, None)
        self._said = made is not None and made.due
        return self._said

    def _usual_step_s(self) -> float:
        """The mean of the last steps but the longest of them, for which time is kept as it is."""
        if len(self._steps) < 2:
            return sum(self._steps)
        return (sum(self._steps) - max(self._steps)) / (len(self._steps) - 1)

    def _kept_s(self) -> float:
        """What is kept free for the end."""
        whole_s = float("inf") if self._whole_s is None else self._whole_s
        step_s = self._longest_step_s or self._first_step_s
        save_s = self._longest_save_s
        if not save_s:
            save_s = max(step_s, _UNSEEN_SHARE * whole_s if whole_s < float("inf") else 0.0)
        twice_s = min(2 * step_s + 2 * save_s + SPARE_S, _MOST_SHARE * whole_s)
        return max(twice_s, step_s + save_s + SPARE_S)
